#pragma once
// What the catalog needs of a file, whatever its format. Internal to `exec`.

#include <memory>
#include <string>
#include <vector>

#include <sys/stat.h>

#include "exec/schema_union.h"
#include "plan/catalog.h"

namespace millstream::exec {

struct FileEntryPoint {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t bytes = 0;
};

/// A column that a reader gives: `column` of the file converted to the field's type, or nulls where it is -1.
struct ReadColumn {
  int column = -1;
  std::shared_ptr<arrow::Field> field;
};

/// An open file descriptor, and what the file was when it was opened.
class FileHandle {
 public:
  /// Errors (kFile): missing, a folder, not readable.
  static Result<FileHandle> open(const std::string& path);
  FileHandle(FileHandle&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), info_(other.info_) {}
  FileHandle& operator=(FileHandle&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    info_ = other.info_;
    return *this;
  }
  ~FileHandle();
  int descriptor() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }
  const struct stat& info() const { return info_; }
  int64_t size() const { return info_.st_size; }
  /// Reads up to `size` bytes at `offset`; fewer only at the end of the file.
  Result<int64_t> read_at(const std::string& path, int64_t offset, int64_t size, void* out) const;

 private:
  FileHandle() = default;
  int descriptor_ = -1;
  struct stat info_ {};
};

/// An error that says so when the file is no longer the one that `before` described.
Status check_unchanged(const std::string& path, const struct stat& before, const struct stat& now);
bool same_file(const struct stat& a, const struct stat& b);

/// Immutable once open; all of it may be used by several threads.
class DataFile {
 public:
  virtual ~DataFile() = default;
  virtual plan::FileFormat format() const = 0;
  virtual const std::vector<FileColumn>& columns() const = 0;
  virtual const std::vector<FileEntryPoint>& entry_points() const = 0;
  virtual int64_t rows() const = 0;
  /// Bytes that reading the column of an entry point costs.
  virtual int64_t column_bytes(int entry_point, int column) const = 0;
  /// What the file claims of a column of an entry point, in the column's canonical type.
  virtual plan::ColumnClaims claims(int entry_point, int column) const {
    static_cast<void>(entry_point), static_cast<void>(column);
    return {};
  }
  /// The same of pages, and of bloom filters: see plan::SourceTable.
  virtual std::vector<plan::PageClaims> page_claims(int entry_point, int column) const {
    static_cast<void>(entry_point), static_cast<void>(column);
    return {};
  }
  virtual bool may_hold(int entry_point, int column,
                        const std::vector<std::shared_ptr<arrow::Scalar>>& values) const {
    static_cast<void>(entry_point), static_cast<void>(column), static_cast<void>(values);
    return true;
  }
  virtual const struct stat& info() const = 0;
  /// Digest of the content that identifies it: a Parquet file's footer, all of a CSV file.
  virtual const std::string& content_digest() const = 0;
  /// `file_number`: of the file in its table, for the positions of errors.
  virtual Result<std::unique_ptr<plan::SourceTable::Reader>> read(int entry_point,
                                                                  std::vector<ReadColumn> columns,
                                                                  int file_number) const = 0;
};

Result<std::shared_ptr<const DataFile>> open_parquet_file(const std::string& path);
Result<std::shared_ptr<const DataFile>> open_csv_file(const std::string& path,
                                                      const plan::CsvOptions& options);

}  // namespace millstream::exec
