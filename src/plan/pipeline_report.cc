#include "plan/pipeline_report.h"

#include <algorithm>
#include <set>

#include "expr/type.h"
#include "plan/pruning.h"
#include "plan/rewrite.h"

namespace millstream::plan {
namespace {

// How the files' types of a column differ.
std::vector<FileTypeReport> file_types(const SourceTable& table, int column) {
  std::vector<FileTypeReport> types;
  for (size_t f = 0; f < table.files().size(); ++f) {
    const expr::TypePtr type = table.type_in_file(static_cast<int>(f), column);
    const std::string name = type ? expr::sql_type_name(*type) : "";
    const auto known = std::ranges::find(types, name, &FileTypeReport::type);
    if (known != types.end()) {
      ++known->files;
    } else {
      types.push_back({name, 1, table.files()[f].name});
    }
  }
  const bool same =
      types.size() == 1 && types[0].type == expr::sql_type_name(*table.schema()->field(column)->type());
  return same ? std::vector<FileTypeReport>() : types;
}

std::string type_text(const arrow::DataType& type, bool nullable) {
  return expr::sql_type_name(type) + (nullable ? "" : " NOT NULL");
}

std::string counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

size_t width(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

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
      if (widths[i] == 0) continue;
      line += row[i] + std::string(widths[i] - width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    result += line + "\n";
  }
  return result;
}

std::string file_types_text(const std::vector<FileTypeReport>& types) {
  std::string text;
  for (const FileTypeReport& type : types) {
    text +=
        fmt::format("{}{} in {} ({}{})", text.empty() ? "" : ", ", type.type.empty() ? "missing" : type.type,
                    counted(type.files, "file"), type.files > 1 ? "first " : "", type.first_file);
  }
  return text;
}

}  // namespace

PipelineReport report_pipeline(const Pipeline& pipeline, const ObservedBounds* observed) {
  const SourceTable& table = *pipeline.table;
  PipelineReport report;
  expr::BoundInference inference(observed ? observed->columns : claimed_bounds(pipeline));
  std::set<int> not_null;
  if (pipeline.predicate != nullptr) {
    report.filter = pipeline.predicate->to_sql();
    report.filter_can_fail = pipeline.predicate->can_fail;
    not_null = columns_not_null_where(*pipeline.predicate);
    inference.assume(*pipeline.predicate);
    report.filter_impossible = inference.impossible().has_value();
  }
  for (size_t i = 0; i < pipeline.outputs.size(); ++i) {
    const auto& field = pipeline.schema->field(static_cast<int>(i));
    const expr::Expression& output = *pipeline.outputs[i];
    const bool same = output.kind == expr::Kind::kColumn && output.name == field->name();
    expr::Bounds bounds = inference.infer(output);
    if (observed) bounds = expr::intersect_bounds(bounds, observed->outputs[i]);
    report.outputs.push_back(
        {field->name(), field->type(), field->nullable(), same ? "" : output.to_sql(), std::move(bounds)});
  }
  for (size_t i = 0; i < pipeline.columns.size(); ++i) {
    const auto& field = table.schema()->field(pipeline.columns[i]);
    ColumnReport column;
    column.name = field->name();
    column.type = field->type();
    column.nullable = field->nullable();
    column.nullable_filtered = field->nullable() && !not_null.contains(static_cast<int>(i));
    column.bounds = inference.column(static_cast<int>(i), *field->type());
    column.file_types = file_types(table, pipeline.columns[i]);
    report.columns.push_back(std::move(column));
  }
  for (int i = 0; i < table.schema()->num_fields(); ++i) {
    if (std::ranges::find(pipeline.columns, i) == pipeline.columns.end())
      report.columns_pruned.push_back(table.schema()->field(i)->name());
  }
  report.files = static_cast<int>(table.files().size());
  report.row_groups = static_cast<int>(table.entry_points().size());
  report.rows = 0;
  for (size_t e = 0; e < table.entry_points().size(); ++e) {
    const EntryPoint& entry = table.entry_points()[e];
    const int64_t bytes = table.column_bytes(static_cast<int>(e), pipeline.columns);
    report.rows = entry.rows < 0 || report.rows < 0 ? -1 : report.rows + entry.rows;
    report.bytes += bytes;
    if (!is_pruned(pipeline, static_cast<int>(e))) continue;
    ++report.row_groups_pruned;
    report.rows_pruned += entry.rows;
    report.bytes_pruned += bytes;
  }
  return report;
}

std::string report_text(const PipelineReport& report) {
  std::string text = "Project\n";
  std::vector<std::vector<std::string>> rows;
  for (const OutputReport& output : report.outputs) {
    rows.push_back({output.name, type_text(*output.type, output.nullable),
                    expr::bounds_text(output.bounds, output.type), output.expression});
  }
  text += table_text(rows);
  if (!report.filter.empty()) {
    text += "Filter\n  " + report.filter + "\n";
    if (report.filter_impossible) text += "  no row can pass\n";
    if (report.filter_can_fail) text += "  can fail on a value, so no row group is left out because of it\n";
  }
  text += fmt::format("Scan {}, {}", counted(report.files, "file"), counted(report.row_groups, "row group"));
  if (report.row_groups_pruned > 0) text += fmt::format(" ({} not read)", report.row_groups_pruned);
  if (report.rows >= 0) text += ", " + counted(report.rows, "row");
  if (report.rows_pruned > 0) text += fmt::format(" ({} not read)", report.rows_pruned);
  text += fmt::format(
      ", {} of {}\n", report.columns.size(),
      counted(static_cast<int64_t>(report.columns.size() + report.columns_pruned.size()), "column"));
  rows.clear();
  for (const ColumnReport& column : report.columns) {
    rows.push_back({column.name, type_text(*column.type, column.nullable_filtered),
                    expr::bounds_text(column.bounds, column.type), file_types_text(column.file_types)});
  }
  text += table_text(rows);
  if (!report.columns_pruned.empty())
    text += fmt::format("  not read: {}\n", fmt::join(report.columns_pruned, ", "));
  return text;
}

}  // namespace millstream::plan
