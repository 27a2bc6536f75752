#pragma once
// How `plan` and everything above sees files: as tables of blocks. `exec` implements it, so that nothing else
// knows Parquet or CSV.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "expr/bounds.h"
#include "expr/expression.h"

namespace millstream::plan {

enum class FileFormat : uint8_t { kParquet, kCsv };

/// One file of a table.
struct SourceFile {
  std::string path;  ///< as it is opened
  std::string name;  ///< the path under the glob's root: names the file whatever folder the data moved to
  FileFormat format = FileFormat::kParquet;
  int64_t bytes = 0;
  int64_t rows = -1;        ///< -1 where only reading tells (CSV)
  std::string fingerprint;  ///< of path, size, mtime, inode and footer (CSV: content hash): equal: unchanged
};

/// Where reading can begin without waste: a Parquet row group, or a stretch of a CSV file.
struct EntryPoint {
  int file = 0;
  int row_group = 0;      ///< within the file; for CSV the stretch's number
  int64_t first_row = 0;  ///< in the file; -1 where only reading tells
  int64_t rows = -1;
  int64_t bytes = 0;    ///< compressed bytes of the columns of the table (of the read ones: see column_bytes)
  int first_block = 0;  ///< its blocks are [first_block, first_block + num_blocks)
  int num_blocks = 0;
};

/// A slice of an entry point of at most kBlockRows rows: the unit of morsels, statistics and caching. Block
/// boundaries depend on the files alone.
inline constexpr int64_t kBlockRows = 64 * 1024;

/// What CSV files are like, where it is not found out.
struct CsvOptions {
  char delimiter = 0;  ///< 0: found out
  int quote = '"';     ///< -1: there are no quotes
  bool header = true;
  std::vector<std::string> names;  ///< of the first columns, instead of the header's or column0, …
  std::vector<std::string> null_texts = {""};  ///< texts that are NULL
  std::vector<std::string> text_columns;  ///< columns whose values stay texts, whatever the case of names
  bool all_text = false;
  bool operator==(const CsvOptions&) const = default;
  /// The options as a text, which names them; empty: none are set.
  std::string key() const;
};

/// What FROM names.
struct TableReference {
  std::vector<std::string>
      globs;  ///< files or globs, in the order given; matches of a glob are sorted by name
  std::string
      base_directory;  ///< relative globs are relative to it (a recipe's folder, the working directory)
  expr::QueryPosition position;                  ///< of the first name in the query, for errors
  std::optional<CsvOptions> csv = std::nullopt;  ///< the files are CSV, whatever they are called
};

/// What is known of a column's values in an entry point before they are read: what its file claims.
struct ColumnClaims {
  expr::Bounds bounds;
  int64_t null_count = -1;  ///< -1: not claimed
};

/// What a file claims of a stretch of an entry point's rows (a page): from `first_row` to the next one's.
struct PageClaims {
  int64_t first_row = 0;  ///< in the entry point
  ColumnClaims claims;
};

/// What a reader did. A page is the unit of decompression of one column.
struct ReadCounts {
  int64_t pages_read = 0;     ///< decompressed
  int64_t pages_skipped = 0;  ///< passed over, or never come to
  int64_t bytes_read = 0;     ///< from the file
};

/// One table of one or more files, united by column name (design, section 4).
class SourceTable {
 public:
  virtual ~SourceTable() = default;
  /// The unified schema in canonical types; a field is not nullable only where every file says so (required
  /// column, or null counts of zero in every row group).
  virtual const std::shared_ptr<arrow::Schema>& schema() const = 0;
  virtual const std::vector<SourceFile>& files() const = 0;
  virtual const std::vector<EntryPoint>& entry_points() const = 0;
  /// Compressed bytes of the given columns in an entry point, for dealing work.
  virtual int64_t column_bytes(int entry_point, const std::vector<int>& columns) const = 0;
  /// The type that a column has in a file, before the files were united; null where the file lacks it.
  virtual expr::TypePtr type_in_file(int file, int column) const {
    static_cast<void>(file);
    return schema()->field(column)->type();
  }
  /// Only what a footer claims honestly, in the column's type; nothing where it says nothing. Thread-safe.
  virtual ColumnClaims claims(int entry_point, int column) const {
    static_cast<void>(entry_point), static_cast<void>(column);
    return {};
  }

  /// The same of stretches of the entry point's rows, first_row ascending from 0; empty where the file has no page
  /// index that can be understood. Reads the file; thread-safe.
  virtual std::vector<PageClaims> page_claims(int entry_point, int column) const {
    static_cast<void>(entry_point), static_cast<void>(column);
    return {};
  }
  /// False: the file's bloom filter claims that the column has none of `values` (of its type, not NULL) in the entry
  /// point. Reads the file; thread-safe.
  virtual bool may_hold(int entry_point, int column,
                        const std::vector<std::shared_ptr<arrow::Scalar>>& values) const {
    static_cast<void>(entry_point), static_cast<void>(column), static_cast<void>(values);
    return true;
  }

  /// Reads an entry point block after block. `columns` are indices into schema(); batches have just these, in
  /// that order. Each batch is one whole block. Thread-safe; the reader is used by one thread at a time.
  /// A reader is asked for whole blocks with next(), or column by column with next_block() and read_columns(), so
  /// that what a filter drops need not be decoded; not both ways.
  class Reader {
   public:
    virtual ~Reader() = default;
    /// The next block's rows, null at the end. Errors name file, row group and column.
    virtual Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
    /// Steps to the next block; its number of rows, -1 at the end.
    virtual Result<int64_t> next_block();
    /// Of the block, the columns at `positions` among those given to read(), each asked for at most once a block;
    /// all rows where `rows` is null, else those, ascending.
    virtual Result<std::shared_ptr<arrow::RecordBatch>> read_columns(const std::vector<int>& positions,
                                                                     const std::vector<int32_t>* rows);
    /// From now on read_columns() may give the columns of text at `positions` as dictionaries, with 32-bit numbers.
    virtual void keep_dictionaries(const std::vector<int>& positions) { static_cast<void>(positions); }
    /// What was read so far; final once next() or next_block() came to the end.
    virtual ReadCounts counts() const { return {}; }

   private:
    std::shared_ptr<arrow::RecordBatch> block_;
  };
  virtual Result<std::unique_ptr<Reader>> read(int entry_point, const std::vector<int>& columns) const = 0;

  /// Of a column that is text: its first value that is no number and where it stands, for messages. Empty where
  /// the format says the type (Parquet).
  virtual std::string not_a_number(int column) const {
    static_cast<void>(column);
    return {};
  }
};

/// Opens tables. Every rank opens the same ones; `exec` checks that all saw the same files.
class Catalog {
 public:
  virtual ~Catalog() = default;
  /// Errors: missing file, empty glob, unreadable footer, columns that can't be unified (names both files).
  virtual Result<std::shared_ptr<const SourceTable>> open(const TableReference& reference) = 0;
};

}  // namespace millstream::plan
