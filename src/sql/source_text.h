#pragma once
// The text of a query and the errors that point into it. Everything in `sql` keeps byte offsets; they become
// lines, columns and a caret here.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "expr/expression.h"

namespace millstream::sql {

class SourceText {
 public:
  /// `name` is what messages call the text: "recipe.toml, data.train", "query".
  SourceText(std::string name, std::string text);

  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }

  /// 1-based line and column of the byte at `offset`; columns count characters, not bytes.
  expr::QueryPosition position(size_t offset) const;

  /// The byte at a position that position() gave.
  size_t offset(const expr::QueryPosition& position) const;

  /// A query error at the byte `offset`:
  ///
  ///     NAME, line L, column C: message
  ///     the line of the query
  ///         ^
  ///
  /// Long lines are cut around the place.
  [[nodiscard]] Status error(size_t offset, std::string_view message) const;

  /// `status` placed at `offset`. An error that already has a place (it came from here) and one that is not
  /// about the query (a file that cannot be read) stay what they are.
  [[nodiscard]] Status place(const Status& status, size_t offset) const;

 private:
  std::string name_;
  std::string text_;
  std::vector<size_t> line_starts_;
};

}  // namespace millstream::sql
