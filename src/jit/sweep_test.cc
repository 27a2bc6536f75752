// Generated code against the interpreter: every function of the sweep (functions/testdata/sweep.txt: all functions
// over the edge values of their types) with NULLs and without, over the numbers of rows at which chunks end, over
// slices, and over rows that fail.

#include <cstring>
#include <fstream>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "expr/expression.h"
#include "expr/function.h"
#include "expr/type.h"
#include "jit/compiler.h"
#include "jit/program.h"

namespace millstream::jit {
namespace {

using expr::ExprPtr;
using expr::TypePtr;
using Batch = std::shared_ptr<arrow::RecordBatch>;

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

std::shared_ptr<arrow::Array> column(const std::vector<std::string>& texts, const TypePtr& type) {
  arrow::StringBuilder builder;
  for (const std::string& text : texts)
    EXPECT_TRUE((text == "\\N" ? builder.AppendNull() : builder.Append(text)).ok());
  auto strings = builder.Finish().ValueOrDie();
  auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("s", arrow::utf8())}), strings->length(),
                                        arrow::ArrayVector{strings});
  auto cast = expr::make_cast(expr::make_column(0, *batch->schema()->field(0)), type).ValueOrDie();
  return expr::evaluate(*cast, *batch).ValueOrDie();
}

/// One function over certain types: its expression over columns that no other group has, and rows of arguments.
struct Group {
  std::string title;
  ExprPtr expression;
  Batch good;  ///< rows with a value; the group's columns
  Batch bad;   ///< rows that fail
  int first_column = 0;
};

struct Sweep {
  std::vector<Group> groups;
  arrow::FieldVector fields;
};

Result<ExprPtr> expression_of(const std::string& name, const std::vector<std::string>& types,
                              const std::vector<ExprPtr>& columns) {
  if (name == "cast" || name == "try_cast") {
    MILLSTREAM_ASSIGN(auto type, expr::parse_type(types.back().substr(1)));
    return expr::make_cast(columns[0], type, name == "try_cast");
  }
  std::vector<ExprPtr> arguments;
  size_t next = 0;
  for (const std::string& type : types) {
    if (!type.starts_with('=')) {
      arguments.push_back(columns[next++]);
    } else if (type.starts_with("='")) {
      arguments.push_back(expr::make_literal(arrow::MakeScalar(type.substr(2, type.size() - 3))));
    } else {
      arguments.push_back(expr::make_literal(arrow::MakeScalar(std::stoi(type.substr(1)))));
    }
  }
  return expr::make_call(name, arguments);
}

const Sweep& sweep() {
  static const Sweep made = [] {
    Sweep sweep;
    std::ifstream file(std::string(MILLSTREAM_SOURCE_DIR) + "/src/functions/testdata/sweep.txt");
    std::string line, name;
    std::vector<std::string> types;
    std::vector<std::vector<std::string>> good, bad;
    const auto finish = [&] {
      if (name.empty()) return;
      Group group;
      group.title = name;
      group.first_column = static_cast<int>(sweep.fields.size());
      std::vector<ExprPtr> columns;
      arrow::FieldVector own;
      for (const std::string& type : types) {
        group.title += " " + type;
        if (type.starts_with('=')) continue;
        own.push_back(
            arrow::field(fmt::format("c{}", sweep.fields.size()), expr::parse_type(type).ValueOrDie()));
        sweep.fields.push_back(own.back());
        columns.push_back(expr::make_column(static_cast<int>(sweep.fields.size()) - 1, *own.back()));
      }
      group.expression = expression_of(name, types, columns).ValueOrDie();
      const auto rows_of = [&](const std::vector<std::vector<std::string>>& rows) -> Batch {
        if (rows.empty()) return nullptr;
        arrow::ArrayVector arrays;
        for (size_t i = 0; i < own.size(); ++i) {
          std::vector<std::string> texts;
          for (const auto& row : rows) texts.push_back(row[i]);
          arrays.push_back(column(texts, own[i]->type()));
        }
        return arrow::RecordBatch::Make(arrow::schema(own), static_cast<int64_t>(rows.size()), arrays);
      };
      group.good = rows_of(good);
      group.bad = rows_of(bad);
      sweep.groups.push_back(std::move(group));
    };
    while (std::getline(file, line)) {
      if (line.starts_with('@')) {
        finish();
        const size_t bar = line.find('|', line.starts_with("@|||") ? 3
                                          : line[1] == '|'         ? 2
                                                                   : 1);  // | and || are names
        name = line.substr(1, bar - 1);
        types = split(split(line.substr(bar + 1), '|')[0], ';');
        good.clear();
        bad.clear();
      } else {
        auto row = split(line, '\t');
        (row.back() == "\\E" ? bad : good).push_back(std::move(row));
      }
    }
    finish();
    return sweep;
  }();
  return made;
}

enum class Nulls { kNone, kSome, kAll };

/// `rows` rows of a group's columns: its good ones over and over, those without NULLs, or NULLs alone.
arrow::ArrayVector columns_of(const Group& group, int64_t rows, Nulls nulls) {
  arrow::ArrayVector out;
  std::vector<int32_t> usable;
  for (int32_t row = 0; group.good && row < group.good->num_rows(); ++row) {
    bool null = false;
    for (const auto& array : group.good->columns()) null |= array->IsNull(row);
    if (!null || nulls == Nulls::kSome) usable.push_back(row);
  }
  std::vector<int32_t> chosen;
  for (int64_t i = 0; i < rows && !usable.empty(); ++i)
    chosen.push_back(usable[static_cast<size_t>(i * 7 + 3) % usable.size()]);
  const Batch taken =
      chosen.empty() || nulls == Nulls::kAll ? nullptr : expr::take_rows(*group.good, chosen).ValueOrDie();
  const int count = static_cast<int>(group.expression ? expr::columns_read(*group.expression).size() : 0);
  for (int c = 0; c < count; ++c) {
    const TypePtr& type = sweep().fields[static_cast<size_t>(group.first_column + c)]->type();
    out.push_back(taken ? taken->column(c) : arrow::MakeArrayOfNull(type, rows).ValueOrDie());
  }
  return out;
}

bool same(const arrow::Array& a, const arrow::Array& b) {
  return a.Equals(b, arrow::EqualOptions().nans_equal(true).signed_zeros_equal(false));
}

/// Runs of groups next to each other, with their expressions over the run's columns.
struct Stretch {
  std::vector<const Group*> groups;
  std::vector<ExprPtr> expressions;
  std::shared_ptr<arrow::Schema> schema;
};

std::vector<Stretch> runs(size_t size) {
  std::vector<Stretch> out;
  for (const Group& group : sweep().groups) {
    if (expr::columns_read(*group.expression).empty() || !group.good) continue;
    const bool next = !out.empty() && out.back().groups.size() < size;
    if (!next) out.emplace_back();
    out.back().groups.push_back(&group);
  }
  for (Stretch& run : out) {
    arrow::FieldVector fields;
    std::vector<int> mapping(sweep().fields.size(), -1);
    for (const Group* group : run.groups) {
      for (int c : expr::columns_read(*group->expression)) {
        mapping[static_cast<size_t>(c)] = static_cast<int>(fields.size());
        fields.push_back(sweep().fields[static_cast<size_t>(c)]);
      }
      run.expressions.push_back(expr::remap_columns(group->expression, mapping));
    }
    run.schema = arrow::schema(fields);
  }
  return out;
}

Batch batch_of(const Stretch& run, int64_t rows, Nulls nulls) {
  arrow::ArrayVector arrays;
  for (const Group* group : run.groups) {
    for (auto& array : columns_of(*group, rows, nulls)) arrays.push_back(std::move(array));
  }
  return arrow::RecordBatch::Make(run.schema, rows, arrays);
}

void compare(const Stretch& run, const Program& program, const Batch& batch, const std::string& what,
             std::map<std::string, int>& wrong) {
  const int64_t failed = code_counts().failed_batches;
  auto values = program.evaluate(*batch);
  ASSERT_TRUE(values.ok()) << what << ": " << values.status().ToString();
  EXPECT_EQ(code_counts().failed_batches, failed)
      << what << ": " << run.groups[0]->title << " and those after it";
  for (size_t e = 0; e < run.expressions.size(); ++e) {
    const auto wanted = expr::evaluate(*run.expressions[e], *batch).ValueOrDie();
    if (same(*(*values)[e], *wanted)) continue;
    if (++wrong[run.groups[e]->title] > 2) continue;
    for (int64_t row = 0; row < batch->num_rows(); ++row) {
      const auto a = (*values)[e]->Slice(row, 1), b = wanted->Slice(row, 1);
      if (same(*a, *b)) continue;
      std::string arguments;
      for (int c : expr::columns_read(*run.expressions[e]))
        arguments += batch->column(c)->GetScalar(row).ValueOrDie()->ToString() + " ";
      ADD_FAILURE() << run.groups[e]->title << ", " << what << ", row " << row << ": (" << arguments
                    << ") gives " << a->GetScalar(0).ValueOrDie()->ToString() << ", interpreted "
                    << b->GetScalar(0).ValueOrDie()->ToString();
      break;
    }
  }
}

class SweepTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!open_compiler().ok()) GTEST_SKIP() << "this build has no code generator";
    set_engine(Engine::kCompiled);
  }
};

TEST_F(SweepTest, GeneratedCodeEqualsTheInterpreter) {
  ASSERT_GT(sweep().groups.size(), 500u);
  std::map<std::string, int> wrong;
  const int64_t batches = code_counts().batches;
  for (const Stretch& run : runs(24)) {
    const auto program = Program::columns(run.schema, run.expressions);
    for (const int64_t rows : {0, 1, 63, 64, 65, 1025}) {
      for (const Nulls nulls : {Nulls::kNone, Nulls::kSome, Nulls::kAll})
        compare(run, program, batch_of(run, rows, nulls),
                fmt::format("{} rows, nulls {}", rows, static_cast<int>(nulls)), wrong);
    }
    const Batch whole = batch_of(run, 300, Nulls::kSome);
    for (const int64_t from : {1, 8, 67}) {
      compare(run, program, whole->Slice(from), fmt::format("from row {}", from), wrong);
      compare(run, program, whole->Slice(from, 100), fmt::format("100 from row {}", from), wrong);
    }
  }
  EXPECT_GT(code_counts().batches, batches);
}

TEST_F(SweepTest, WholeBlocksToo) {
  std::map<std::string, int> wrong;
  for (Stretch& run : runs(1)) {
    const std::string& title = run.groups[0]->title;
    const bool numbers =
        title.find("VARCHAR") == std::string::npos && title.find("TIME") == std::string::npos;
    if (!numbers || title.size() % 5 != 0) continue;  // some of them
    compare(run, Program::columns(run.schema, run.expressions), batch_of(run, 65536, Nulls::kSome),
            "65536 rows", wrong);
    if (++wrong[""] == 40) break;
  }
}

TEST_F(SweepTest, RowsThatFailGiveTheInterpretersError) {
  int64_t failures = 0;
  for (const Stretch& run : runs(24)) {
    const auto program = Program::columns(run.schema, run.expressions);
    const Batch good = batch_of(run, 130, Nulls::kSome);
    int first = 0;
    for (size_t g = 0; g < run.groups.size(); ++g) {
      const Group& group = *run.groups[g];
      const int count = static_cast<int>(expr::columns_read(*group.expression).size());
      for (int64_t bad = 0; group.bad && bad < std::min<int64_t>(group.bad->num_rows(), 6); ++bad) {
        // The failing row comes somewhere among good ones.
        const int64_t at = (bad * 29 + static_cast<int64_t>(g)) % 130;
        arrow::ArrayVector arrays = good->columns();
        for (int c = 0; c < count; ++c) {
          auto& array = arrays[static_cast<size_t>(first + c)];
          array =
              arrow::Concatenate({array->Slice(0, at), group.bad->column(c)->Slice(bad, 1), array->Slice(at)})
                  .ValueOrDie()
                  ->Slice(0, 130);
        }
        const auto batch = arrow::RecordBatch::Make(run.schema, 130, arrays);
        const auto wanted = expr::evaluate(*run.expressions[g], *batch).status();
        ASSERT_FALSE(wanted.ok()) << group.title;
        const auto got = program.evaluate(*batch).status();
        EXPECT_EQ(got.ToString(), wanted.ToString()) << group.title;
        ASSERT_TRUE(error_position(got)) << group.title;
        EXPECT_EQ(error_position(got)->row, at) << group.title;
        ++failures;
      }
      first += count;
    }
  }
  EXPECT_GT(failures, 500);
}

TEST_F(SweepTest, MostFunctionsAreFused) {
  int64_t fused = 0, tried = 0;
  for (const Group& group : sweep().groups) {
    if (expr::columns_read(*group.expression).empty() || group.expression->type->id() == arrow::Type::STRING)
      continue;
    ++tried;
    const auto report = Program::rows(arrow::schema(sweep().fields), {group.expression}).report();
    fused += report.kernels.empty();
    if (!report.kernels.empty()) std::cerr << group.title << ": " << report.kernels[0].reason << "\n";
  }
  EXPECT_GT(fused, tried * 9 / 10) << fused << " of " << tried;
}

TEST_F(SweepTest, EveryBodyIsThereAndCanBeCalled) {
  const auto names = (*open_compiler())->body_names();
  ASSERT_GT(names.size(), 500u);
  const std::set<std::string> known(names.begin(), names.end());
  for (const expr::Function* function : expr::FunctionRegistry::instance().all()) {
    for (const expr::Binding& binding : function->overloads) {
      if (!binding.body) continue;
      const std::string name(binding.body, std::strlen(binding.body) - 1);
      EXPECT_TRUE(known.count(name)) << function->name << ": " << name;
    }
  }
}

}  // namespace
}  // namespace millstream::jit
