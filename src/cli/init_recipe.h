#pragma once
// A recipe to begin with, made from a table's profile: which columns are features and with which steps, how the
// target becomes a number, the loss, and sizes that suit the number of rows. A function of the profile and the names
// alone.

#include <string>
#include <utility>
#include <vector>

#include "loader/profile.h"

namespace millstream::cli {

struct InitRequest {
  std::vector<std::string> files;  ///< as they shall stand in the recipe
  std::string name;                ///< of the recipe, for its comment: "adults.toml"
};

struct InitRecipe {
  std::string text;
  std::string loss;
  std::vector<std::string> features;                          ///< columns
  std::vector<std::pair<std::string, std::string>> left_out;  ///< column, why
};

/// profile.target must be set. Usage errors: a target that nothing can be learnt of, no column to learn from.
Result<InitRecipe> init_recipe(const loader::TableProfile& profile, const InitRequest& request);

/// FROM's argument: 'a.parquet', read_csv(['a.csv', 'b.csv']). Usage errors: files of both formats.
Result<std::string> from_text(const std::vector<std::string>& files);
/// A column's name in SQL, in quotes where it needs them.
std::string sql_name(const std::string& name);

}  // namespace millstream::cli
