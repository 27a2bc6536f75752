#pragma once
// Writes record batches to one CSV file, atomically (exec/atomic_file.h): a header, commas, quotes where a text
// needs them, NULL as nothing and the empty text as "".

#include <memory>
#include <string>

#include <arrow/api.h>

#include "exec/atomic_file.h"

namespace millstream::exec {

/// Used by one thread at a time. Errors name the target.
class CsvFileWriter {
 public:
  static Result<std::unique_ptr<CsvFileWriter>> open(const std::string& path,
                                                     const std::shared_ptr<arrow::Schema>& schema,
                                                     bool overwrite);
  /// Removes the temporary unless close() succeeded.
  ~CsvFileWriter();
  CsvFileWriter(const CsvFileWriter&) = delete;
  CsvFileWriter& operator=(const CsvFileWriter&) = delete;

  Status write(const arrow::RecordBatch& batch);
  /// Completes the file. Call once.
  Status close();

 private:
  CsvFileWriter(std::string path, bool overwrite) : path_(std::move(path)), overwrite_(overwrite) {}
  Status flush();
  Status failed() const;

  std::string path_;
  std::string temporary_;
  bool overwrite_;
  int descriptor_ = -1;
  std::string text_;
};

}  // namespace millstream::exec
