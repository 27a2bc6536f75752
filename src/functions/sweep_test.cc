// Every function over edge values and NULLs of its types, held against what DuckDB gives (testdata/sweep.txt, made
// by testdata/make_sweep.py). Arguments are columns: whole ones first, then rows that must fail one by one; and
// constants.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "expr/bounds.h"
#include "expr/expression.h"
#include "expr/function.h"
#include "expr/type.h"

namespace millstream::functions {
namespace {

using expr::ExprPtr;
using expr::TypePtr;

struct Group {
  std::string name;
  std::vector<std::string> types;
  std::string result;
  std::vector<std::vector<std::string>> rows;  // arguments, then the result
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> out(1);
  for (char c : text) {
    if (c == separator) {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

std::vector<Group> read_groups() {
  std::vector<Group> groups;
  std::ifstream file(std::string(MILLSTREAM_SOURCE_DIR) + "/src/functions/testdata/sweep.txt");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with('@')) {
      const size_t bar = line.find('|', line.starts_with("@|||") ? 3
                                        : line[1] == '|'         ? 2
                                                                 : 1);  // | and || are names
      Group group;
      group.name = line.substr(1, bar - 1);
      auto rest = split(line.substr(bar + 1), '|');
      group.types = split(rest[0], ';');
      group.result = rest[1];
      groups.push_back(std::move(group));
    } else {
      groups.back().rows.push_back(split(line, '\t'));
    }
  }
  return groups;
}

/// Texts as a column of `type`; \N is NULL.
std::shared_ptr<arrow::Array> column(const std::vector<std::string>& texts, const TypePtr& type) {
  arrow::StringBuilder builder;
  for (const std::string& text : texts) {
    EXPECT_TRUE((text == "\\N" ? builder.AppendNull() : builder.Append(text)).ok());
  }
  auto strings = builder.Finish().ValueOrDie();
  auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("s", arrow::utf8())}), strings->length(),
                                        arrow::ArrayVector{strings});
  auto cast = expr::make_cast(expr::make_column(0, *batch->schema()->field(0)), type).ValueOrDie();
  auto values = expr::evaluate(*cast, *batch);
  EXPECT_TRUE(values.ok()) << values.status().ToString();
  return values.ok() ? *values : nullptr;
}

Result<ExprPtr> literal(const std::string& text) {
  if (text.starts_with('\'')) {
    return expr::make_literal(arrow::MakeScalar(text.substr(1, text.size() - 2)));
  }
  return expr::make_literal(arrow::MakeScalar(std::stoi(text)));
}

/// The group's expression over its columns.
Result<ExprPtr> expression_of(const Group& group, std::vector<ExprPtr> columns) {
  if (group.name == "cast" || group.name == "try_cast") {
    MILLSTREAM_ASSIGN(auto type, expr::parse_type(group.types.back().substr(1)));
    return expr::make_cast(columns[0], type, group.name == "try_cast");
  }
  std::vector<ExprPtr> arguments;
  size_t next = 0;
  for (const std::string& type : group.types) {
    if (type.starts_with('=')) {
      MILLSTREAM_ASSIGN(auto value, literal(type.substr(1)));
      arguments.push_back(std::move(value));
    } else {
      arguments.push_back(columns[next++]);
    }
  }
  return expr::make_call(group.name, arguments);
}

/// Values as text, as DuckDB casts them to VARCHAR.
std::vector<std::string> texts_of(const std::shared_ptr<arrow::Array>& values) {
  auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("v", values->type())}), values->length(),
                                        arrow::ArrayVector{values});
  auto cast = expr::make_cast(expr::make_column(0, *batch->schema()->field(0)), arrow::utf8()).ValueOrDie();
  auto strings = expr::evaluate(*cast, *batch).ValueOrDie();
  std::vector<std::string> out;
  for (int64_t i = 0; i < strings->length(); ++i) {
    out.push_back(strings->IsNull(i)
                      ? "\\N"
                      : std::string(static_cast<const arrow::StringArray&>(*strings).GetView(i)));
  }
  return out;
}

/// Equal; results of the C math library may differ in the last place.
bool same(const Group& group, const std::string& got, const std::string& wanted) {
  if (got == wanted) return true;
  static const std::set<std::string> kMath = {
      "ln",   "log10", "log2",  "log",   "exp",   "cbrt",    "sin",     "cos", "tan",
      "asin", "acos",  "atan",  "atan2", "power", "degrees", "radians", "cot", "sinh",
      "cosh", "tanh",  "asinh", "acosh", "atanh", "gamma",   "lgamma"};
  if (!kMath.count(group.name) || got == "\\N" || wanted == "\\N") return false;
  double a = std::stod(got), b = std::stod(wanted);
  return std::abs(a - b) <= 4e-16 * std::abs(b);
}

TEST(Sweep, EqualsDuckDb) {
  auto groups = read_groups();
  ASSERT_GT(groups.size(), 500u);
  std::map<std::string, int> wrong;
  for (const Group& group : groups) {
    std::vector<TypePtr> types;
    for (const std::string& name : group.types) {
      if (!name.starts_with('=')) types.push_back(expr::parse_type(name).ValueOrDie());
    }
    std::string title = group.name;
    for (const std::string& name : group.types) title += " " + name;
    auto complain = [&](const std::string& what) {
      if (++wrong[title] <= 3) ADD_FAILURE() << title << ": " << what;
    };
    arrow::FieldVector fields;
    std::vector<ExprPtr> columns;
    for (size_t i = 0; i < types.size(); ++i) {
      fields.push_back(arrow::field(std::string(1, static_cast<char>('a' + i)), types[i]));
      columns.push_back(expr::make_column(static_cast<int>(i), *fields.back()));
    }
    auto e = expression_of(group, columns);
    if (!e.ok()) {
      complain(e.status().message());
      continue;
    }
    if (expr::sql_type_name(*(*e)->type) != group.result) {
      complain("type " + expr::sql_type_name(*(*e)->type) + ", DuckDB has " + group.result);
    }
    auto batch_of = [&](const std::vector<std::vector<std::string>>& rows) {
      arrow::ArrayVector arrays;
      for (size_t i = 0; i < types.size(); ++i) {
        std::vector<std::string> texts;
        for (const auto& row : rows) texts.push_back(row[i]);
        arrays.push_back(column(texts, types[i]));
      }
      return arrow::RecordBatch::Make(arrow::schema(fields), static_cast<int64_t>(rows.size()), arrays);
    };
    auto row_text = [](const std::vector<std::string>& row) {
      std::string out;
      for (size_t i = 0; i + 1 < row.size(); ++i) out += (i ? ", " : "") + row[i];
      return out;
    };
    std::vector<std::vector<std::string>> good;
    for (const auto& row : group.rows) {
      if (row.back() != "\\E") {
        good.push_back(row);
        continue;
      }
      auto failed = expr::evaluate(**e, *batch_of({row}));
      if (failed.ok()) {
        complain("(" + row_text(row) + ") gives " + texts_of(*failed)[0] + ", DuckDB an error");
      } else if (error_category(failed.status()) != ErrorCategory::kData ||
                 !error_position(failed.status())) {
        complain("(" + row_text(row) + "): " + failed.status().ToString());
      }
    }
    if (good.empty()) continue;
    auto batch = batch_of(good);
    auto values = expr::evaluate(**e, *batch);
    if (!values.ok()) {
      complain(values.status().message() + ", DuckDB has a value");
      continue;
    }
    // 24:00:00 is a time here, which Arrow does not think.
    auto valid = (*values)->type_id() == arrow::Type::TIME64 ? Status::OK() : (*values)->ValidateFull();
    if (!valid.ok()) complain(valid.ToString());
    auto texts = texts_of(*values);
    for (size_t i = 0; i < good.size(); ++i) {
      if (!same(group, texts[i], good[i].back())) {
        complain("(" + row_text(good[i]) + ") gives " + texts[i] + ", DuckDB " + good[i].back());
      }
    }
    // The same from a slice, and with constants for the arguments.
    if (good.size() > 1) {
      auto sliced = expr::evaluate(**e, *batch->Slice(1));
      if (!sliced.ok() || texts_of(*sliced) != std::vector<std::string>(texts.begin() + 1, texts.end())) {
        complain("a slice gives something else");
      }
    }
    for (size_t i = 0; i < std::min<size_t>(good.size(), 4); ++i) {
      std::vector<ExprPtr> constants;
      for (int c = 0; c < batch->num_columns(); ++c) {
        auto value = expr::make_literal(batch->column(c)->GetScalar(static_cast<int64_t>(i)).ValueOrDie());
        constants.push_back(expr::make_cast(value, types[static_cast<size_t>(c)]).ValueOrDie());
      }
      auto constant = expression_of(group, constants);
      if (!constant.ok()) continue;  // a decimal literal's digits may be more than the cast keeps
      auto value = expr::evaluate(**constant, *batch->Slice(0, 1));
      if (!value.ok() || texts_of(*value)[0] != texts[i]) {
        complain("(" + row_text(good[i]) + ") as constants gives " +
                 (value.ok() ? texts_of(*value)[0] : value.status().message()));
      }
    }
  }
}

/// What keeps `values` from lying within `bounds`; empty where they do.
std::string outside(const expr::Bounds& bounds, const arrow::Array& values) {
  const expr::Bounds seen = expr::observed_bounds(values);
  if (seen.none) return "";
  if (bounds.none) return "there are values";
  const auto& type = *values.type();
  if (bounds.whole.low && seen.whole.low->value < bounds.whole.low->value)
    return expr::limit_text(seen.whole.low->value, type) + " is below";
  if (bounds.whole.high && seen.whole.high->value > bounds.whole.high->value)
    return expr::limit_text(seen.whole.high->value, type) + " is above";
  if (bounds.real.low && seen.real.low && seen.real.low->value < bounds.real.low->value)
    return expr::limit_text(seen.real.low->value) + " is below";
  if (bounds.real.high && !seen.real.high) return "there are NaNs";
  if (bounds.real.high && seen.real.high->value > bounds.real.high->value)
    return expr::limit_text(seen.real.high->value) + " is above";
  if (bounds.values) {
    const auto known = texts_of(bounds.values);
    for (const std::string& text : texts_of(arrow::MakeArray(values.data()))) {
      if (text != "\\N" && std::find(known.begin(), known.end(), text) == known.end())
        return text + " is not known";
    }
  }
  return "";
}

/// Bounds of the columns as a file would claim them, or as a few known values.
std::vector<expr::Bounds> column_bounds(const arrow::RecordBatch& batch, bool as_values) {
  std::vector<expr::Bounds> bounds;
  for (const auto& column : batch.columns()) {
    bounds.push_back(expr::observed_bounds(*column));
    if (!as_values || bounds.back().none) continue;
    arrow::ArrayVector values;
    for (int64_t row = 0; row < column->length(); ++row) {
      if (column->IsValid(row)) values.push_back(column->Slice(row, 1));
    }
    if (values.size() <= 4) bounds.back().values = arrow::Concatenate(values).ValueOrDie();
  }
  return bounds;
}

TEST(Sweep, ResultsLieWithinTheirBounds) {
  std::map<std::string, int> wrong;
  int64_t checked = 0, limited = 0;
  for (const Group& group : read_groups()) {
    std::vector<TypePtr> types;
    std::string title = group.name;
    for (const std::string& name : group.types) {
      title += " " + name;
      if (!name.starts_with('=')) types.push_back(expr::parse_type(name).ValueOrDie());
    }
    arrow::FieldVector fields;
    std::vector<ExprPtr> columns;
    for (size_t i = 0; i < types.size(); ++i) {
      fields.push_back(arrow::field(std::string(1, static_cast<char>('a' + i)), types[i]));
      columns.push_back(expr::make_column(static_cast<int>(i), *fields.back()));
    }
    const auto made = expression_of(group, columns);
    if (!made.ok() || types.empty()) continue;
    const expr::Expression& e = **made;
    arrow::ArrayVector arrays(types.size());
    for (size_t i = 0; i < types.size(); ++i) {
      std::vector<std::string> texts;
      for (const auto& row : group.rows) {
        if (row.back() != "\\E") texts.push_back(row[i]);
      }
      arrays[i] = column(texts, types[i]);
    }
    const int64_t rows = arrays[0]->length();
    const auto all = arrow::RecordBatch::Make(arrow::schema(fields), rows, arrays);
    const auto check = [&](std::vector<int32_t> chosen, bool as_values) {
      const auto batch = expr::take_rows(*all, chosen).ValueOrDie();
      const auto given = expr::evaluate(e, *batch).ValueOrDie();
      const auto known = column_bounds(*batch, as_values);
      const expr::Bounds bounds = expr::BoundInference(known).infer(e);
      ++checked;
      limited += !expr::bounds_text(bounds, e.type).empty();
      std::string problem = outside(bounds, *given);
      for (const bool outcome : {true, false}) {
        if (e.type->id() != arrow::Type::BOOL || !problem.empty()) break;
        const ExprPtr predicate = outcome ? *made : expr::make_call("not", {*made}).ValueOrDie();
        expr::BoundInference filtered(known);
        filtered.assume(*predicate);
        const auto passed = expr::evaluate_filter(*predicate, *batch).ValueOrDie();
        if (filtered.impossible() && !passed.empty()) problem = "impossible, but there are rows";
        const auto survivors = expr::take_rows(*batch, passed).ValueOrDie();
        for (int c = 0; c < survivors->num_columns() && !passed.empty() && problem.empty(); ++c)
          problem = outside(filtered.column(c, *types[static_cast<size_t>(c)]), *survivors->column(c));
      }
      if (problem.empty() || ++wrong[title] > 3) return;
      std::string text;
      for (const auto& column : batch->columns()) {
        for (const std::string& value : texts_of(column)) text += " " + value;
        text += ";";
      }
      ADD_FAILURE() << title << ":" << text << " bounds " << expr::bounds_text(bounds, e.type) << ": "
                    << problem;
    };
    std::vector<int32_t> every;
    for (int32_t row = 0; row < rows; ++row) every.push_back(row);
    check(every, false);
    for (int32_t row = 0; row < rows; ++row) {
      check({row}, row % 2 == 0);
      for (const int32_t step : {1, 3, 7}) {
        if (row + step < rows) check({row, row + step}, row % 3 == 0);
      }
      if (row + 8 < rows) check({row, row + 2, row + 5, row + 8}, row % 4 == 0);
    }
  }
  EXPECT_GT(checked, 50000);
  EXPECT_GT(limited, checked / 2);
}

TEST(Functions, AreDocumented) {
  for (const expr::Function* f : expr::FunctionRegistry::instance().all()) {
    EXPECT_FALSE(f->doc.empty()) << f->name;
    EXPECT_FALSE(f->examples.empty()) << f->name;
    EXPECT_FALSE(f->overloads.empty() && f->forms.empty()) << f->name;
    EXPECT_EQ(expr::FunctionRegistry::instance().find(f->name), f);
  }
}

}  // namespace
}  // namespace millstream::functions
