#include "train/bundle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/bytes.h"
#include "expr/type.h"
#include "plan/planner.h"
#include "train/run_directory.h"

namespace millstream::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "millstream-bundle";
constexpr std::string_view kOnNanNames[] = {"as_null", "error", "drop", "null"};  // in the order of OnNan
constexpr int64_t kMaxJsonBytes = int64_t{1} << 28;
constexpr int64_t kMaxWeightBytes = int64_t{1} << 40;

std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (char c : name) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

/// Names that are no UTF-8 don't throw.
std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

const char* on_null_name(features::OnNull on_null) {
  return on_null == features::OnNull::kDrop ? "drop" : "error";
}

Json to_json(const Bundle& bundle) {
  Json json;
  json["format"] = kFormat;
  // The lowest that can say it: older programs read what they can.
  const bool embedded = std::any_of(bundle.features.begin(), bundle.features.end(), [](const auto& spec) {
    return !spec.steps.empty() && spec.steps.back().name == "embedding";
  });
  const bool plain = bundle.base_directory.empty() && !embedded && bundle.model.kind == "mlp" &&
                     !bundle.model.batch_norm && bundle.model.dropout == 0;
  json["format_version"] = !bundle.tables.empty()                         ? 4
                           : !plain                                       ? 3
                           : bundle.loss == "mse" || bundle.loss == "mae" ? 1
                                                                          : 2;
  json["millstream"] = bundle.millstream_version;
  json["query"] = bundle.query;
  json["prediction_query"] = bundle.prediction_query;
  if (!bundle.base_directory.empty()) json["base_directory"] = bundle.base_directory;
  json["target"] = {{"column", bundle.target}, {"on_null", on_null_name(bundle.on_null_target)}};
  json["inputs"] = Json::array();
  for (const BundleInput& input : bundle.inputs)
    json["inputs"].push_back(
        {{"name", input.name}, {"type", input.type}, {"for_features", input.for_features}});
  json["features"] = Json::array();
  for (const features::FeatureSpec& spec : bundle.features) {
    Json steps = Json::array();
    for (const features::StepSpec& step : spec.steps) steps.push_back(features::step_text(step));
    json["features"].push_back(
        {{"columns", spec.columns}, {"steps", steps}, {"on_null", on_null_name(spec.on_null)}});
    if (spec.on_nan != features::OnNan::kSame)
      json["features"].back()["on_nan"] = kOnNanNames[static_cast<size_t>(spec.on_nan)];
  }
  json["fitted"] = Json::parse(bundle.fitted_json);
  json["model"] = {{"kind", bundle.model.kind},
                   {"hidden", bundle.model.hidden},
                   {"inputs", bundle.model_inputs},
                   {"precision", bundle.precision}};
  if (bundle.model.classes > 0) json["model"]["classes"] = bundle.model.classes;
  if (bundle.model.batch_norm) json["model"]["batch_norm"] = true;
  if (bundle.model.dropout > 0) json["model"]["dropout"] = bundle.model.dropout;
  if (bundle.model.kind == "dcn") json["model"]["cross_layers"] = bundle.model.cross_layers;
  json["training"] = {{"loss", bundle.loss},
                      {"seed", bundle.seed},
                      {"rows_train", bundle.rows_train},
                      {"rows_valid", bundle.rows_valid},
                      {"epochs", bundle.epochs},
                      {"steps", bundle.steps},
                      {"batch_size", bundle.batch_size}};
  json["metrics"] = bundle.metrics;
  return json;
}

/// Reads members of an object; the first that is missing or of another type is remembered.
class Reader {
 public:
  explicit Reader(std::string& problem) : problem_(problem) {}

  const Json& member(const Json& object, const char* key) {
    static const Json none;
    if (object.is_object() && object.contains(key)) return object[key];
    note(fmt::format("'{}' is missing", key));
    return none;
  }
  std::string text(const Json& object, const char* key) {
    const Json& value = member(object, key);
    if (value.is_string()) return value.get<std::string>();
    note(fmt::format("'{}' is not a string", key));
    return "";
  }
  int64_t count(const Json& object, const char* key) {
    const Json& value = member(object, key);
    if (value.is_number_unsigned() && value.get<uint64_t>() <= uint64_t{INT64_MAX})
      return value.get<int64_t>();
    note(fmt::format("'{}' is not a count", key));
    return 0;
  }
  const Json& list(const Json& object, const char* key) {
    static const Json empty = Json::array();
    const Json& value = member(object, key);
    if (value.is_array()) return value;
    note(fmt::format("'{}' is not a list", key));
    return empty;
  }
  std::vector<std::string> texts(const Json& object, const char* key) {
    std::vector<std::string> out;
    for (const Json& item : list(object, key)) {
      if (!item.is_string())
        note(fmt::format("'{}' holds something that is no string", key));
      else
        out.push_back(item.get<std::string>());
    }
    return out;
  }
  features::OnNull on_null(const Json& object) {
    const std::string name = text(object, "on_null");
    if (name != "error" && name != "drop") note(fmt::format("'on_null' is '{}'", name));
    return name == "drop" ? features::OnNull::kDrop : features::OnNull::kError;
  }
  void note(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

 private:
  std::string& problem_;
};

Result<Bundle> from_json(const std::string& text) {
  // Nesting is bounded: what walks the value recurses.
  bool deep = false;
  const auto callback = [&deep](int depth, Json::parse_event_t, Json&) {
    return !(deep = deep || depth > 32);
  };
  const Json json = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (deep || json.is_discarded() || !json.is_object()) return data_error("it is not valid JSON");
  std::string problem;
  Reader read(problem);
  if (read.text(json, "format") != kFormat) return data_error("it is not a Millstream bundle");
  const int64_t version = read.count(json, "format_version");
  Bundle bundle;
  bundle.millstream_version = read.text(json, "millstream");
  if (version > kBundleFormatVersion)
    return data_error(
        "it was written by Millstream {} in format {}; this program reads formats up to {}: use that version "
        "or a newer one",
        bundle.millstream_version, version, kBundleFormatVersion);
  bundle.query = read.text(json, "query");
  bundle.prediction_query = read.text(json, "prediction_query");
  if (json.contains("base_directory")) bundle.base_directory = read.text(json, "base_directory");
  const Json& target = read.member(json, "target");
  bundle.target = read.text(target, "column");
  bundle.on_null_target = read.on_null(target);
  for (const Json& item : read.list(json, "inputs")) {
    BundleInput input;
    input.name = read.text(item, "name");
    input.type = read.text(item, "type");
    const Json& for_features = read.member(item, "for_features");
    if (!for_features.is_boolean())
      read.note("'for_features' is not true or false");
    else
      input.for_features = for_features.get<bool>();
    bundle.inputs.push_back(std::move(input));
  }
  for (const Json& item : read.list(json, "features")) {
    features::FeatureSpec spec;
    spec.columns = read.texts(item, "columns");
    for (const std::string& step : read.texts(item, "steps")) {
      MILLSTREAM_ASSIGN(auto parsed, features::parse_step(step));
      spec.steps.push_back(std::move(parsed));
    }
    spec.on_null = read.on_null(item);
    if (item.contains("on_nan")) {
      const std::string name = read.text(item, "on_nan");
      const auto found = std::ranges::find(kOnNanNames, name);
      if (found == std::end(kOnNanNames))
        read.note(fmt::format("'on_nan' is '{}'", name));
      else
        spec.on_nan = static_cast<features::OnNan>(found - std::begin(kOnNanNames));
    }
    bundle.features.push_back(std::move(spec));
  }
  bundle.fitted_json = dump(read.member(json, "fitted"), -1);
  for (const Json& column : read.list(json["fitted"], "columns")) {
    if (!column.is_object() || !column.contains("embedding")) continue;
    EmbeddingInput embedding{read.text(column, "name"), read.count(column, "categories"),
                             read.count(column, "embedding")};
    if (embedding.categories < 1 || embedding.categories > INT32_MAX || embedding.width < 1 ||
        embedding.width > 4096)
      read.note(fmt::format("the embedding of '{}' is {} by {}", embedding.name, embedding.categories,
                            embedding.width));
    bundle.embeddings.push_back(std::move(embedding));
  }
  const Json& model = read.member(json, "model");
  bundle.model.kind = read.text(model, "kind");
  bundle.model.hidden.clear();
  for (const Json& size : read.list(model, "hidden")) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1} << 24)
      read.note("'hidden' holds something that is no layer size");
    else
      bundle.model.hidden.push_back(size.get<int64_t>());
  }
  bundle.model_inputs = read.count(model, "inputs");
  if (model.contains("classes")) bundle.model.classes = read.count(model, "classes");
  if (model.contains("batch_norm")) bundle.model.batch_norm = model["batch_norm"] == true;
  if (model.contains("dropout")) {
    if (!model["dropout"].is_number())
      read.note("'dropout' is not a number");
    else
      bundle.model.dropout = model["dropout"].get<double>();
  }
  if (model.contains("cross_layers")) bundle.model.cross_layers = read.count(model, "cross_layers");
  bundle.precision = read.text(model, "precision");
  const Json& training = read.member(json, "training");
  bundle.loss = read.text(training, "loss");
  bundle.seed = static_cast<uint64_t>(
      read.member(training, "seed").is_number_unsigned() ? training["seed"].get<uint64_t>() : 0);
  bundle.rows_train = read.count(training, "rows_train");
  bundle.rows_valid = read.count(training, "rows_valid");
  bundle.epochs = read.count(training, "epochs");
  bundle.steps = read.count(training, "steps");
  bundle.batch_size = read.count(training, "batch_size");
  const Json& metrics = read.member(json, "metrics");
  if (!metrics.is_object())
    read.note("'metrics' is not an object");
  else
    for (const auto& [name, value] : metrics.items())
      if (value.is_number()) bundle.metrics[name] = value.get<double>();
  if (bundle.model_inputs < static_cast<int64_t>(bundle.embeddings.size()))
    read.note("the model has fewer inputs than embeddings");
  if (!problem.empty()) return data_error("it is damaged: {}", problem);
  return bundle;
}

// A list of categories is two tensors under its key: where its texts end, and their bytes.
constexpr std::string_view kEnds = ".ends", kBytes = ".bytes";

std::string encode_tables(const Bundle& bundle) {
  SafeTensors content;
  for (const auto& table : bundle.tables) {
    const expr::TextList& list = table->list();
    content.tensors.push_back(
        {table->key() + std::string(kEnds),
         TensorType::kInt32,
         {list.size()},
         std::string(reinterpret_cast<const char*>(list.ends.data()), list.ends.size() * sizeof(uint32_t))});
    content.tensors.push_back({table->key() + std::string(kBytes),
                               TensorType::kUInt8,
                               {static_cast<int64_t>(list.bytes.size())},
                               list.bytes});
  }
  return encode_safetensors(content);
}

Status decode_tables(std::string_view bytes, Bundle& bundle) {
  MILLSTREAM_ASSIGN(SafeTensors content, decode_safetensors(bytes));
  std::map<std::string, StoredTensor*> by_name;
  for (StoredTensor& tensor : content.tensors) by_name[tensor.name] = &tensor;
  for (const auto& [name, ends] : by_name) {
    if (!name.ends_with(kEnds)) continue;
    const std::string key = name.substr(0, name.size() - kEnds.size());
    const auto texts = by_name.find(key + std::string(kBytes));
    if (texts == by_name.end() || ends->type != TensorType::kInt32 ||
        texts->second->type != TensorType::kUInt8)
      return data_error("the list of categories '{}' is not one of ends and bytes", key);
    auto list = std::make_shared<expr::TextList>();
    list->ends.resize(ends->bytes.size() / sizeof(uint32_t));
    std::memcpy(list->ends.data(), ends->bytes.data(), list->ends.size() * sizeof(uint32_t));
    list->bytes = std::move(texts->second->bytes);
    MILLSTREAM_ASSIGN(auto table, expr::TextTable::make(std::move(list)));
    if (table->key() != key) return data_error("the list of categories '{}' is not the one of that key", key);
    bundle.tables.push_back(std::move(table));
  }
  return Status::OK();
}

Status remove_partly_written(const std::string& path, const Status& status) {
  std::error_code ignored;
  fs::remove_all(path, ignored);
  return status;
}

}  // namespace

Status describe_query(const plan::Pipeline& pipeline, const std::vector<std::string>& feature_columns,
                      Bundle& bundle) {
  MILLSTREAM_ASSIGN(const plan::Pipeline needed,
                    plan::select_outputs(plan::without_filter(pipeline), feature_columns));
  const auto& schema = *pipeline.table->schema();
  bundle.inputs.clear();
  for (int column : pipeline.columns) {
    const bool for_features =
        std::find(needed.columns.begin(), needed.columns.end(), column) != needed.columns.end();
    bundle.inputs.push_back(
        {schema.field(column)->name(), expr::sql_type_name(*schema.field(column)->type()), for_features});
  }
  // In SQL rather than in a form of our own: it binds to the types of other files, by the rules of any query.
  bundle.prediction_query = "SELECT ";
  for (size_t i = 0; i < needed.outputs.size(); ++i) {
    if (i > 0) bundle.prediction_query += ", ";
    bundle.prediction_query +=
        needed.outputs[i]->to_sql() + " AS " + quoted(needed.schema->field(static_cast<int>(i))->name());
  }
  bundle.prediction_query += " FROM 'input'";
  return Status::OK();
}

Status describe_whole_query(const plan::Node& plan, const std::string& base_directory, Bundle& bundle) {
  // The part of the plan that reads the first table.
  auto first = std::shared_ptr<const plan::Node>(std::shared_ptr<void>(), &plan);
  while (!plan::streams(*first)) first = first->input;
  MILLSTREAM_ASSIGN(const plan::Pipeline read, plan::to_pipeline(first));
  const auto& schema = *read.table->schema();
  bundle.inputs.clear();
  for (int column : read.columns) {
    bundle.inputs.push_back(
        {schema.field(column)->name(), expr::sql_type_name(*schema.field(column)->type()), true});
  }
  bundle.prediction_query = bundle.query;
  std::error_code error;
  bundle.base_directory = fs::absolute(base_directory, error).lexically_normal().string();
  return Status::OK();
}

Status write_bundle(const std::string& path, const Bundle& bundle) {
  const std::string temporary = path + ".part";
  std::error_code error;
  fs::remove_all(temporary, error);
  fs::create_directories(temporary, error);
  if (error) return file_error("writing the bundle {}: {}", path, error.message());
  auto write = [&]() -> Status {
    MILLSTREAM_TRY(
        write_file_durably(temporary + "/weights.safetensors", encode_safetensors(bundle.weights)));
    if (!bundle.tables.empty())
      MILLSTREAM_TRY(write_file_durably(temporary + "/categories.safetensors", encode_tables(bundle)));
    MILLSTREAM_TRY(write_file_durably(temporary + "/bundle.json", dump(to_json(bundle), 2) + "\n"));
    if (::rename(temporary.c_str(), path.c_str()) != 0)
      return file_error("writing the bundle {}: {}", path, std::strerror(errno));
    return sync_directory(fs::path(path).parent_path().string());
  };
  const Status status = write();
  return status.ok() ? status : remove_partly_written(temporary, status);
}

Result<Bundle> read_bundle(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return file_error("there is no bundle {}", path);
  const std::string json_path = path + "/bundle.json", weights_path = path + "/weights.safetensors";
  if (!fs::is_directory(path, error) || !fs::exists(json_path, error)) {
    if (fs::exists(path + "/bundle/bundle.json", error))
      return file_error("{} is a run directory; its bundle is {}/bundle", path, path);
    return file_error("{} is not a bundle: there is no {}", path, json_path);
  }
  MILLSTREAM_ASSIGN(const std::string text, read_whole_file(json_path, kMaxJsonBytes));
  auto bundle = from_json(text);
  if (!bundle.ok()) return with_category(with_context(bundle.status(), json_path), ErrorCategory::kData);
  MILLSTREAM_ASSIGN(const std::string bytes, read_whole_file(weights_path, kMaxWeightBytes));
  auto weights = decode_safetensors(bytes);
  if (!weights.ok()) return with_context(weights.status(), weights_path);
  bundle->weights = std::move(weights).ValueUnsafe();
  const std::string tables_path = path + "/categories.safetensors";
  if (fs::exists(tables_path, error)) {
    MILLSTREAM_ASSIGN(const std::string tables, read_whole_file(tables_path, kMaxWeightBytes));
    const Status decoded = decode_tables(tables, *bundle);
    if (!decoded.ok()) return with_context(decoded, tables_path);
  }
  return bundle;
}

std::string encode_bundle(const Bundle& bundle) {
  ByteWriter out;
  out.text(dump(to_json(bundle), -1));
  out.text(encode_safetensors(bundle.weights));
  out.text(encode_tables(bundle));
  return out.take();
}

Result<Bundle> decode_bundle(const std::string& bytes) {
  ByteReader in(bytes);
  const std::string_view json = in.text(), weights = in.text(), tables = in.text();
  if (!in.done()) return bug_error("a bundle came damaged from another rank");
  MILLSTREAM_ASSIGN(Bundle bundle, from_json(std::string(json)));
  MILLSTREAM_ASSIGN(bundle.weights, decode_safetensors(weights));
  MILLSTREAM_TRY(decode_tables(tables, bundle));
  return bundle;
}

}  // namespace millstream::train
