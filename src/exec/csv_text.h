#pragma once
// The text of CSV: records of fields in a stream of bytes, and the values that fields spell. Internal to
// `exec`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "exec/data_file.h"

namespace millstream::exec {

/// What a column of text can be, all of it: a set of bits. Every text is a string.
enum CsvType : uint8_t {
  kCsvBoolean = 1,
  kCsvInteger = 2,
  kCsvDouble = 4,
  kCsvDate = 8,
  kCsvTimestamp = 16,
  kCsvZoned = 32,  ///< an instant; without a zone in the text it is UTC's
  kCsvAll = 63,
};

// What DuckDB takes for a value of the type. Numbers and times may have spaces around them. Each returns false
// where the text is no such value.
bool parse_csv_boolean(std::string_view text, bool* out);     ///< true, t, yes, false, f, no in any case
bool parse_csv_integer(std::string_view text, int64_t* out);  ///< within 64 bits
bool parse_csv_double(std::string_view text, double* out);    ///< also inf, nan
bool parse_csv_date(std::string_view text, int32_t* days);    ///< 2024-02-29, 2024/2/29
bool parse_csv_timestamp(std::string_view text,
                         int64_t* microseconds);  ///< date, or date and time (T or space)
bool parse_csv_zoned(std::string_view text,
                     int64_t* microseconds);  ///< and an offset, "Z" or "+02:30", or none
/// The bits of `candidates` that `text` can be.
uint8_t csv_types_of(std::string_view text, uint8_t candidates);

/// Reads the records of a byte range of a file with a buffer that grows only for long records.
class CsvRecords {
 public:
  /// The record at `begin` is on line `line` (1-based). `digest`, where given, gets all bytes read.
  /// `quote` -1: there are none.
  CsvRecords(const FileHandle& handle, std::string path, char delimiter, int quote, int64_t begin,
             int64_t end, int64_t line, Digest* digest = nullptr);
  /// Fields of the next record, unquoted, valid until the next call; false at the end. Errors name the line.
  Result<bool> next(std::vector<std::string_view>& fields);
  /// Where the record that next() gave begins.
  int64_t offset() const { return record_offset_; }
  int64_t line() const { return record_line_; }
  /// True where it was a line without anything on it.
  bool blank() const { return blank_; }

 private:
  Result<bool> refill();

  const FileHandle& handle_;
  std::string path_;
  char delimiter_;
  int quote_;
  int64_t file_offset_;  // of the next byte to read
  int64_t end_;
  Digest* digest_;
  std::vector<char> buffer_;
  size_t begin_ = 0, size_ = 0;  // unread bytes are [begin_, size_)
  bool at_end_ = false;
  int64_t line_, record_line_ = 0, record_offset_ = 0;
  bool blank_ = false;
  struct Span {
    size_t begin, end;
    bool escaped;
  };
  std::vector<Span> spans_;
};

/// The delimiter among , ; tab | that makes the most regular table of the beginning of a file.
char sniff_csv_delimiter(std::string_view beginning, int quote, bool whole_file);

}  // namespace millstream::exec
