#pragma once
// What the tests of `exec` share: temporary folders, small Parquet and CSV files, whole tables read back.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <gtest/gtest.h>
#include <parquet/arrow/writer.h>

#include "exec/file_catalog.h"

#define EXPECT_OK(expression)                                                   \
  do {                                                                          \
    const ::arrow::Status status_of = ::arrow::ToStatus(expression);            \
    EXPECT_TRUE(status_of.ok()) << #expression << ": " << status_of.ToString(); \
  } while (false)
#define ASSERT_OK(expression)                                                   \
  do {                                                                          \
    const ::arrow::Status status_of = ::arrow::ToStatus(expression);            \
    ASSERT_TRUE(status_of.ok()) << #expression << ": " << status_of.ToString(); \
  } while (false)

namespace millstream::exec {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "millstream_exec_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const {
    const std::string whole = path_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    return whole;
  }
  std::string write_text(const std::string& name, const std::string& text) const {
    std::ofstream(file(name), std::ios::binary) << text;
    return file(name);
  }

 private:
  std::string path_;
};

/// A file of the given columns; row groups of `row_group_rows` rows.
inline std::string write_parquet(const TemporaryFolder& folder, const std::string& name,
                                 const arrow::FieldVector& fields, const arrow::ArrayVector& columns,
                                 int64_t row_group_rows = 1 << 20, bool statistics = true) {
  const std::string path = folder.file(name);
  auto table = arrow::Table::Make(arrow::schema(fields), columns, columns.empty() ? 0 : columns[0]->length());
  auto out = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  parquet::WriterProperties::Builder properties;
  if (!statistics) properties.disable_statistics();
  auto arrow_properties = parquet::ArrowWriterProperties::Builder().store_schema()->build();
  EXPECT_OK(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), out, row_group_rows,
                                       properties.build(), arrow_properties));
  EXPECT_OK(out->Close());
  return path;
}

template <class Builder, class T>
std::shared_ptr<arrow::Array> array_of(const std::shared_ptr<arrow::DataType>& type,
                                       const std::vector<std::optional<T>>& values) {
  Builder builder(type, arrow::default_memory_pool());
  for (const auto& value : values) EXPECT_OK(value ? builder.Append(*value) : builder.AppendNull());
  return builder.Finish().ValueOrDie();
}
inline std::shared_ptr<arrow::Array> int64s(const std::vector<std::optional<int64_t>>& values) {
  return array_of<arrow::Int64Builder, int64_t>(arrow::int64(), values);
}
inline std::shared_ptr<arrow::Array> int32s(const std::vector<std::optional<int32_t>>& values) {
  return array_of<arrow::Int32Builder, int32_t>(arrow::int32(), values);
}
inline std::shared_ptr<arrow::Array> doubles(const std::vector<std::optional<double>>& values) {
  return array_of<arrow::DoubleBuilder, double>(arrow::float64(), values);
}
inline std::shared_ptr<arrow::Array> strings(const std::vector<std::optional<std::string>>& values) {
  return array_of<arrow::StringBuilder, std::string>(arrow::utf8(), values);
}

inline Result<std::shared_ptr<const plan::SourceTable>> open_table(const std::vector<std::string>& globs,
                                                                   const std::string& base = {}) {
  auto catalog = make_file_catalog(2);
  return catalog->open({globs, base, {}});
}

/// All rows of the given columns (all columns when empty), entry point after entry point.
inline Result<std::shared_ptr<arrow::Table>> read_all(const plan::SourceTable& table,
                                                      std::vector<int> columns = {}) {
  if (columns.empty()) {
    for (int i = 0; i < table.schema()->num_fields(); ++i) columns.push_back(i);
  }
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  arrow::FieldVector fields;
  for (int column : columns) fields.push_back(table.schema()->field(column));
  for (size_t e = 0; e < table.entry_points().size(); ++e) {
    const plan::EntryPoint& entry = table.entry_points()[e];
    MILLSTREAM_ASSIGN(auto reader, table.read(static_cast<int>(e), columns));
    int64_t rows = 0;
    int blocks = 0;
    while (true) {
      MILLSTREAM_ASSIGN(auto batch, reader->next());
      if (!batch) break;
      EXPECT_OK(batch->Validate());
      EXPECT_EQ(batch->num_rows(), std::min(plan::kBlockRows, entry.rows - rows));
      rows += batch->num_rows();
      ++blocks;
      batches.push_back(std::move(batch));
    }
    EXPECT_EQ(rows, entry.rows);
    EXPECT_EQ(blocks, entry.num_blocks);
  }
  return arrow::Table::FromRecordBatches(arrow::schema(fields), batches);
}

/// The folder of real data, empty where it is absent (tests that need it skip).
inline std::string data_folder() {
  const char* folder = std::getenv("MILLSTREAM_DATA");
  std::string path = folder ? folder : MILLSTREAM_SOURCE_DIR "/../shared/data";
  return std::filesystem::is_directory(path) ? path : std::string();
}

}  // namespace millstream::exec
