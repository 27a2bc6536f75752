#pragma once
// The user's recipe: a TOML file that says what data, features, loader, model and training are, as the structs
// that the layers take. Every key is declared once (recipe.cc): its type, range, default and documentation come
// from that declaration, for reading, for `train --help` and for docs/recipe.md.
//
// 1. Reading depends on the text, the settings and the working directory alone: all ranks read the same.
// 2. Errors are usage errors that name file, line, column and key (or the --set), and what would be right.

#include <string>
#include <vector>

#include "base/status.h"
#include "loader/loader_config.h"
#include "train/config.h"

namespace millstream::cli {

struct Recipe {
  std::string path;  ///< absolute
  std::string name;  ///< the file's name without its ending; names run directories
  loader::DataConfig data;
  loader::LoaderConfig loader;
  train::ModelConfig model;
  train::TrainConfig train;
  std::string text;  ///< as read, preceded by the settings of the command line as comments
};

/// The text of a recipe file.
Result<std::string> read_recipe_file(const std::string& path);

/// Parses `text`, the content of the file `path`. `settings` are the KEY=VALUE of --set, in order; later ones
/// win. Relative file names in the recipe are relative to its folder, those in settings to `working_directory`.
Result<Recipe> parse_recipe(const std::string& text, const std::string& path,
                            const std::vector<std::string>& settings, const std::string& working_directory);

/// Every key with type, default and meaning, for a terminal.
std::string recipe_reference_text();
/// The same as the Markdown of docs/recipe.md.
std::string recipe_reference_markdown();

}  // namespace millstream::cli
