#pragma once
// From the text of a query to a plan that can be run.

#include <string>
#include <vector>

#include "plan/logical_plan.h"

namespace millstream::plan {

struct QueryOptions {
  std::string name;            ///< what messages call the text: "recipe.toml, data.train", "query"
  std::string base_directory;  ///< relative file names are relative to it
  /// When not empty, the first table of FROM is these files, wherever it stands (predict, evaluate); tables that are
  /// joined with it stay.
  std::vector<std::string> replace_inputs;
};

/// Parses, binds and checks `sql`. Errors are query errors: "<name>, line L, column C: …", the line, a caret.
Result<NodePtr> plan_query(const std::string& sql, Catalog& catalog, const QueryOptions& options);

/// Whether the plan consists of a scan, filters and projections, which to_pipeline() takes.
bool streams(const Node& plan);

/// Rewrites to the streaming form. Errors name what does not stream.
Result<Pipeline> to_pipeline(const NodePtr& plan);

/// The output called `name`: exactly so, else the only one that differs in case alone, as names in SQL do; -1: none.
int find_output(const arrow::Schema& schema, const std::string& name);

/// The same pipeline with only the named outputs (see find_output), in that order and so called; columns that nothing
/// reads any more are pruned. An unknown name is an error that names the nearest output.
Result<Pipeline> select_outputs(const Pipeline& pipeline, const std::vector<std::string>& names);
/// The same without its filter (predict: one prediction a row).
Pipeline without_filter(const Pipeline& pipeline);

/// Text of a plan for people: an operator a line with types, nullability and expressions.
std::string explain_text(const Pipeline& pipeline);

}  // namespace millstream::plan
