#include "golden_file.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <arrow/api.h>
#include <arrow/util/decimal.h>

#include "exec/parquet_writer.h"
#include "expr/type.h"

namespace millstream::test {
namespace {

std::string trim(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The cells of a line: '|' separates them, but not inside quotes.
std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> result(1);
  bool quoted = false;
  for (char c : line) {
    if (c == '\'') quoted = !quoted;
    if (c == '|' && !quoted) {
      result.emplace_back();
    } else {
      result.back() += c;
    }
  }
  for (std::string& cell : result) cell = trim(cell);
  return result;
}

std::string unquoted(const std::string& cell) {
  std::string result;
  for (size_t i = 1; i + 1 < cell.size(); ++i) {
    if (cell[i] == '\'') ++i;
    result += cell[i];
  }
  return result;
}

// Arrow's own parsers, so that the tables do not rest on what is being tested.
Result<std::shared_ptr<arrow::Scalar>> parse_value(const std::string& cell, const expr::TypePtr& type) {
  if (cell == "NULL") return arrow::MakeNullScalar(type);
  if (type->id() == arrow::Type::STRING) return arrow::MakeScalar(unquoted(cell));
  if (type->id() == arrow::Type::DECIMAL128) {
    const auto& decimal = static_cast<const arrow::Decimal128Type&>(*type);
    arrow::Decimal128 value;
    int32_t precision = 0;
    int32_t scale = 0;
    MILLSTREAM_TRY(arrow::Decimal128::FromString(cell, &value, &precision, &scale));
    MILLSTREAM_ASSIGN(value, value.Rescale(scale, decimal.scale()));
    return std::make_shared<arrow::Decimal128Scalar>(value, type);
  }
  if (type->id() == arrow::Type::TIMESTAMP &&
      !static_cast<const arrow::TimestampType&>(*type).timezone().empty()) {
    // Arrow wants a zone in the text; the corpus writes UTC without one.
    return arrow::Scalar::Parse(type, cell + "Z");
  }
  return arrow::Scalar::Parse(type, cell);
}

Status write_table(const std::string& path, int64_t rows_per_group, const std::vector<std::string>& lines) {
  if (lines.empty()) return usage_error("{}: a file of a table begins with the line of its columns", path);
  arrow::FieldVector fields;
  for (std::string column : cells(lines[0])) {
    const bool required = column.ends_with(" NOT NULL");
    if (required) column.resize(column.size() - 9);
    const size_t space = column.find(' ');
    if (space == std::string::npos) return usage_error("{}: '{}' is no column with its type", path, column);
    MILLSTREAM_ASSIGN(auto type, expr::parse_type(trim(column.substr(space))));
    fields.push_back(arrow::field(column.substr(0, space), std::move(type), !required));
  }
  auto schema = arrow::schema(fields);
  std::vector<std::unique_ptr<arrow::ArrayBuilder>> builders;
  for (const auto& field : fields) {
    MILLSTREAM_ASSIGN(auto builder, arrow::MakeBuilder(field->type()));
    builders.push_back(std::move(builder));
  }
  for (size_t row = 1; row < lines.size(); ++row) {
    const std::vector<std::string> values = cells(lines[row]);
    if (values.size() != fields.size())
      return usage_error("{}: '{}' has {} cells", path, lines[row], values.size());
    for (size_t i = 0; i < fields.size(); ++i) {
      auto value = parse_value(values[i], fields[i]->type());
      if (!value.ok()) return with_context(value.status(), path + ": " + lines[row]);
      MILLSTREAM_TRY(builders[i]->AppendScalar(**value));
    }
  }
  arrow::ArrayVector columns;
  for (auto& builder : builders) {
    MILLSTREAM_ASSIGN(auto column, builder->Finish());
    columns.push_back(std::move(column));
  }
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  MILLSTREAM_ASSIGN(auto writer,
                    exec::ParquetFileWriter::open(path, schema, {.row_group_rows = rows_per_group}));
  const auto rows = static_cast<int64_t>(lines.size()) - 1;
  MILLSTREAM_TRY(writer->write(*arrow::RecordBatch::Make(schema, rows, std::move(columns))));
  return writer->close();
}

Status write_text(const std::string& path, const std::vector<std::string>& lines) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  for (const std::string& line : lines) out << line << "\n";
  out.flush();
  return out ? Status::OK() : file_error("cannot write {}", path);
}

void drop_blank_end(std::vector<std::string>& lines) {
  while (!lines.empty() && trim(lines.back()).empty()) lines.pop_back();
}

}  // namespace

Result<GoldenFile> GoldenFile::load(const std::string& path, const std::string& folder) {
  std::ifstream in(path);
  if (!in) return file_error("cannot read {}", path);
  GoldenFile file;
  file.path = path;
  std::string table;
  int table_files = 0;
  std::string directive;  // whose block is being read
  std::string argument;
  std::vector<std::string> block;
  std::vector<std::string> comments;
  int line_number = 0;

  const auto finish_block = [&]() -> Status {
    if (directive == "file") {
      int64_t rows_per_group = 1000000;
      if (argument.starts_with("rows_per_group=")) rows_per_group = std::stoll(argument.substr(15));
      drop_blank_end(block);
      MILLSTREAM_TRY(
          write_table(fmt::format("{}/{}/{}.parquet", folder, table, table_files++), rows_per_group, block));
    } else if (directive == "csv") {
      drop_blank_end(block);
      MILLSTREAM_TRY(write_text(folder + "/" + argument, block));
    } else if (directive == "query") {
      drop_blank_end(block);
      for (size_t i = 0; i < block.size(); ++i) file.cases.back().query += (i > 0 ? "\n" : "") + block[i];
    } else if (!directive.empty() && directive != "table" && directive != "case") {
      drop_blank_end(block);
      file.cases.back().expected[directive] = block;
    }
    directive.clear();
    block.clear();
    return Status::OK();
  };

  std::string line;
  while (std::getline(in, line)) {
    ++line_number;
    if (file.cases.empty() && !line.starts_with("@case")) file.preamble_.push_back(line);
    if (line.starts_with("# ") || line == "#") {
      MILLSTREAM_TRY(finish_block());
      if (!file.cases.empty()) comments.push_back(line);
      continue;
    }
    if (!line.starts_with("@")) {
      if (!directive.empty()) block.push_back(line);
      continue;
    }
    MILLSTREAM_TRY(finish_block());
    const size_t space = line.find(' ');
    directive = line.substr(1, space == std::string::npos ? std::string::npos : space - 1);
    argument = space == std::string::npos ? "" : trim(line.substr(space));
    if (directive == "table") {
      table = argument;
      table_files = 0;
    } else if (directive == "case") {
      file.cases.push_back({.name = argument, .line = line_number});
      file.comments_.push_back(std::move(comments));
      comments.clear();
    } else if (directive != "file" && directive != "csv") {
      const bool known =
          directive == "query" || std::ranges::find(golden_sections(), directive) != golden_sections().end();
      if (!known || file.cases.empty())
        return usage_error("{}:{}: '{}' is out of place", path, line_number, line);
    }
  }
  MILLSTREAM_TRY(finish_block());
  return file;
}

Status GoldenFile::save() const {
  std::vector<std::string> lines = preamble_;
  drop_blank_end(lines);
  for (size_t i = 0; i < cases.size(); ++i) {
    const GoldenCase& test = cases[i];
    lines.emplace_back();
    lines.insert(lines.end(), comments_[i].begin(), comments_[i].end());
    lines.push_back("@case " + test.name);
    lines.emplace_back("@query");
    lines.push_back(test.query);
    for (const std::string& section : golden_sections()) {
      const auto expected = test.expected.find(section);
      if (expected == test.expected.end()) continue;
      lines.push_back("@" + section);
      lines.insert(lines.end(), expected->second.begin(), expected->second.end());
    }
  }
  std::ofstream out(path, std::ios::binary);
  for (const std::string& line : lines) out << line << "\n";
  out.flush();
  return out ? Status::OK() : file_error("cannot write {}", path);
}

}  // namespace millstream::test
