#include "cli/result_table.h"

#include <algorithm>

#include "cli/progress_display.h"
#include "exec/value_text.h"
#include "expr/type.h"

namespace millstream::cli {
namespace {

constexpr size_t kWidestCell = 60;  // characters

// Control characters would break the table's lines.
std::string in_a_cell(std::string_view text) {
  std::string out;
  size_t characters = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0) != 0x80 && ++characters > kWidestCell) return out + "…";
    if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (byte < 0x20 || byte == 0x7F)
      out += fmt::format("\\x{:02X}", byte);
    else
      out += c;
  }
  return out;
}

size_t characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string padded(const std::string& text, size_t width, bool right) {
  const std::string space(width - std::min(width, characters(text)), ' ');
  return right ? space + text : text + space;
}

std::string repeated(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

}  // namespace

ResultTable::ResultTable(const std::shared_ptr<arrow::Schema>& schema, int64_t rows)
    : half_(std::max<int64_t>(rows / 2, 1)) {
  for (const auto& field : schema->fields()) {
    names_.push_back(in_a_cell(field->name()));
    types_.push_back(in_a_cell(expr::sql_type_name(*field->type())));
    right_.push_back(expr::is_numeric_type(*field->type()));
  }
}

void ResultTable::add(const arrow::RecordBatch& batch) {
  const int64_t count = batch.num_rows();
  const auto row_text = [&](int64_t row) {
    Row cells;
    for (int column = 0; column < batch.num_columns(); ++column) {
      std::string value;
      exec::append_value_text(value, *batch.column(column), row);
      cells.push_back(in_a_cell(value));
    }
    return cells;
  };
  for (int64_t row = 0; row < count; ++row) {
    if (static_cast<int64_t>(first_.size()) < half_) {
      first_.push_back(row_text(row));
      continue;
    }
    row = std::max(row, count - half_);
    last_.push_back(row_text(row));
    if (static_cast<int64_t>(last_.size()) > half_) last_.pop_front();
  }
  rows_ += count;
}

std::string ResultTable::text(int width) const {
  const size_t columns = names_.size();
  std::vector<size_t> widths(columns);
  for (size_t i = 0; i < columns; ++i) {
    widths[i] = std::max({characters(names_[i]), characters(types_[i]), size_t{1}});
    for (const Row& row : first_) widths[i] = std::max(widths[i], characters(row[i]));
    for (const Row& row : last_) widths[i] = std::max(widths[i], characters(row[i]));
  }
  const auto shown_rows = static_cast<int64_t>(first_.size() + last_.size());
  const bool cut_rows = shown_rows < rows_;
  if (cut_rows) {
    for (size_t& w : widths) w = std::max(w, size_t{3});
  }

  // Columns from both ends while they fit; the gap is a column of dots.
  std::vector<size_t> shown;
  size_t total = 1;
  for (size_t i = 0; i < columns; ++i) total += widths[i] + 3;
  const bool cut_columns = width > 0 && total > static_cast<size_t>(width) && columns > 2;
  if (!cut_columns) {
    for (size_t i = 0; i < columns; ++i) shown.push_back(i);
  } else {
    size_t used = 1 + 4, from_left = 0, from_right = 0;
    while (from_left + from_right < columns) {
      const bool left = from_left <= from_right;
      const size_t next = left ? from_left : columns - 1 - from_right;
      if (from_left + from_right >= 2 && used + widths[next] + 3 > static_cast<size_t>(width)) break;
      used += widths[next] + 3;
      ++(left ? from_left : from_right);
    }
    for (size_t i = 0; i < from_left; ++i) shown.push_back(i);
    shown.push_back(columns);  // the gap
    for (size_t i = columns - from_right; i < columns; ++i) shown.push_back(i);
  }

  std::string out;
  const auto border = [&](std::string_view left, std::string_view middle, std::string_view right) {
    out += left;
    for (size_t k = 0; k < shown.size(); ++k) {
      if (k > 0) out += middle;
      out += repeated("─", (shown[k] == columns ? 1 : widths[shown[k]]) + 2);
    }
    out += right;
    out += '\n';
  };
  const auto line = [&](const auto& cell) {
    out += "│";
    for (const size_t i : shown) {
      out += i == columns ? " … " : " " + padded(cell(i), widths[i], right_[i]) + " ";
      out += "│";
    }
    out += '\n';
  };
  border("┌", "┬", "┐");
  line([&](size_t i) { return names_[i]; });
  line([&](size_t i) { return types_[i]; });
  border("├", "┼", "┤");
  for (const Row& row : first_) line([&](size_t i) { return row[i]; });
  if (cut_rows) line([&](size_t) { return std::string("···"); });
  for (const Row& row : last_) line([&](size_t i) { return row[i]; });
  border("└", "┴", "┘");
  out += fmt::format("  {} row{}", format_count(rows_), rows_ == 1 ? "" : "s");
  if (cut_rows) out += fmt::format(", {} shown", shown_rows);
  if (cut_columns) out += fmt::format("; {} columns, {} shown", columns, shown.size() - 1);
  return out + "\n";
}

}  // namespace millstream::cli
