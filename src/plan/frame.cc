#include "plan/frame.h"

namespace millstream::plan {
namespace {

std::string quoted(const std::string& text, char quote) {
  std::string result(1, quote);
  for (char c : text) {
    if (c == quote) result += quote;
    result += c;
  }
  return result + quote;
}

// Items on lines of their own where one may end in a comment.
std::string joined(const std::vector<std::string>& items) {
  std::string result;
  for (const std::string& item : items) {
    if (!result.empty()) result += result.find("--") == std::string::npos ? ", " : "\n, ";
    result += item;
  }
  return result;
}

const char* join_text(JoinKind kind) {
  switch (kind) {
    case JoinKind::kInner:
      return "JOIN";
    case JoinKind::kLeft:
      return "LEFT JOIN";
    case JoinKind::kRight:
      return "RIGHT JOIN";
    case JoinKind::kFull:
      return "FULL JOIN";
    case JoinKind::kSemi:
      return "SEMI JOIN";
    case JoinKind::kAnti:
      return "ANTI JOIN";
  }
  return "JOIN";
}

// A line of its own behind what may end in a comment.
std::string closed(const std::string& text) {
  return text + (text.find("--") == std::string::npos ? ")" : "\n)");
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string result;
  for (const std::string& name : names) {
    if (!result.empty()) result += ", ";
    result += quoted(name, '"');
  }
  return result;
}

}  // namespace

Frame scan(const std::vector<std::string>& files) {
  Frame frame;
  for (const std::string& file : files) {
    if (!frame.input_.empty()) frame.input_ += ", ";
    frame.input_ += quoted(file, '\'');
  }
  if (files.size() != 1) frame.input_ = "[" + frame.input_ + "]";
  return frame;
}

// The frame so far as a table, so that names mean the columns that it has.
Frame Frame::nested() const {
  Frame frame;
  frame.input_ = "(\n" + sql() + "\n)";
  return frame;
}

// A filter after a filter, and a filter below a selection, go into one SELECT.
Frame Frame::filter(const std::string& condition) const {
  Frame frame = selection_.empty() && tail_.empty() ? *this : nested();
  const std::string part = closed("(" + condition);
  frame.condition_ = frame.condition_.empty() ? part : frame.condition_ + "\n  AND " + part;
  return frame;
}

Frame Frame::select(const std::vector<std::string>& items) const {
  Frame frame = selection_.empty() && tail_.empty() ? *this : nested();
  frame.selection_ = joined(items);
  return frame;
}

Frame Frame::with_columns(const std::vector<std::string>& items) const {
  return select({"*", joined(items)});
}

Frame Frame::drop(const std::vector<std::string>& columns) const {
  return select({"* EXCLUDE (" + quoted_list(columns) + ")"});
}

Frame Frame::as(const std::string& name) const {
  Frame frame = is_table() && !joins_ ? *this : nested();
  frame.input_ += " AS " + quoted(name, '"');
  return frame;
}

std::string Frame::table() const {
  return is_table() ? input_ : nested().input_;
}

Frame Frame::joined_with(const Frame& other, JoinKind kind, const std::string& condition) const {
  Frame frame;
  frame.input_ = table() + "\n" + join_text(kind) + " " + (other.joins_ ? other.nested() : other).table() +
                 " " + condition;
  frame.joins_ = true;
  return frame;
}

Frame Frame::join(const Frame& other, const std::string& on, JoinKind kind) const {
  return joined_with(other, kind, "ON " + closed("(" + on));
}

Frame Frame::join_using(const Frame& other, const std::vector<std::string>& columns, JoinKind kind) const {
  return joined_with(other, kind, "USING (" + quoted_list(columns) + ")");
}

Frame Frame::group_by(const std::vector<std::string>& keys,
                      const std::vector<std::string>& aggregates) const {
  std::vector<std::string> items = keys;
  items.insert(items.end(), aggregates.begin(), aggregates.end());
  Frame frame = select(items);
  for (size_t i = 0; i < keys.size(); ++i)
    frame.tail_ += (i == 0 ? "\nGROUP BY " : ", ") + std::to_string(i + 1);
  // Nothing more goes into this SELECT.
  return keys.empty() ? frame.nested() : frame;
}

Frame Frame::distinct() const {
  Frame frame = nested();
  frame.selection_ = "DISTINCT *";
  return frame;
}

Frame Frame::order_by(const std::vector<std::string>& items) const {
  Frame frame = limited_ ? nested() : *this;
  frame.tail_ += "\nORDER BY " + joined(items);
  frame.limited_ = true;
  return frame;
}

Frame Frame::limit(int64_t rows, int64_t offset) const {
  Frame frame = tail_.find("\nLIMIT ") == std::string::npos ? *this : nested();
  frame.tail_ += "\nLIMIT " + std::to_string(rows);
  if (offset > 0) frame.tail_ += " OFFSET " + std::to_string(offset);
  frame.limited_ = true;
  return frame;
}

Frame Frame::union_all(const Frame& other) const {
  Frame frame;
  frame.input_ = "(\n(" + sql() + "\n)\nUNION ALL\n(" + other.sql() + "\n)\n)";
  return frame;
}

std::string Frame::sql() const {
  std::string result = "SELECT " + (selection_.empty() ? "*" : selection_) + "\nFROM " + input_;
  if (!condition_.empty()) result += "\nWHERE " + condition_;
  return result + tail_;
}

}  // namespace millstream::plan
