#pragma once
// One schema for files that differ (design, section 4): columns are matched by name, whatever its case; a
// missing one is null; types meet in the narrowest type that holds both. And the conversion of a file's
// column to that type.

#include <memory>
#include <string>
#include <vector>

#include <arrow/api.h>

#include "base/status.h"
#include "expr/expression.h"

namespace millstream::exec {

/// expr::canonical_type() of a stored type, or the type itself where the language has none: such a column can
/// be carried, and is an error where an expression uses it.
expr::TypePtr canonical_or_stored(const expr::TypePtr& stored);

/// The type of a column that is `a` in one file and `b` in another, both canonical; null where there is none.
/// Stricter than what expressions promote: a file of dates and one of numbers are a mistake.
expr::TypePtr united_type(const expr::TypePtr& a, const expr::TypePtr& b);

struct FileColumn {
  std::string name;
  expr::TypePtr type;    ///< canonical
  bool nullable = true;  ///< false: the file says that it holds no NULL
  bool text = false;     ///< read from text (CSV): any two types meet at least in utf8
  /// Of a column of text: its first value that is no number, and where it stands.
  std::string not_a_number;
};

struct FileSchema {
  std::string path;  ///< for messages
  std::vector<FileColumn> columns;
};

struct UnitedSchema {
  std::shared_ptr<arrow::Schema> schema;
  /// [file][field] -> the column in that file, -1 where it is missing.
  std::vector<std::vector<int>> file_columns;
  /// What the user should know: names that differ only in case, types that were widened.
  std::vector<std::string> notices;
};

/// Fields come in order of their first appearance. Errors (kData) name the column, both types and both files.
Result<UnitedSchema> unite_schemas(const std::vector<FileSchema>& files);

/// Gives columns of one file names that are unique whatever their case: a second "a" is "a_1".
void make_names_unique(std::vector<FileColumn>& columns);

/// Converts arrays of a stored type to a canonical type that united_type() led to.
class ColumnCast {
 public:
  ColumnCast() = default;
  ColumnCast(expr::TypePtr stored, expr::TypePtr target);
  /// Errors say which value does not fit; their position.row is the row's index in `array`.
  Result<std::shared_ptr<arrow::Array>> apply(std::shared_ptr<arrow::Array> array) const;

 private:
  Result<std::shared_ptr<arrow::Array>> convert(const std::shared_ptr<arrow::Array>& array) const;
  expr::TypePtr target_;
  bool identity_ = true;
};

}  // namespace millstream::exec
