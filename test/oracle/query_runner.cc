// Runs queries for the oracle: query_runner FOLDER reads a JSON string, a query, from each line of standard input
// and answers with a line of JSON: {"names", "types", "rows"} with every value as text or null, or {"error", "category"}.
// Relative file names are relative to FOLDER.

#include <iostream>

#include <arrow/compute/initialize.h>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "exec/file_catalog.h"
#include "expr/type.h"
#include "query_run.h"

namespace millstream::test {
namespace {

using Json = nlohmann::json;

Result<Json> answer(const std::string& query, const std::string& folder) {
  auto catalog = exec::make_file_catalog(1);
  plan::QueryOptions options;
  options.base_directory = folder;
  MILLSTREAM_ASSIGN(auto planned, plan::plan_query(query, *catalog, options));
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
  std::shared_ptr<arrow::Schema> schema = planned->schema;
  if (streams(*planned)) {
    MILLSTREAM_ASSIGN(auto pipeline, plan::to_pipeline(planned));
    schema = pipeline.schema;
    MILLSTREAM_ASSIGN(batches, run_batches(pipeline, plan::kBlockRows));
  } else {
    MILLSTREAM_ASSIGN(batches, plan_batches(planned, plan::kBlockRows, 2, nullptr));
  }
  Json result;
  for (const auto& field : schema->fields()) {
    result["names"].push_back(field->name());
    result["types"].push_back(expr::sql_type_name(*field->type()));
  }
  result["rows"] = Json::array();
  for (const auto& batch : batches) {
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      Json values = Json::array();
      for (int column = 0; column < batch->num_columns(); ++column) {
        const arrow::Array& array = *batch->column(column);
        values.push_back(array.IsNull(row) ? Json(nullptr) : Json(value_text(array, row, false)));
      }
      result["rows"].push_back(std::move(values));
    }
  }
  return result;
}

}  // namespace
}  // namespace millstream::test

int main(int argc, char** argv) {
  using namespace millstream;
  if (argc != 2) {
    std::cerr << "usage: query_runner FOLDER\n";
    return 2;
  }
  set_log(false, true);
  if (const auto status = arrow::compute::Initialize(); !status.ok()) return 70;
  std::string line;
  while (std::getline(std::cin, line)) {
    auto result = test::answer(nlohmann::json::parse(line).get<std::string>(), argv[1]);
    nlohmann::json out;
    if (result.ok()) {
      out = std::move(result).ValueUnsafe();
    } else {
      out = {{"error", result.status().message()},
             {"category", error_category_name(error_category(result.status()))}};
    }
    std::cout << out.dump() << std::endl;
  }
  return 0;
}
