#include "sql/source_text.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace millstream::sql {
namespace {

// Wider lines are cut in messages: a query may well be one line of thousands of characters.
constexpr size_t kMaxShown = 120;
constexpr size_t kShownBefore = 70;

bool is_continuation_byte(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// The line as characters, each a slice of its bytes.
std::vector<std::string_view> characters(std::string_view line) {
  std::vector<std::string_view> result;
  for (size_t begin = 0; begin < line.size();) {
    size_t end = begin + 1;
    while (end < line.size() && is_continuation_byte(line[end])) ++end;
    result.push_back(line.substr(begin, end - begin));
    begin = end;
  }
  return result;
}

}  // namespace

SourceText::SourceText(std::string name, std::string text) : name_(std::move(name)), text_(std::move(text)) {
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
}

expr::QueryPosition SourceText::position(size_t offset) const {
  offset = std::min(offset, text_.size());
  const auto line = std::prev(std::ranges::upper_bound(line_starts_, offset));
  expr::QueryPosition result{static_cast<int>(line - line_starts_.begin()) + 1, 1};
  for (size_t i = *line; i < offset; ++i) {
    if (!is_continuation_byte(text_[i])) ++result.column;
  }
  return result;
}

size_t SourceText::offset(const expr::QueryPosition& position) const {
  if (position.line < 1 || position.line > static_cast<int>(line_starts_.size())) return 0;
  size_t at = line_starts_[static_cast<size_t>(position.line) - 1];
  for (int column = 1; column < position.column && at < text_.size(); ++column) {
    ++at;
    while (at < text_.size() && is_continuation_byte(text_[at])) ++at;
  }
  return at;
}

Status SourceText::error(size_t offset, std::string_view message) const {
  offset = std::min(offset, text_.size());
  // An error at the end of the text points behind the last thing written, not at a blank line below it.
  if (text_.find_first_not_of(" \t\r\n", offset) == std::string::npos) {
    const size_t last = text_.find_last_not_of(" \t\r\n");
    offset = std::min(offset, last == std::string::npos ? 0 : last + 1);
  }
  const expr::QueryPosition where = position(offset);
  const size_t begin = line_starts_[where.line - 1];
  size_t end = text_.find('\n', offset);
  if (end == std::string::npos) end = text_.size();
  if (end > begin && text_[end - 1] == '\r') --end;

  const std::vector<std::string_view> line = characters(std::string_view(text_).substr(begin, end - begin));
  const size_t column = static_cast<size_t>(where.column) - 1;
  size_t first = 0;
  size_t last = line.size();
  if (line.size() > kMaxShown) {
    first = column > kShownBefore ? column - kShownBefore : 0;
    last = std::min(line.size(), first + kMaxShown);
  }
  std::string shown = first > 0 ? "…" : "";
  std::string caret = first > 0 ? " " : "";
  for (size_t i = first; i < last; ++i) {
    shown += line[i];
    if (i < column) caret += line[i] == "\t" ? '\t' : ' ';
  }
  if (last < line.size()) shown += "…";
  return query_error("{}, line {}, column {}: {}\n{}\n{}^", name_, where.line, where.column, message, shown,
                     caret);
}

Status SourceText::place(const Status& status, size_t offset) const {
  if (status.ok() || error_category(status) != ErrorCategory::kQuery) return status;
  if (status.message().find("\n") != std::string::npos) return status;
  return error(offset, status.message());
}

}  // namespace millstream::sql
