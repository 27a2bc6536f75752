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

// A filter after a filter, and a filter below a selection, go into one SELECT; else the frame so far becomes
// a subquery, so that names mean the columns that it has.
Frame Frame::filter(const std::string& condition) const {
  Frame frame = *this;
  if (!selection_.empty()) {
    frame = Frame();
    frame.input_ = "(\n" + sql() + "\n)";
  }
  // A line of its own: the condition may end in a comment.
  const std::string part = "(" + condition + (condition.find("--") == std::string::npos ? ")" : "\n)");
  frame.condition_ = frame.condition_.empty() ? part : frame.condition_ + "\n  AND " + part;
  return frame;
}

Frame Frame::select(const std::vector<std::string>& items) const {
  Frame frame = *this;
  if (!selection_.empty()) {
    frame = Frame();
    frame.input_ = "(\n" + sql() + "\n)";
  }
  frame.selection_ = joined(items);
  return frame;
}

Frame Frame::with_columns(const std::vector<std::string>& items) const {
  return select({"*", joined(items)});
}

Frame Frame::drop(const std::vector<std::string>& columns) const {
  std::string names;
  for (const std::string& column : columns) {
    if (!names.empty()) names += ", ";
    names += quoted(column, '"');
  }
  return select({"* EXCLUDE (" + names + ")"});
}

std::string Frame::sql() const {
  std::string result = "SELECT " + (selection_.empty() ? "*" : selection_) + "\nFROM " + input_;
  if (!condition_.empty()) result += "\nWHERE " + condition_;
  return result;
}

}  // namespace millstream::plan
