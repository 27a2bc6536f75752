// Texts of a pipeline: for people, and as a key.

#include <algorithm>

#include "expr/type.h"
#include "plan/planner.h"

namespace millstream::plan {
namespace {

std::string quoted(const std::string& name) {
  std::string result = "\"";
  for (char c : name) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

std::string type_text(const arrow::Field& field) {
  return expr::sql_type_name(*field.type()) + (field.nullable() ? "" : " NOT NULL");
}

// Width in characters, so that names in any script line up.
size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Rows of cells as lines, each column as wide as its widest cell.
std::string table_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
  }
  std::string result;
  for (const auto& row : rows) {
    std::string line = "  ";
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

std::string plural(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string Pipeline::normal_form() const {
  std::string result = "select";
  for (size_t i = 0; i < outputs.size(); ++i) {
    result += fmt::format("{} {} as {} {}", i == 0 ? "" : ",", outputs[i]->to_sql(),
                          quoted(schema->field(static_cast<int>(i))->name()),
                          expr::sql_type_name(*outputs[i]->type));
  }
  result += "\nfrom";
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& field = table->schema()->field(columns[i]);
    result += fmt::format("{} {} {}", i == 0 ? "" : ",", quoted(field->name()),
                          expr::sql_type_name(*field->type()));
  }
  if (predicate != nullptr) result += "\nwhere " + predicate->to_sql();
  return result;
}

std::string explain_text(const Pipeline& pipeline) {
  std::string result = "Project\n";
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < pipeline.outputs.size(); ++i) {
    const auto& field = pipeline.schema->field(static_cast<int>(i));
    const expr::Expression& output = *pipeline.outputs[i];
    const bool same = output.kind == expr::Kind::kColumn && output.name == field->name();
    rows.push_back({field->name(), type_text(*field), same ? "" : output.to_sql()});
  }
  result += table_text(rows);
  if (pipeline.predicate != nullptr) result += "Filter\n  " + pipeline.predicate->to_sql() + "\n";

  const SourceTable& table = *pipeline.table;
  int64_t total_rows = 0;
  bool rows_known = true;
  for (const SourceFile& file : table.files()) {
    rows_known = rows_known && file.rows >= 0;
    total_rows += file.rows;
  }
  result += fmt::format("Scan {}, {}", plural(static_cast<int64_t>(table.files().size()), "file"),
                        plural(static_cast<int64_t>(table.entry_points().size()), "row group"));
  if (rows_known) result += ", " + plural(total_rows, "row");
  result +=
      fmt::format(", {} of {}\n", pipeline.columns.size(), plural(table.schema()->num_fields(), "column"));
  rows.clear();
  for (int column : pipeline.columns) {
    const auto& field = table.schema()->field(column);
    rows.push_back({field->name(), type_text(*field)});
  }
  result += table_text(rows);
  return result;
}

}  // namespace millstream::plan
