#include "features/fitted_json.h"

#include <set>

#include <nlohmann/json.hpp>

#include "base/nearest_name.h"
#include "sql/binder.h"

namespace millstream::features {

Result<std::string> fitted_to_json(const Fitted& fitted) {
  nlohmann::ordered_json json;
  json["input"] = nlohmann::ordered_json::array();
  // The target is an input of training, not of the features.
  std::set<int> read;
  for (const FeatureColumn& column : fitted.columns)
    for (int index : expr::columns_read(*column.expression)) read.insert(index);
  for (int index : read) {
    const auto& field = fitted.input->field(index);
    json["input"].push_back({{"name", field->name()}, {"type", field->type()->ToString()}});
  }
  json["columns"] = nlohmann::ordered_json::array();
  for (const FeatureColumn& column : fitted.columns) {
    json["columns"].push_back({{"name", column.name}, {"sql", column.expression->to_sql()}});
    if (column.embedding_width == 0) continue;
    json["columns"].back()["categories"] = column.categories;
    json["columns"].back()["embedding"] = column.embedding_width;
  }
  json["values"] = nlohmann::ordered_json::array();
  for (const FittedValue& value : fitted.values) {
    json["values"].push_back(
        {{"column", value.column}, {"step", value.step}, {"name", value.name}, {"value", value.value}});
  }
  try {
    return json.dump(2);
  } catch (const nlohmann::json::exception& error) {
    return usage_error("a column's name is not UTF-8: {}", error.what());
  }
}

Result<Fitted> fitted_from_json(const std::string& text, const std::shared_ptr<arrow::Schema>& input) {
  Fitted fitted;
  fitted.input = input;
  struct Described {
    std::string name, sql;
    int64_t categories = 0, width = 0;
  };
  std::vector<Described> columns;
  try {
    const auto json = nlohmann::json::parse(text);
    for (const auto& field : json.at("input")) {
      const auto name = field.at("name").get<std::string>();
      if (input->GetFieldIndex(name) < 0) {
        return make_error(
            ErrorCategory::kData,
            fmt::format("the features need the column '{}' ({}), which the input does "
                        "not have{}",
                        name, field.at("type").get<std::string>(), name_hint(name, input->field_names())));
      }
    }
    for (const auto& column : json.at("columns")) {
      Described described{column.at("name").get<std::string>(), column.at("sql").get<std::string>()};
      if (column.contains("embedding")) {
        described.categories = column.at("categories").get<int64_t>();
        described.width = column.at("embedding").get<int64_t>();
        if (described.categories < 1 || described.categories > INT32_MAX || described.width < 1 ||
            described.width > 4096)
          return make_error(
              ErrorCategory::kData,
              fmt::format("the fitted features can't be read: the embedding of '{}' is {} by {}",
                          described.name, described.categories, described.width));
      }
      columns.push_back(std::move(described));
    }
    for (const auto& value : json.at("values")) {
      fitted.values.push_back({value.at("column").get<std::string>(), value.at("step").get<std::string>(),
                               value.at("name").get<std::string>(), value.at("value").get<double>()});
    }
  } catch (const nlohmann::json::exception& error) {
    return make_error(ErrorCategory::kData,
                      fmt::format("the fitted features can't be read: {}", error.what()));
  }
  for (auto& [name, sql, categories, width] : columns) {
    MILLSTREAM_ASSIGN(auto expression, sql::bind_text(sql, input, fmt::format("feature '{}'", name)));
    if (expression->type->id() != arrow::Type::DOUBLE) {
      MILLSTREAM_ASSIGN(expression, expr::make_cast(expression, arrow::float64()));
    }
    fitted.columns.push_back({std::move(name), std::move(expression), categories, width});
  }
  return fitted;
}

}  // namespace millstream::features
