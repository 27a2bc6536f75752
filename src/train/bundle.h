#pragma once
// What training leaves behind for prediction: a folder with
//   bundle.json           query, input schema, fitted features, model description, counts, metrics
//   weights.safetensors   the model's tensors
//   categories.safetensors  the lists of categories that the features look up, where these are long
// A bundle from a stranger is safe to open: nothing in it is code, every size is checked.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "expr/text_table.h"
#include "features/feature_spec.h"
#include "plan/logical_plan.h"
#include "train/config.h"
#include "train/safetensors.h"

namespace millstream::train {

/// 2: losses other than mse and mae, whose outputs are no predictions yet. 3: models other than the plain mlp, and
/// queries that do not stream. 4: lists of categories. What an older format can say is still written in that.
inline constexpr int64_t kBundleFormatVersion = 4;

/// A column of the query's files.
struct BundleInput {
  std::string name;
  std::string type;          ///< SQL's name of it: "DOUBLE"
  bool for_features = true;  ///< false: only the filter or the target reads it (evaluate)
};

struct Bundle {
  std::string millstream_version;
  std::string query;             ///< as trained on; evaluate runs it on its inputs
  std::string prediction_query;  ///< the columns that features need, without filter and target
  /// Where the other tables of a query are that does not stream; such a query is run whole, by predict too, with the
  /// inputs in the place of its first table. Empty: the query streams.
  std::string base_directory;
  std::string target;
  features::OnNull on_null_target = features::OnNull::kError;
  std::vector<BundleInput> inputs;
  std::vector<features::FeatureSpec> features;
  std::string fitted_json;                                     ///< features/fitted_json.h
  std::vector<std::shared_ptr<const expr::TextTable>> tables;  ///< that fitted_json names by their keys
  ModelConfig model;
  int64_t model_inputs = 0;                ///< columns of the fitted features
  std::vector<EmbeddingInput> embeddings;  ///< those of them that are ids; read from fitted_json
  std::string precision;
  std::string loss;
  uint64_t seed = 0;
  int64_t rows_train = 0, rows_valid = 0, epochs = 0, steps = 0, batch_size = 0;
  std::map<std::string, double> metrics;  ///< of the bundled weights on the validation rows
  SafeTensors weights;
};

/// Describes the pipeline's input to the bundle: inputs and prediction_query. `feature_columns` are the query's
/// outputs that features read.
Status describe_query(const plan::Pipeline& pipeline, const std::vector<std::string>& feature_columns,
                      Bundle& bundle);
/// The same of a plan that does not stream, whose file names are relative to `base_directory`.
Status describe_whole_query(const plan::Node& plan, const std::string& base_directory, Bundle& bundle);

/// Writes the folder `path`, whole or not at all.
Status write_bundle(const std::string& path, const Bundle& bundle);
/// Errors: missing or not a bundle (file), written by a newer Millstream, damaged (data); all name the file.
Result<Bundle> read_bundle(const std::string& path);

/// The bundle's files as one piece of text and back, for other ranks.
std::string encode_bundle(const Bundle& bundle);
Result<Bundle> decode_bundle(const std::string& bytes);

}  // namespace millstream::train
