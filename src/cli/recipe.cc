// Reading recipes. The declarations of all keys stand in recipe_keys() below; the rest is how values are found
// (in the file or in --set), substituted, checked and reported.

#include "cli/recipe.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "base/nearest_name.h"
#include "loader/split.h"

namespace millstream::cli {
namespace {

/// What a key was given: a node of the file or of a --set.
struct Value {
  const toml::node* node = nullptr;
  std::string where;                 ///< "recipe taxi.toml, line 3, column 9" or "--set train.epochs=x"
  std::string key;                   ///< "train.epochs"
  const std::string* raw = nullptr;  ///< --set: the text after '='
};

/// One --set.
struct Setting {
  std::string argument;  ///< "train.epochs=2"
  std::string key, raw;
  toml::table holder;  ///< owns the node, under the name "value"
  const toml::node* node() const { return holder.get("value"); }
};

std::string describe_node(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string: {
      std::string text(*node.value<std::string_view>());
      // What --set takes for a string because TOML has no such integer.
      if (text.size() >= 19 && text.size() <= 40 &&
          text.find_first_not_of("0123456789", text[0] == '-') == text.npos)
        return fmt::format("{}, more than an integer holds", text);
      if (text.size() > 40) text = text.substr(0, 37) + "...";
      return fmt::format("the string \"{}\"", text);
    }
    case toml::node_type::integer:
      return fmt::format("{}", *node.value<int64_t>());
    case toml::node_type::floating_point:
      return fmt::format("{}", *node.value<double>());
    case toml::node_type::boolean:
      return *node.value<bool>() ? "true" : "false";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::table:
      return "a table";
    default:
      return "a date or time";
  }
}

/// The values of [define] and the substitution of ${name}. A definition may refer to others.
class Definitions {
 public:
  void add(std::string name, std::string value, bool from_setting) {
    if (from_setting) settings_.insert(name);
    values_[std::move(name)] = std::move(value);
  }
  /// `text` with every ${name} replaced; marks the names as used.
  Result<std::string> expand(const std::string& text, const std::string& where, const std::string& key) {
    return expand(text, where, key, {});
  }
  /// A name that only --set gives and nothing uses is a slip of the keyboard.
  Status check_settings_used(const std::set<std::string>& defined_in_recipe) const {
    for (const std::string& name : settings_) {
      if (used_.count(name) || defined_in_recipe.count(name)) continue;
      std::vector<std::string> known(defined_in_recipe.begin(), defined_in_recipe.end());
      known.insert(known.end(), used_.begin(), used_.end());
      if (known.empty())
        return usage_error("--set define.{}: the recipe defines nothing and uses no ${{{}}}", name, name);
      return usage_error("--set define.{}: the recipe has no such definition{}", name,
                         name_hint(name, known));
    }
    return Status::OK();
  }

 private:
  Result<std::string> expand(const std::string& text, const std::string& where, const std::string& key,
                             std::vector<std::string> within) {
    std::string out;
    size_t done = 0;
    for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", done)) {
      out.append(text, done, at - done);
      const size_t end = text.find('}', at);
      if (end == std::string::npos)
        return usage_error("{}: {}: '${{' without '}}'; a definition is used as ${{name}}", where, key);
      const std::string name = text.substr(at + 2, end - at - 2);
      const auto found = values_.find(name);
      if (found == values_.end()) {
        std::vector<std::string> known;
        for (const auto& [known_name, value] : values_) known.push_back(known_name);
        return usage_error("{}: {} uses ${{{}}}, which [define] does not give{}", where, key, name,
                           known.empty()
                               ? fmt::format("; write [define] {} = ... or --set define.{}=...", name, name)
                               : name_hint(name, known));
      }
      if (std::find(within.begin(), within.end(), name) != within.end())
        return usage_error("{}: {}: the definition of ${{{}}} uses itself", where, key, name);
      used_.insert(name);
      auto deeper = within;
      deeper.push_back(name);
      MILLSTREAM_ASSIGN(const std::string value, expand(found->second, where, key, deeper));
      out += value;
      done = end + 1;
    }
    return out.append(text, done, std::string::npos);
  }

  std::map<std::string, std::string> values_;
  std::set<std::string> settings_, used_;
};

struct ReadContext {
  Definitions definitions;
};

Status wrong_value(const Value& value, std::string_view expected) {
  return usage_error("{}: {} is {}; it must be {}", value.where, value.key, describe_node(*value.node),
                     expected);
}

Result<std::string> read_text(ReadContext& context, const Value& value, std::string_view expected) {
  std::string text;
  if (auto string = value.node->value_exact<std::string_view>())
    text = *string;
  else if (value.raw)
    text = *value.raw;  // --set data.target=5 means the text "5"
  else
    return wrong_value(value, expected);
  return context.definitions.expand(text, value.where, value.key);
}

/// A key's declaration.
struct Key {
  std::string table, name, type, doc;
  std::function<std::string(const Recipe&)> show;  ///< the default; not set: the key is required
  std::function<Status(ReadContext&, const Value&, Recipe&)> read;
  std::string full_name() const { return table + "." + name; }
};

std::string show_number(double x) {
  return fmt::format("{}", x);
}
std::string in_quotes(std::string_view text) {
  return fmt::format("\"{}\"", text);
}

/// Accessors give the place in a Recipe that a key sets.
template <class Accessor>
Key text_key(std::string table, std::string name, bool required, Accessor place, std::string type,
             std::string doc) {
  Key key{std::move(table), std::move(name), type, std::move(doc), nullptr, nullptr};
  if (!required) key.show = [place](const Recipe& r) { return in_quotes(place(const_cast<Recipe&>(r))); };
  key.read = [place, type](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    MILLSTREAM_ASSIGN(std::string text, read_text(context, value, type));
    if (std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c); }))
      return usage_error("{}: {} is empty; it must be {}", value.where, value.key, type);
    place(recipe) = std::move(text);
    return Status::OK();
  };
  return key;
}

template <class Accessor>
Key integer_key(std::string table, std::string name, Accessor place, int64_t low, int64_t high,
                std::string doc) {
  const std::string type = high == std::numeric_limits<int64_t>::max()
                               ? fmt::format("a whole number, at least {}", low)
                               : fmt::format("a whole number from {} to {}", low, high);
  Key key{std::move(table), std::move(name), type, std::move(doc), nullptr, nullptr};
  key.show = [place](const Recipe& r) { return fmt::format("{}", place(const_cast<Recipe&>(r))); };
  key.read = [place, type, low, high](ReadContext&, const Value& value, Recipe& recipe) -> Status {
    const auto number = value.node->value_exact<int64_t>();
    if (!number || *number < low || *number > high) return wrong_value(value, type);
    place(recipe) = static_cast<std::decay_t<decltype(place(recipe))>>(*number);
    return Status::OK();
  };
  return key;
}

/// A number in (low, high), or with `low_included` in [low, high).
template <class Accessor>
Key number_key(std::string table, std::string name, Accessor place, double low, bool low_included,
               double high, std::string doc) {
  std::string type =
      low_included ? fmt::format("a number, at least {}", low) : fmt::format("a number above {}", low);
  if (std::isfinite(high)) type += fmt::format(" and below {}", high);
  Key key{std::move(table), std::move(name), type, std::move(doc), nullptr, nullptr};
  key.show = [place](const Recipe& r) { return show_number(place(const_cast<Recipe&>(r))); };
  key.read = [=](ReadContext&, const Value& value, Recipe& recipe) -> Status {
    if (!value.node->is_number()) return wrong_value(value, type);
    const double number = *value.node->value<double>();
    if (!(low_included ? number >= low : number > low) || !(number < high)) return wrong_value(value, type);
    place(recipe) = number;
    return Status::OK();
  };
  return key;
}

/// One of a few words; `choices` pairs each with the value that the place takes.
template <class Accessor, class T>
Key choice_key(std::string table, std::string name, Accessor place,
               std::vector<std::pair<std::string, T>> choices, std::string doc) {
  std::vector<std::string> words;
  std::string type;
  for (size_t i = 0; i < choices.size(); ++i) {
    words.push_back(choices[i].first);
    if (i > 0) type += i + 1 == choices.size() ? " or " : ", ";
    type += in_quotes(choices[i].first);
  }
  Key key{std::move(table), std::move(name), type, std::move(doc), nullptr, nullptr};
  key.show = [place, choices](const Recipe& r) {
    for (const auto& [word, meaning] : choices)
      if (place(const_cast<Recipe&>(r)) == meaning) return in_quotes(word);
    return std::string("?");
  };
  key.read = [place, choices, words, type](ReadContext& context, const Value& value,
                                           Recipe& recipe) -> Status {
    MILLSTREAM_ASSIGN(const std::string text, read_text(context, value, type));
    for (const auto& [word, meaning] : choices) {
      if (text != word) continue;
      place(recipe) = meaning;
      return Status::OK();
    }
    if (const auto near = nearest_name(text, words))
      return usage_error("{}: {} is \"{}\"; it must be {}; did you mean \"{}\"?", value.where, value.key,
                         text, type, *near);
    return wrong_value(value, type);
  };
  return key;
}

/// Reads a list, an element at a time; `element` gets each with a Value that names its place.
template <class Element>
Status read_list(const Value& value, std::string_view expected, Element element) {
  const toml::array* array = value.node->as_array();
  if (!array) return wrong_value(value, expected);
  for (size_t i = 0; i < array->size(); ++i) {
    Value item = value;
    item.node = array->get(i);
    item.key = fmt::format("{}[{}]", value.key, i);
    item.raw = nullptr;
    MILLSTREAM_TRY(element(item));
  }
  return Status::OK();
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return std::string(text);
}

features::FeatureSpec& last_feature(Recipe& recipe) {
  return recipe.data.features.back();
}

Key columns_key() {
  const std::string type = "a list of column names, at least one";
  Key key{"feature", "columns",
          type,      "Columns of the training query that are inputs of the model, in this order.",
          nullptr,   nullptr};
  key.read = [type](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    auto& columns = last_feature(recipe).columns;
    columns.clear();
    MILLSTREAM_TRY(read_list(value, type, [&](const Value& item) -> Status {
      MILLSTREAM_ASSIGN(std::string name, read_text(context, item, "a column's name"));
      columns.push_back(std::move(name));
      return Status::OK();
    }));
    if (columns.empty())
      return usage_error("{}: {} is an empty list; it must be {}", value.where, value.key, type);
    return Status::OK();
  };
  return key;
}

Key steps_key() {
  const std::string type = "a list of steps";
  Key key{
      "feature",
      "steps",
      type,
      fmt::format(
          "What is done to each of the columns, in this order: \"{}\". What a step needs to know of the "
          "data (a mean, a deviation) is fitted on the training rows only. Without steps a column goes in "
          "as it is. docs/features.md has the details.",
          fmt::join(features::step_forms(), "\", \"")),
      nullptr,
      nullptr};
  key.show = [](const Recipe&) { return "[]"; };
  key.read = [type](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    auto& steps = last_feature(recipe).steps;
    steps.clear();
    return read_list(value, type, [&](const Value& item) -> Status {
      MILLSTREAM_ASSIGN(const std::string text,
                        read_text(context, item, "a step, such as \"standard_scale\""));
      auto step = features::parse_step(text);
      if (!step.ok()) return with_context(step.status(), fmt::format("{}: {}", item.where, item.key));
      steps.push_back(std::move(step).ValueUnsafe());
      return Status::OK();
    });
  };
  return key;
}

const char* const kPartType = "a fraction, at least 0 and below 1, the text of a query, or a condition";

/// A fraction, a query, or a condition on the training query's rows.
Status read_part(ReadContext& context, const Value& value, double* fraction,
                 std::optional<std::string>* query, std::optional<std::string>* condition) {
  query->reset();
  condition->reset();
  *fraction = 0;
  if (value.node->is_number()) {
    *fraction = *value.node->value<double>();
    return *fraction >= 0 && *fraction < 1 ? Status::OK() : wrong_value(value, kPartType);
  }
  MILLSTREAM_ASSIGN(std::string text, read_text(context, value, kPartType));
  if (trimmed(text).empty())
    return usage_error("{}: {} is empty; it must be {}", value.where, value.key, kPartType);
  (loader::is_query_text(text) ? *query : *condition) = std::move(text);
  return Status::OK();
}

Key test_key() {
  Key key{"data",
          "test",
          kPartType,
          "Rows that neither train nor validate, and that the best weights are scored on once at the end. "
          "Written as "
          "data.valid; a row of both is one of the test.",
          nullptr,
          nullptr};
  key.show = [](const Recipe& recipe) { return show_number(recipe.data.test_fraction); };
  key.read = [](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    return read_part(context, value, &recipe.data.test_fraction, &recipe.data.test, &recipe.data.test_if);
  };
  return key;
}

Key valid_key() {
  const std::string type = kPartType;
  Key key{
      "data",
      "valid",
      type,
      "What the model is tested on after each epoch. A fraction keeps that part of the training query's rows "
      "out "
      "of training, chosen by a hash of (file name under the glob's root, row), so that it is the same part "
      "whatever the number of ranks and wherever the files are moved to. A condition on the training query's "
      "outputs, such as \"day >= DATE '2024-12-01'\", does the same to the rows that it is true for. A query "
      "gives "
      "rows of its own.",
      nullptr,
      nullptr};
  key.show = [](const Recipe& recipe) { return show_number(recipe.data.valid_fraction); };
  key.read = [](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    return read_part(context, value, &recipe.data.valid_fraction, &recipe.data.valid, &recipe.data.valid_if);
  };
  return key;
}

Key hidden_key() {
  const std::string type = "a list of whole numbers from 1 to 1000000";
  Key key{"model", "hidden",
          type,    "Widths of the hidden layers, each followed by ReLU; [] is a linear model.",
          nullptr, nullptr};
  key.show = [](const Recipe& recipe) { return fmt::format("[{}]", fmt::join(recipe.model.hidden, ", ")); };
  key.read = [type](ReadContext&, const Value& value, Recipe& recipe) -> Status {
    recipe.model.hidden.clear();
    return read_list(value, type, [&](const Value& item) -> Status {
      const auto width = item.node->value_exact<int64_t>();
      if (!width || *width < 1 || *width > 1000000)
        return wrong_value(item, "a whole number from 1 to 1000000");
      recipe.model.hidden.push_back(*width);
      return Status::OK();
    });
  };
  return key;
}

template <class Accessor>
Key boolean_key(std::string table, std::string name, Accessor place, std::string doc) {
  const std::string type = "true or false";
  Key key{std::move(table), std::move(name), type, std::move(doc), nullptr, nullptr};
  key.show = [place](const Recipe& r) { return place(const_cast<Recipe&>(r)) ? "true" : "false"; };
  key.read = [place, type](ReadContext&, const Value& value, Recipe& recipe) -> Status {
    const auto flag = value.node->value_exact<bool>();
    if (!flag) return wrong_value(value, type);
    place(recipe) = *flag;
    return Status::OK();
  };
  return key;
}

Key class_weights_key() {
  const std::string type = "a list of numbers, at least 0";
  Key key{
      "train",
      "class_weights",
      type,
      "How much a row counts by its target, with loss = \"bce\" (of 0, of 1) and \"cross_entropy\" (of each "
      "class): the loss is the weighted mean. []: all count 1.",
      nullptr,
      nullptr};
  key.show = [](const Recipe& recipe) {
    return fmt::format("[{}]", fmt::join(recipe.train.class_weights, ", "));
  };
  key.read = [type](ReadContext&, const Value& value, Recipe& recipe) -> Status {
    recipe.train.class_weights.clear();
    return read_list(value, type, [&](const Value& item) -> Status {
      const double weight = item.node->is_number() ? *item.node->value<double>() : -1;
      if (!(weight >= 0) || !std::isfinite(weight)) return wrong_value(item, "a number, at least 0");
      recipe.train.class_weights.push_back(weight);
      return Status::OK();
    });
  };
  return key;
}

Key checkpoint_every_key() {
  const std::string type = "\"epoch\" or a whole number, at least 0";
  Key key{"train",
          "checkpoint_every",
          type,
          "When a checkpoint is written, from which --resume goes on: after each \"epoch\", or every so many "
          "batches "
          "(with accumulate at the end of the optimizer's step). 0: only when a signal asks for one.",
          nullptr,
          nullptr};
  key.show = [](const Recipe& recipe) {
    return recipe.train.checkpoint_epochs ? in_quotes("epoch")
                                          : fmt::format("{}", recipe.train.checkpoint_every);
  };
  key.read = [type](ReadContext& context, const Value& value, Recipe& recipe) -> Status {
    if (const auto number = value.node->value_exact<int64_t>()) {
      if (*number < 0) return wrong_value(value, type);
      recipe.train.checkpoint_epochs = false;
      recipe.train.checkpoint_every = *number;
      return Status::OK();
    }
    MILLSTREAM_ASSIGN(const std::string text, read_text(context, value, type));
    if (text != "epoch") return wrong_value(value, type);
    recipe.train.checkpoint_epochs = true;
    recipe.train.checkpoint_every = 0;
    return Status::OK();
  };
  return key;
}

std::vector<std::pair<std::string, features::OnNan>> on_nan_choices() {
  using features::OnNan;
  return {
      {"as_null", OnNan::kSame}, {"error", OnNan::kError}, {"drop", OnNan::kDrop}, {"null", OnNan::kNull}};
}

#define PLACE(expression)   \
  [](Recipe & r) -> auto& { \
    return expression;      \
  }

/// Every key of a recipe but [define], in the order of the documentation.
const std::vector<Key>& recipe_keys() {
  using features::OnNull;
  using loader::Cache;
  using loader::Shuffle;
  using loader::Transport;
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  constexpr int64_t kNoLimit64 = std::numeric_limits<int64_t>::max();
  static const std::vector<Key> keys = {
      text_key("data", "train", true, PLACE(r.data.train), "the text of a query",
               "The query whose rows train the model. Relative file names are relative to the recipe's "
               "folder. One with a "
               "join, GROUP BY, DISTINCT, ORDER BY or LIMIT is run once and its rows are kept in the cache; "
               "`predict` and "
               "`evaluate` run it whole, with their inputs in the place of its first table."),
      valid_key(),
      test_key(),
      text_key("data", "split_by", false, PLACE(r.data.split_by), "a column of the query",
               "Rows are chosen by a hash of this column, so that all rows of a customer, say, are on one "
               "side: of "
               "fractions and folds. Rows where it is null are on one side together."),
      text_key("data", "stratify_by", false, PLACE(r.data.stratify_by), "a column of the query",
               "Rows are chosen evenly from the rows of each value of this column (a class, say), so that "
               "each has its "
               "share on each side: of fractions and folds."),
      integer_key(
          "data", "folds", PLACE(r.data.folds), 0, 10000,
          "Parts of equal size that the rows are cut into, of which one validates and the others train; "
          "instead of valid. Each of data.fold = 0, 1, … is a run of its own. 0: none."),
      integer_key("data", "fold", PLACE(r.data.fold), 0, 9999,
                  "Of data.folds the one that validates, from 0."),
      text_key("data", "target", true, PLACE(r.data.target), "a column of the query",
               "What the model learns to predict: a number; with loss = \"bce\" 0 or 1; with loss = "
               "\"cross_entropy\" a class, a whole number from 0."),
      text_key("data", "weight", false, PLACE(r.data.weight), "a column of the query",
               "How much each row counts in training, numbers of at least 0: the loss is the weighted mean. "
               "Without it "
               "all count 1. Metrics of the validation count all rows alike."),
      choice_key(
          "data", "on_null_target", PLACE(r.data.on_null_target),
          std::vector<std::pair<std::string, OnNull>>{{"error", OnNull::kError}, {"drop", OnNull::kDrop}},
          "What a row does whose target is null, NaN or infinite: \"error\" ends the run and names its "
          "place, "
          "\"drop\" leaves the row out and counts it."),
      choice_key(
          "data", "on_null", PLACE(r.data.on_null),
          std::vector<std::pair<std::string, OnNull>>{{"error", OnNull::kError}, {"drop", OnNull::kDrop}},
          "feature.on_null of features that do not say it themselves."),
      choice_key("data", "on_nan", PLACE(r.data.on_nan), on_nan_choices(),
                 "feature.on_nan of features that do not say it themselves."),
      choice_key(
          "data", "on_corrupt", PLACE(r.data.on_corrupt),
          std::vector<std::pair<std::string, loader::OnCorrupt>>{{"error", loader::OnCorrupt::kError},
                                                                 {"skip", loader::OnCorrupt::kSkip}},
          "What a Parquet row group (or stretch of a CSV file) does that cannot be decoded: \"error\" ends "
          "the "
          "run, \"skip\" leaves the whole row group out, names it and counts its rows. A file whose footer "
          "cannot be read is an error in any case."),
      columns_key(),
      steps_key(),
      choice_key(
          "feature", "on_null", PLACE(last_feature(r).on_null),
          std::vector<std::pair<std::string, OnNull>>{{"error", OnNull::kError}, {"drop", OnNull::kDrop}},
          "What a row does when one of the columns is NaN or infinite, or null and no step fills it: "
          "\"error\" "
          "ends the run and names its place, \"drop\" leaves the row out of training and counts it."),
      choice_key("feature", "on_nan", PLACE(last_feature(r).on_nan), on_nan_choices(),
                 "What a row does when one of the columns is NaN or infinite: \"as_null\" what on_null says, "
                 "\"error\" "
                 "or \"drop\" as there, and \"null\" takes such a value for a null, which steps may fill."),
      integer_key(
          "loader", "batch_size", PLACE(r.loader.batch_size), 1, int64_t{1} << 30,
          "Rows of a batch, of all trainers together. Every batch has just so many; only the last one of an "
          "epoch may have fewer."),
      choice_key(
          "loader", "shuffle", PLACE(r.loader.shuffle),
          std::vector<std::pair<std::string, Shuffle>>{
              {"none", Shuffle::kNone}, {"window", Shuffle::kWindow}, {"full", Shuffle::kFull}},
          "The order of rows in an epoch: \"none\" is file order; \"window\" mixes rows from places all over "
          "the data, in another order each epoch; \"full\" draws each from all rows alike, which are kept "
          "packed "
          "for it in memory or, where they take more than half of the budget, on disk (on one host, 4 bytes "
          "a "
          "feature and row)."),
      integer_key(
          "loader", "window", PLACE(r.loader.window), 1, int64_t{1} << 40,
          "Rows that are shuffled among each other with shuffle = \"window\", of all lanes together. More "
          "mix better and take more memory: 2 x window x bytes of a row."),
      integer_key("loader", "lanes", PLACE(r.loader.lanes), 1, 65536,
                  "Places in the data that are read side by side with shuffle = \"window\"; never more than "
                  "there are "
                  "row groups, or rows of a batch."),
      integer_key(
          "loader", "prefetch", PLACE(r.loader.prefetch), 0, 1024,
          "Batches that are prepared ahead, for each trainer. 0: 64 Ki rows, 8 batches at least and 64 at "
          "most, or what there is memory for."),
      choice_key(
          "loader", "cache", PLACE(r.loader.cache),
          std::vector<std::pair<std::string, Cache>>{{"none", Cache::kNone},
                                                     {"memory", Cache::kMemory},
                                                     {"disk", Cache::kDisk},
                                                     {"auto", Cache::kAuto}},
          "Where the rows are kept that the query gives, narrow and not yet scaled, so that files are "
          "decoded "
          "once: in \"memory\" (half of the budget at most, on one host), on \"disk\" (in the cache "
          "directory, "
          "for the next run too), or nowhere. \"auto\" takes memory where they fit, else disk where that has "
          "room. Data of few row groups that is shuffled is kept on disk also with \"none\". It changes no "
          "batch."),
      choice_key(
          "loader", "transport", PLACE(r.loader.transport),
          std::vector<std::pair<std::string, Transport>>{
              {"auto", Transport::kAuto}, {"shared", Transport::kShared}, {"messages", Transport::kMessages}},
          "How rows come to a trainer on the same host: by \"shared\" memory or by \"messages\"; \"auto\" "
          "takes "
          "shared memory where there is room for it. It changes no batch."),
      choice_key(
          "model", "kind", PLACE(r.model.kind),
          std::vector<std::pair<std::string, std::string>>{
              {"mlp", "mlp"}, {"wide_deep", "wide_deep"}, {"dcn", "dcn"}},
          "A multi-layer perceptron, whose default widths are those of TaxiDemandNN; the same beside a "
          "linear "
          "model (Wide & Deep); or behind layers that multiply the features with one another (Deep & Cross, "
          "version 2)."),
      hidden_key(),
      number_key("model", "dropout", PLACE(r.model.dropout), 0, true, 1,
                 "The part of the hidden layers' outputs that is left out in training, another one for every "
                 "row and "
                 "step; the same whatever the number of trainers."),
      boolean_key("model", "batch_norm", PLACE(r.model.batch_norm),
                  "Hidden layers are normalised over the rows of the batch, of all trainers, before ReLU."),
      integer_key("model", "cross_layers", PLACE(r.model.cross_layers), 1, 100, "With kind = \"dcn\"."),
      choice_key(
          "model", "init", PLACE(r.model.init),
          std::vector<std::pair<std::string, std::string>>{{"torch", "torch"},
                                                           {"xavier_uniform", "xavier_uniform"},
                                                           {"xavier_normal", "xavier_normal"},
                                                           {"kaiming_uniform", "kaiming_uniform"},
                                                           {"kaiming_normal", "kaiming_normal"}},
          "The first weights of layers: as torch.nn.Linear draws them, or by torch.nn.init's functions (for "
          "ReLU) with biases of 0."),
      integer_key(
          "model", "classes", PLACE(r.model.classes), 0, int64_t{1} << 24,
          "With loss = \"cross_entropy\": how many classes there are, one more than the largest value of the "
          "target. 0: the model has one output."),
      integer_key("train", "epochs", PLACE(r.train.epochs), 1, 1000000, "Passes over the training rows."),
      choice_key("train", "optimizer", PLACE(r.train.optimizer),
                 std::vector<std::pair<std::string, std::string>>{
                     {"adam", "adam"}, {"adamw", "adamw"}, {"sgd", "sgd"}},
                 "As PyTorch's Adam, AdamW and SGD."),
      number_key("train", "learning_rate", PLACE(r.train.learning_rate), 0, false, kNoLimit,
                 "The step's length; with a schedule the largest."),
      choice_key(
          "train", "schedule", PLACE(r.train.schedule),
          std::vector<std::pair<std::string, std::string>>{
              {"constant", "constant"}, {"linear", "linear"}, {"cosine", "cosine"}, {"step", "step"}},
          "How the learning rate goes on after the warm-up: it stays; falls to learning_rate_end by the last "
          "step in a straight line or along half a cosine; or is multiplied by decay_factor every "
          "decay_every "
          "epochs."),
      integer_key("train", "warmup_steps", PLACE(r.train.warmup_steps), 0, kNoLimit64,
                  "Steps in which the learning rate rises from almost 0, in a straight line."),
      number_key("train", "learning_rate_end", PLACE(r.train.learning_rate_end), 0, true, kNoLimit,
                 "With schedule = \"linear\" or \"cosine\"."),
      integer_key("train", "decay_every", PLACE(r.train.decay_every), 1, 1000000,
                  "With schedule = \"step\": epochs."),
      number_key("train", "decay_factor", PLACE(r.train.decay_factor), 0, false, 1,
                 "With schedule = \"step\"."),
      number_key(
          "train", "weight_decay", PLACE(r.train.weight_decay), 0, true, kNoLimit,
          "Decay of the weights: decoupled from the gradient with adamw, an L2 penalty with adam and sgd."),
      number_key("train", "momentum", PLACE(r.train.momentum), 0, true, 1, "With optimizer = \"sgd\"."),
      choice_key(
          "train", "loss", PLACE(r.train.loss),
          std::vector<std::pair<std::string, std::string>>{{"mse", "mse"},
                                                           {"mae", "mae"},
                                                           {"huber", "huber"},
                                                           {"bce", "bce"},
                                                           {"cross_entropy", "cross_entropy"}},
          "For a number: mean squared error, mean absolute error, or Huber's between them. For a target of 0 "
          "and 1: \"bce\", binary cross-entropy of logits. For a target that is a class, 0 to classes - 1: "
          "\"cross_entropy\"."),
      class_weights_key(),
      number_key("train", "huber_delta", PLACE(r.train.huber_delta), 0, false, kNoLimit,
                 "With loss = \"huber\": errors up to here count squared, larger ones in proportion."),
      number_key("train", "clip_norm", PLACE(r.train.clip_norm), 0, true, kNoLimit,
                 "The largest norm that the gradients of a step may have, all together; larger ones are "
                 "scaled down. "
                 "0: no limit."),
      integer_key("train", "accumulate", PLACE(r.train.accumulate), 1, 1000000,
                  "Batches whose gradients make up one step of the optimizer, weighted by rows."),
      checkpoint_every_key(),
      integer_key("train", "keep_checkpoints", PLACE(r.train.keep_checkpoints), 1, 1000000,
                  "How many checkpoints are kept, the newest."),
      boolean_key("train", "tensorboard", PLACE(r.train.tensorboard),
                  "Event files for TensorBoard in the run directory: what metrics.jsonl has, as curves."),
      boolean_key(
          "train", "histograms", PLACE(r.train.histograms),
          "In the event files also, after each epoch, histograms of all weights and of the gradients of the "
          "epoch's last step."),
      integer_key(
          "train", "patience", PLACE(r.train.patience), 0, 1000000,
          "Training stops when so many epochs in a row brought no better validation (rmse with loss = "
          "\"mse\", mae with \"mae\" and \"huber\", log_loss with the others). 0: it goes on. Whatever it "
          "is, the bundle has the weights of the best epoch."),
      integer_key("train", "seed", PLACE(r.train.seed), 0, kNoLimit64,
                  "Decides the first weights and the order of rows: the same seed gives the same run, on any "
                  "number of "
                  "ranks."),
      choice_key(
          "train", "precision", PLACE(r.train.precision),
          std::vector<std::pair<std::string, std::string>>{{"float32", "float32"}, {"float64", "float64"}},
          "Of the model and its gradients. Batches are float32 either way."),
  };
  return keys;
}
#undef PLACE

struct TableDeclaration {
  std::string name, title, doc;
};
const std::vector<TableDeclaration>& recipe_tables() {
  static const std::vector<TableDeclaration> tables = {
      {"define", "[define]",
       "Names of your choice with a text each; ${name} stands for it in every string of the recipe, and "
       "--set "
       "define.NAME=VALUE replaces it. A VALUE that is a path is relative to the working directory."},
      {"data", "[data]", "Which rows."},
      {"feature", "[[feature]]",
       "Which columns the model sees and how. As many of these as you like, at least one."},
      {"loader", "[loader]", "How rows become batches."},
      {"model", "[model]", "What is trained."},
      {"train", "[train]", "How it is trained."},
  };
  return tables;
}

std::vector<std::string> table_names() {
  std::vector<std::string> names;
  for (const auto& table : recipe_tables()) names.push_back(table.name);
  return names;
}
std::vector<std::string> key_names(std::string_view table) {
  std::vector<std::string> names;
  for (const Key& key : recipe_keys())
    if (key.table == table) names.push_back(key.name);
  return names;
}
const Key* find_key(std::string_view table, std::string_view name) {
  for (const Key& key : recipe_keys())
    if (key.table == table && key.name == name) return &key;
  return nullptr;
}

/// What to say of a key that does not exist: it may belong to another table.
std::string key_hint(const std::string& table, const std::string& name) {
  for (const Key& key : recipe_keys())
    if (key.name == name) return fmt::format("; did you mean '{}'?", key.full_name());
  if (const auto near = nearest_name(name, key_names(table)))
    return fmt::format("; did you mean '{}.{}'?", table, *near);
  std::vector<std::string> all;
  for (const Key& key : recipe_keys()) all.push_back(key.name);
  if (const auto near = nearest_name(name, all))
    for (const Key& key : recipe_keys())
      if (key.name == *near) return fmt::format("; did you mean '{}'?", key.full_name());
  const auto known = key_names(table);
  return known.empty() ? name_hint(name, table_names()) : name_hint(name, known);
}

class Reader {
 public:
  Reader(std::string path, std::string working_directory)
      : working_directory_(std::move(working_directory)),
        label_("recipe " + std::filesystem::path(path).filename().string()) {
    recipe_.path = std::move(path);
    recipe_.name = std::filesystem::path(recipe_.path).stem().string();
    recipe_.data.base_directory = std::filesystem::path(recipe_.path).parent_path().string();
  }

  Result<Recipe> read(const std::string& text, const std::vector<std::string>& settings) {
    MILLSTREAM_TRY(parse_settings(settings));
    toml::parse_result parsed = toml::parse(text);
    if (!parsed) return syntax_error(parsed.error(), text);
    const toml::table& root = parsed.table();
    MILLSTREAM_TRY(check_tables(root));
    MILLSTREAM_TRY(read_definitions(root));
    for (const auto& table : recipe_tables()) {
      if (table.name == "define" || table.name == "feature") continue;
      const toml::node* node = root.get(table.name);
      MILLSTREAM_TRY(read_keys(table.name, node ? node->as_table() : nullptr, table.name));
    }
    MILLSTREAM_TRY(read_features(root));
    MILLSTREAM_TRY(context_.definitions.check_settings_used(defined_in_recipe_));
    MILLSTREAM_TRY(check_together());
    // A query of the command line names files as the rest of the command line does.
    if (setting_of("data.valid") && recipe_.data.valid)
      recipe_.data.valid_base_directory = working_directory_;
    if (setting_of("data.train")) {
      if (recipe_.data.valid_base_directory.empty())
        recipe_.data.valid_base_directory = recipe_.data.base_directory;
      recipe_.data.base_directory = working_directory_;
    }
    for (const auto& setting : settings_) recipe_.text += fmt::format("# --set {}\n", setting.argument);
    recipe_.text += text;
    recipe_.loader.seed = recipe_.train.seed;
    return std::move(recipe_);
  }

 private:
  std::string at(const toml::source_region& place) const {
    return fmt::format("{}, line {}, column {}", label_, place.begin.line, place.begin.column);
  }

  /// The parser's complaint with the line and a caret under the place.
  Status syntax_error(const toml::parse_error& error, const std::string& text) const {
    std::string description(error.description());
    // "Error while parsing value: ..." says twice that it is an error.
    if (description.rfind("Error while ", 0) == 0) description = description.substr(12);
    const auto place = error.source().begin;
    size_t begin = 0;
    for (uint32_t line = 1; line < place.line && begin != std::string::npos; ++line) {
      begin = text.find('\n', begin);
      if (begin != std::string::npos) ++begin;
    }
    std::string shown;
    if (begin != std::string::npos && begin < text.size()) {
      std::string line = text.substr(begin, text.find('\n', begin) - begin);
      std::replace(line.begin(), line.end(), '\t', ' ');
      shown = fmt::format("\n  {}\n  {}^", line, std::string(place.column > 0 ? place.column - 1 : 0, ' '));
    }
    return usage_error("{}: not valid TOML: {}{}", at(error.source()), description, shown);
  }

  Status parse_settings(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      Setting setting;
      setting.argument = argument;
      const size_t equals = argument.find('=');
      if (equals == std::string::npos || equals == 0)
        return usage_error("--set {}: it is written --set KEY=VALUE, such as --set train.epochs=2", argument);
      setting.key = trimmed(std::string_view(argument).substr(0, equals));
      setting.raw = argument.substr(equals + 1);
      toml::parse_result parsed = toml::parse("value = " + setting.raw);
      if (parsed && parsed.table().size() == 1)
        setting.holder = std::move(parsed).table();
      else
        setting.holder.insert_or_assign("value", setting.raw);
      const size_t dot = setting.key.find('.');
      const std::string table = setting.key.substr(0, dot);
      const std::string name = dot == std::string::npos ? "" : setting.key.substr(dot + 1);
      const auto tables = table_names();
      if (table == "feature")
        return usage_error("--set {}: [[feature]] tables can only be written in the recipe", argument);
      if (dot == std::string::npos || std::find(tables.begin(), tables.end(), table) == tables.end() ||
          (table != "define" && !find_key(table, name)))
        return usage_error("--set {}: there is no key {}{}", argument, setting.key,
                           key_hint(table, name.empty() ? setting.key : name));
      settings_.push_back(std::move(setting));
    }
    return Status::OK();
  }

  const Setting* setting_of(const std::string& key) const {
    for (auto it = settings_.rbegin(); it != settings_.rend(); ++it)
      if (it->key == key) return &*it;
    return nullptr;
  }

  Status check_tables(const toml::table& root) const {
    const auto names = table_names();
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      const bool known = std::find(names.begin(), names.end(), name) != names.end();
      if (!known && (node.is_table() || node.is_array_of_tables()))
        return usage_error("{}: unknown table [{}]{}", at(key.source()), name, name_hint(name, names));
      if (!known)
        return usage_error("{}: the key {} stands outside every table{}", at(key.source()), name,
                           key_hint("", name));
      if (name == "feature") {
        if (!node.is_array_of_tables())
          return usage_error("{}: feature must be written as [[feature]], once or several times",
                             at(key.source()));
      } else if (!node.is_table()) {
        return usage_error("{}: {} is {}; it must be a table, [{}]", at(key.source()), name,
                           describe_node(node), name);
      }
    }
    return Status::OK();
  }

  Status read_definitions(const toml::table& root) {
    if (const toml::node* node = root.get("define")) {
      for (const auto& [key, value] : *node->as_table()) {
        const std::string name(key.str());
        if (value.is_table() || value.is_array() || value.is_date() || value.is_time() ||
            value.is_date_time())
          return usage_error("{}: define.{} is {}; it must be a string, a number or true or false",
                             at(value.source()), name, describe_node(value));
        const auto string = value.value_exact<std::string_view>();
        context_.definitions.add(name, string ? std::string(*string) : describe_node(value), false);
        defined_in_recipe_.insert(name);
      }
    }
    for (const auto& setting : settings_) {
      if (setting.key.rfind("define.", 0) != 0) continue;
      const auto string = setting.node()->value_exact<std::string_view>();
      context_.definitions.add(setting.key.substr(7),
                               resolved_path(string ? std::string(*string) : setting.raw), true);
    }
    return Status::OK();
  }

  /// Definitions of the command line that are paths are relative to the working directory.
  std::string resolved_path(const std::string& value) const {
    if (value.empty() || value.front() == '/' || value.find("://") != std::string::npos) return value;
    std::error_code ignored;
    const auto path = std::filesystem::path(working_directory_) / value;
    const bool exists = std::filesystem::exists(path, ignored);
    const bool spaced = value.find_first_of(" \t\n") != std::string::npos;  // an expression such as "a / b"
    if (!exists && (spaced || value.find('/') == std::string::npos)) return value;
    std::string normal = path.lexically_normal().string();
    if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
    return normal;
  }

  /// Reads the keys of one table; `shown` is what messages call it ("feature 2").
  Status read_keys(const std::string& table, const toml::table* node, const std::string& shown) {
    if (node) {
      for (const auto& [key, value] : *node) {
        const std::string name(key.str());
        if (!find_key(table, name))
          return usage_error("{}: unknown key {}.{}{}", at(key.source()), table, name, key_hint(table, name));
      }
    }
    for (const Key& key : recipe_keys()) {
      if (key.table != table) continue;
      Value value;
      value.key = shown + "." + key.name;
      if (const Setting* setting = setting_of(key.full_name())) {
        value.node = setting->node();
        value.raw = &setting->raw;
        value.where = "--set " + setting->argument;
      } else if (node && (value.node = node->get(key.name))) {
        value.where = at(value.node->source());
      } else if (!key.show) {
        return usage_error("{}: {} is missing; it is {}", label_, value.key, key.type);
      } else {
        continue;
      }
      MILLSTREAM_TRY(key.read(context_, value, recipe_));
    }
    return Status::OK();
  }

  Status read_features(const toml::table& root) {
    const toml::node* node = root.get("feature");
    if (!node || node->as_array()->empty())
      return usage_error("{}: there is no [[feature]]; at least one with columns = [...] is needed", label_);
    const toml::array& features = *node->as_array();
    for (size_t i = 0; i < features.size(); ++i) {
      auto& feature = recipe_.data.features.emplace_back();
      feature.on_null = recipe_.data.on_null;
      feature.on_nan = recipe_.data.on_nan;
      MILLSTREAM_TRY(read_keys("feature", features[i].as_table(),
                               features.size() == 1 ? "feature" : fmt::format("feature {}", i + 1)));
    }
    return Status::OK();
  }

  /// Keys that must fit each other.
  Status check_together() const {
    if (recipe_.train.momentum != 0 && recipe_.train.optimizer != "sgd")
      return usage_error(
          "{}: train.momentum is {}, which only optimizer = \"sgd\" has; the optimizer is \"{}\"", label_,
          recipe_.train.momentum, recipe_.train.optimizer);
    return Status::OK();
  }

  std::string working_directory_, label_;
  std::vector<Setting> settings_;
  ReadContext context_;
  std::set<std::string> defined_in_recipe_;
  Recipe recipe_;
};

/// `text` broken into lines of at most `width`, each after `indent` spaces.
std::string wrapped(std::string_view text, size_t indent, size_t width) {
  std::string out, line;
  const std::string margin(indent, ' ');
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      out += margin + line + "\n";
      line.clear();
    }
    if (!line.empty()) line += ' ';
    line += word;
    begin = end + 1;
  }
  return out + margin + line + "\n";
}

Recipe default_recipe() {
  Recipe recipe;
  recipe.data.features.emplace_back();
  return recipe;
}

std::string escaped_for_table(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2))
    text.insert(at, "\\");
  return text;
}

}  // namespace

Result<std::string> read_recipe_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return file_error("there is no recipe {}", path);
  if (std::filesystem::is_directory(path, error))
    return file_error("the recipe {} is a folder; it must be a TOML file", path);
  std::ifstream stream(path, std::ios::binary);
  if (!stream) return file_error("the recipe {} can't be read: {}", path, std::strerror(errno));
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

Result<Recipe> parse_recipe(const std::string& text, const std::string& path,
                            const std::vector<std::string>& settings, const std::string& working_directory) {
  const auto absolute = (std::filesystem::path(working_directory) / path).lexically_normal().string();
  return Reader(absolute, working_directory).read(text, settings);
}

std::string recipe_reference_text() {
  const Recipe defaults = default_recipe();
  std::string out;
  for (const auto& table : recipe_tables()) {
    out += fmt::format("{}{}\n{}", out.empty() ? "" : "\n", table.title, wrapped(table.doc, 2, 100));
    for (const Key& key : recipe_keys()) {
      if (key.table != table.name) continue;
      out += fmt::format("  {:<15} {}; {}\n", key.name, key.type,
                         key.show ? "default " + key.show(defaults) : "required");
      out += wrapped(key.doc, 18, 100);
    }
  }
  return out;
}

std::string recipe_reference_markdown() {
  const Recipe defaults = default_recipe();
  std::string out;
  for (const auto& table : recipe_tables()) {
    out += fmt::format("### `{}`\n\n{}\n\n", table.title, table.doc);
    bool first = true;
    for (const Key& key : recipe_keys()) {
      if (key.table != table.name) continue;
      if (first) out += "| key | value | default | meaning |\n|---|---|---|---|\n";
      first = false;
      out += fmt::format("| `{}` | {} | {} | {} |\n", key.name, escaped_for_table(key.type),
                         key.show ? fmt::format("`{}`", key.show(defaults)) : "required",
                         escaped_for_table(key.doc));
    }
    if (!first) out += "\n";
  }
  return out;
}

}  // namespace millstream::cli
