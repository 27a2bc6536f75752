#include "cli/init_recipe.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "cli/profile_report.h"
#include "cli/progress_display.h"
#include "expr/text.h"
#include "expr/type.h"
#include "sql/lexer.h"

namespace millstream::cli {
namespace {

using features::ColumnProfile;
using features::ProfileKind;

constexpr int64_t kMostClasses = 256;        // of a text
constexpr int64_t kMostNumericClasses = 10;  // of whole numbers; more are taken for a quantity
constexpr int64_t kMostOneHot = 64;

std::string sql_text(std::string_view text) {
  std::string out;
  expr::append_quoted(out, text, '\'');
  return out;
}

// Within a basic string of TOML; in one of several lines only a third quote in a row would end it.
std::string toml_text(std::string_view text, bool several_lines = false) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (c == '"' && (!several_lines || out.ends_with("\"\"")))) {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// A comment is one line.
std::string comment_text(std::string_view text) {
  std::string out;
  for (const char c : text) out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return out;
}

// A round number near x, of one digit.
double rounded(double x) {
  if (x == 0) return 0;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(x))));
  return std::round(x / unit) * unit;
}

struct Target {
  std::string expression;  ///< with AS where it needs one
  std::string name;
  std::string loss;
  int64_t classes = 0;
  bool drops = false;  ///< rows without a target
  std::vector<std::string> comments;
};

std::string unused_name(std::string name, const arrow::Schema& schema) {
  while (schema.GetFieldIndex(name) >= 0) name += "_";
  return name;
}

Result<Target> make_target(const loader::TableProfile& profile) {
  const ColumnProfile& column = profile.columns[profile.target];
  const auto& field = *profile.schema->field(profile.target);
  const arrow::DataType& type = *field.type();
  const std::string name = field.name();
  Target target;
  target.name = name;
  target.expression = sql_name(name);
  target.drops = column.nulls() + column.nans() + column.infinities() > 0;
  if (column.values() == 0)
    return usage_error("the target '{}' is null in all {} rows", name, format_count(column.rows()));
  const bool is_text = type.id() == arrow::Type::STRING;
  const bool is_bool = type.id() == arrow::Type::BOOL;
  const bool is_whole = column.kind() == ProfileKind::kWhole && type.id() != arrow::Type::DATE32 &&
                        type.id() != arrow::Type::TIMESTAMP;
  if (!is_text && !is_whole && column.kind() != ProfileKind::kReal)
    return usage_error("the target '{}' is {}; a number, a boolean or a text can be learnt", name,
                       expr::sql_type_name(type));
  const int64_t distinct = column.distinct();
  if (distinct < 2)
    return usage_error("the target '{}' has one value only, so there is nothing to learn", name);
  if (is_text && distinct > kMostClasses)
    return usage_error(
        "the target '{}' is text with {}{} different values, and classes are {} at most; give another "
        "--target, or "
        "make a number of it in a query",
        name, column.distinct_exact() ? "" : "about ", format_count(distinct), kMostClasses);

  if (is_text || is_bool || (column.distinct_exact() && distinct == 2 && column.nans() == 0) ||
      (is_whole && distinct <= kMostNumericClasses)) {
    auto values = column.frequent().by_count();
    if (!is_text) {
      std::sort(values.begin(), values.end(), [&](const auto& a, const auto& b) {
        return is_whole ? static_cast<int64_t>(a.key) < static_cast<int64_t>(b.key)
                        : std::bit_cast<double>(a.key) < std::bit_cast<double>(b.key);
      });
    } else {
      std::sort(values.begin(), values.end(), [](const auto& a, const auto& b) { return a.text < b.text; });
    }
    bool in_order = !is_text && !is_bool;
    std::string arms;
    std::string meaning;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string text = entry_text(column, type, values[i]);
      const double number = is_whole ? static_cast<double>(static_cast<int64_t>(values[i].key))
                                     : std::bit_cast<double>(values[i].key);
      in_order = in_order && number == static_cast<double>(i);
      arms += fmt::format(" WHEN {} THEN {}", is_text ? sql_text(text) : text, i);
      meaning += fmt::format("{}{} is {}", i ? ", " : "", i, comment_text(text));
    }
    if (!in_order && !is_bool) {
      target.expression = fmt::format("CASE {}{} END AS {}", sql_name(name), arms, sql_name(name));
      // A value that is new later has no number.
      target.comments.push_back(fmt::format("In {}, {}.", comment_text(name), meaning));
    }
    target.loss = values.size() == 2 ? "bce" : "cross_entropy";
    if (values.size() > 2) target.classes = static_cast<int64_t>(values.size());
    if (is_whole && !is_bool && values.size() > 2)
      target.comments.push_back(
          fmt::format("{} has {} different values and is learnt as so many classes. To learn it as a "
                      "quantity, leave the CASE and "
                      "model.classes out and set loss = \"mse\".",
                      comment_text(name), values.size()));
    return target;
  }

  target.loss = "mse";
  const double spread = std::sqrt(column.moments().m2 / static_cast<double>(column.moments().count));
  const double mean = column.moments().mean;
  // What a network gives at first is near 0 and 1.
  if (spread < 0.1 || spread > 10 || std::abs(mean) > 5 * spread) {
    const double scale = rounded(spread);
    const double shift = std::abs(mean) > 3 * spread ? rounded(mean) : 0;
    if (scale > 0 && std::isfinite(scale)) {
      target.name = unused_name(name + "_scaled", *profile.schema);
      target.expression = shift == 0 ? fmt::format("{} / {:.1f}", sql_name(name), scale)
                                     : fmt::format("({} - {:.1f}) / {:.1f}", sql_name(name), shift, scale);
      if (scale < 1) {
        target.expression = shift == 0 ? fmt::format("{} / {}e0", sql_name(name), scale)
                                       : fmt::format("({} - {}e0) / {}e0", sql_name(name), shift, scale);
      }
      target.expression += " AS " + sql_name(target.name);
      target.comments.push_back(fmt::format(
          "The model learns {} in units of {:g}{}, and so it predicts; its RMSE too is in these units.",
          comment_text(name), scale, shift == 0 ? "" : fmt::format(", from {:g} on", shift)));
    }
  }
  return target;
}

// The steps of a feature; none: it goes in as it is.
std::vector<std::string> steps_of(const ColumnProfile& column, const arrow::DataType& type) {
  std::vector<std::string> steps;
  const bool holes = column.nulls() + column.nans() + column.infinities() > 0;
  const int64_t distinct = column.distinct();
  if (type.id() == arrow::Type::STRING) {
    if (distinct <= kMostOneHot) return {"one_hot"};
    return {"one_hot(max_size=32)"};
  }
  if (holes) steps.push_back("null_indicator");
  if (type.id() == arrow::Type::BOOL) {
    if (holes) steps.push_back("fill_null(most_frequent)");
    return steps;
  }
  if (type.id() == arrow::Type::DATE32 || type.id() == arrow::Type::TIMESTAMP) {
    steps.push_back(type.id() == arrow::Type::DATE32 ? "datetime(year, month, dayofweek)"
                                                     : "datetime(month, dayofweek, hour)");
    if (holes) steps.push_back("fill_null(median)");
    steps.push_back("standard_scale");
    return steps;
  }
  const bool whole = column.kind() == ProfileKind::kWhole;
  if (whole && distinct == 2 && column.min() == 0 && column.max() == 1) {
    if (holes) steps.push_back("fill_null(most_frequent)");
    return steps;
  }
  if (whole && distinct <= 10) return {"one_hot"};
  if (holes) steps.push_back("fill_null(median)");
  const auto upper = column.quantiles({0.75})[0];
  if (column.min() >= 0 && column.max() > 20 && column.max() > 8 * upper) steps.push_back("log1p");
  steps.push_back("standard_scale");
  return steps;
}

int64_t power_of_two_near(double x) {
  return int64_t{1} << std::max(0, static_cast<int>(std::lround(std::log2(std::max(x, 1.0)))));
}

std::string toml_list(const std::vector<std::string>& texts) {
  std::string out = "[";
  size_t width = 11;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::string item = "\"" + toml_text(texts[i]) + "\"" + (i + 1 < texts.size() ? "," : "");
    if (i > 0 && width + item.size() > 110) {
      out += "\n           ";
      width = 11;
    } else if (i > 0) {
      out += " ";
    }
    width += item.size() + 1;
    out += item;
  }
  return out + "]";
}

}  // namespace

std::string sql_name(const std::string& name) {
  bool plain = !name.empty() && !(name[0] >= '0' && name[0] <= '9') && !sql::is_reserved_word(name);
  for (const char c : name) {
    plain = plain && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_');
  }
  if (plain) return name;
  std::string out;
  expr::append_quoted(out, name, '"');
  return out;
}

Result<std::string> from_text(const std::vector<std::string>& files) {
  if (files.size() == 1) return sql_text(files[0]);
  int parquet = 0;
  std::string list;
  for (const std::string& file : files) {
    parquet += file.ends_with(".parquet");
    list += (list.empty() ? "" : ", ") + sql_text(file);
  }
  if (parquet != 0 && parquet != static_cast<int>(files.size()))
    return usage_error("the files are of both formats, Parquet and CSV; a table is of one");
  return fmt::format("{}([{}])", parquet != 0 ? "read_parquet" : "read_csv", list);
}

Result<InitRecipe> init_recipe(const loader::TableProfile& profile, const InitRequest& request) {
  InitRecipe recipe;
  if (profile.rows == 0) return failed_error("the files have no rows to make a recipe from");
  MILLSTREAM_ASSIGN(const Target target, make_target(profile));
  recipe.loss = target.loss;

  std::map<int, std::string> reasons;  // of columns that are left out
  for (const ColumnWarning& warning : profile_warnings(profile)) {
    if (warning.warning == ProfileWarning::kMostlyNull || warning.warning == ProfileWarning::kNotFinite)
      continue;
    reasons.try_emplace(warning.column, warning.text);
  }
  std::vector<std::string> outputs;
  std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> groups;  // steps, columns
  for (int i = 0; i < static_cast<int>(profile.columns.size()); ++i) {
    if (i == profile.target) continue;
    const ColumnProfile& column = profile.columns[i];
    const auto& field = *profile.schema->field(i);
    const std::string& name = field.name();
    std::string reason = reasons.count(i) ? reasons[i] : "";
    if (reason.empty() && field.type()->id() == arrow::Type::BINARY)
      reason = "is BLOB, of which no step makes a number";
    if (reason.empty() && field.type()->id() == arrow::Type::STRING && column.distinct() > kMostOneHot &&
        column.distinct() * 2 > column.values())
      reason = fmt::format("is text with {} different values in {} rows", format_count(column.distinct()),
                           format_count(column.values()));
    if (reason.empty() && name.find("${") != std::string::npos)
      reason = "has ${ in its name, which a recipe takes for a definition";
    if (!reason.empty()) {
      recipe.left_out.push_back({name, reason});
      continue;
    }
    const bool not_finite = column.nans() + column.infinities() > 0;
    outputs.push_back(not_finite ? fmt::format("CASE WHEN isfinite({0}) THEN {0} END AS {0}", sql_name(name))
                                 : sql_name(name));
    recipe.features.push_back(name);
    const auto steps = steps_of(column, *field.type());
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == steps; });
    if (group == groups.end()) group = groups.insert(groups.end(), {steps, {}});
    group->second.push_back(name);
  }
  if (recipe.features.empty()) {
    std::string why;
    for (const auto& [name, reason] : recipe.left_out)
      why += fmt::format("{}{} {}", why.empty() ? "" : "; ", name, reason);
    return usage_error("there is no column to learn '{}' from{}{}", target.name, why.empty() ? "" : ": ",
                       why);
  }

  std::string& out = recipe.text;
  out += fmt::format("# Made from {} rows by `millstream init`; a beginning, to be changed.\n#\n",
                     format_count(profile.rows));
  out += fmt::format("#     millstream train {}\n", comment_text(request.name));
  for (const std::string& comment : target.comments) out += "#\n# " + comment + "\n";
  if (!recipe.left_out.empty()) out += "#\n# Left out:\n";
  for (const auto& [name, reason] : recipe.left_out)
    out += fmt::format("#   {} {}\n", comment_text(name), comment_text(reason));
  MILLSTREAM_ASSIGN(const std::string from, from_text(request.files));
  outputs.push_back(target.expression);
  out += "\n[data]\ntrain = \"\"\"\n";
  std::string line = "  SELECT";
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string item = toml_text(outputs[i], true) + (i + 1 < outputs.size() ? "," : "");
    if (line.size() > 9 && line.size() + 1 + item.size() > 110) {
      out += line + "\n";
      line = "        ";
    }
    line += " " + item;
  }
  out += line + "\n  FROM " + toml_text(from, true) + "\n\"\"\"\n";
  const bool small = profile.rows < 10000;
  out += fmt::format("valid  = {}\ntarget = \"{}\"\n", small ? 0.2 : 0.1, toml_text(target.name));
  if (target.drops) out += "on_null_target = \"drop\"\n";
  for (const auto& [steps, columns] : groups) {
    out += "\n[[feature]]\ncolumns = " + toml_list(columns) + "\n";
    if (!steps.empty()) out += "steps   = " + toml_list(steps) + "\n";
  }
  const int64_t batch =
      std::clamp<int64_t>(power_of_two_near(static_cast<double>(profile.rows) / 150), 16, 16384);
  const int64_t epochs = std::clamp<int64_t>(3000 * batch / profile.rows, 5, 30);
  out += fmt::format("\n[loader]\nbatch_size = {}\n\n[model]\nhidden = {}\n", batch,
                     profile.rows < 5000 ? "[32, 16]" : "[64, 32]");
  if (target.classes > 0) out += fmt::format("classes = {}\n", target.classes);
  out += fmt::format("\n[train]\nloss = \"{}\"\nepochs = {}\n", target.loss, epochs);
  return recipe;
}

}  // namespace millstream::cli
