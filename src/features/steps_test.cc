// Each step, fitted block by block and applied, against scikit-learn (testdata/sklearn.json, made by
// testdata/make_sklearn.py) and against what docs/features.md says.

#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "features/feature_plan.h"
#include "features/fitted_json.h"
#include "features/row_packer.h"
#include "features/test_counting.h"

namespace millstream::features {
namespace {

using Values = std::vector<std::optional<double>>;

nlohmann::json expectations() {
  std::ifstream file(std::string(MILLSTREAM_SOURCE_DIR) + "/src/features/testdata/sklearn.json");
  return nlohmann::json::parse(file);
}

Values values_of(const nlohmann::json& json) {
  Values values;
  for (const auto& value : json)
    values.push_back(value.is_null() ? std::nullopt : std::optional(value.get<double>()));
  return values;
}

std::shared_ptr<arrow::Array> doubles(const Values& values) {
  arrow::DoubleBuilder builder;
  for (const auto& value : values) EXPECT_TRUE(builder.AppendOrNull(value).ok());
  return builder.Finish().ValueOrDie();
}

// A table of the column "x" and a target.
std::shared_ptr<arrow::RecordBatch> table_of(const std::shared_ptr<arrow::Array>& x) {
  const auto target = doubles(Values(static_cast<size_t>(x->length()), 1.0));
  return arrow::RecordBatch::Make(
      arrow::schema({arrow::field("x", x->type()), arrow::field("target", arrow::float64(), false)}),
      x->length(), {x, target});
}

Result<FeaturePlan> plan_of(const arrow::RecordBatch& table, const std::vector<std::string>& steps) {
  FeatureSpec spec;
  spec.columns = {"x"};
  for (const std::string& text : steps) {
    MILLSTREAM_ASSIGN(auto step, parse_step(text));
    spec.steps.push_back(std::move(step));
  }
  return FeaturePlan::make(*table.schema(), {spec}, "target", OnNull::kError);
}

// As the survey does it: blocks, entry points of some blocks, all of them.
Result<Fitted> fitted_by_blocks(const arrow::RecordBatch& table, const std::vector<std::string>& steps,
                                int64_t block_rows) {
  MILLSTREAM_ASSIGN(FeaturePlan plan, plan_of(table, steps));
  int passes = 0;
  while (!plan.pending().empty()) {
    const auto requests = plan.pending();
    std::vector<FitState> all(requests.size());
    std::vector<FitState> entry(requests.size());
    std::vector<std::unique_ptr<ValueCounter>> counters;
    for (const FitRequest& request : requests)  // with so little memory that most of it goes to disk
      counters.push_back(std::make_unique<ValueCounter>(request.order(), 1, 1 << 14, ::testing::TempDir()));
    int blocks = 0;
    const auto merge_entry = [&]() -> Status {
      for (size_t i = 0; i < requests.size(); ++i) {
        MILLSTREAM_ASSIGN(const auto sent, FitState::decode(entry[i].encode()));
        MILLSTREAM_TRY(all[i].merge(sent));
        entry[i] = FitState();
      }
      return Status::OK();
    };
    for (int64_t first = 0; first < table.num_rows(); first += block_rows) {
      const auto block = table.Slice(first, block_rows);
      for (size_t i = 0; i < requests.size(); ++i) {
        MILLSTREAM_ASSIGN(const auto array, expr::evaluate(*requests[i].expression, *block));
        if (array->type_id() == arrow::Type::STRING) {
          MILLSTREAM_TRY(counters[i]->add(0, static_cast<const arrow::StringArray&>(*array)));
        } else {
          std::vector<double> values;
          for (int64_t row = 0; row < array->length(); ++row) {
            if (!array->IsNull(row))
              values.push_back(static_cast<const arrow::DoubleArray&>(*array).Value(row));
          }
          const auto count = static_cast<int64_t>(values.size());
          MILLSTREAM_TRY(requests[i].kind == FitKind::kCounts
                             ? counters[i]->add(0, values.data(), count)
                             : entry[i].add(requests[i].kind, values.data(), count));
        }
        merge_moments(all[i].moments, entry[i].moments);
        entry[i].moments = {};
      }
      if (++blocks % 3 == 0) MILLSTREAM_TRY(merge_entry());
    }
    MILLSTREAM_TRY(merge_entry());
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i].kind != FitKind::kCounts) continue;
      MILLSTREAM_ASSIGN(all[i].counted, counted(*counters[i], requests[i].min_count, requests[i].max_size));
    }
    MILLSTREAM_TRY(plan.provide(all));
    ++passes;
  }
  EXPECT_EQ(passes, plan.num_passes());
  return plan.fitted();
}

// Column by column, after a round through the bundle's text.
std::vector<std::pair<std::string, Values>> applied(const Fitted& fitted, const arrow::RecordBatch& table) {
  const std::string json = fitted_to_json(fitted).ValueOrDie();
  const auto back = fitted_from_json(json, table.schema());
  EXPECT_TRUE(back.ok()) << back.status().ToString() << json;
  std::vector<std::pair<std::string, Values>> columns;
  for (size_t c = 0; c < fitted.columns.size(); ++c) {
    const auto array = expr::evaluate(*fitted.columns[c].expression, table).ValueOrDie();
    const auto again = expr::evaluate(*back->columns[c].expression, table).ValueOrDie();
    EXPECT_TRUE(array->Equals(*again)) << fitted.columns[c].expression->to_sql();
    Values values;
    for (int64_t row = 0; row < array->length(); ++row) {
      values.push_back(array->IsNull(row)
                           ? std::nullopt
                           : std::optional(static_cast<const arrow::DoubleArray&>(*array).Value(row)));
    }
    columns.push_back({fitted.columns[c].name, std::move(values)});
  }
  return columns;
}

void expect_values(const Values& got, const Values& wanted, const std::string& what,
                   double tolerance = 1e-9) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  // Relative to the column's size: what is centred has values near 0.
  double size = 0;
  for (const auto& value : wanted) size = std::max(size, std::abs(value.value_or(0)));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].has_value(), wanted[i].has_value()) << what << " row " << i;
    if (got[i]) {
      ASSERT_NEAR(*got[i], *wanted[i], tolerance * size) << what << " row " << i;
    }
  }
}

TEST(StepsTest, AgreeWithScikitLearn) {
  const auto json = expectations();
  ASSERT_GT(json["cases"].size(), 100u);
  for (const auto& item : json["cases"]) {
    const auto steps = item["steps"].get<std::vector<std::string>>();
    const auto column = item["column"].get<std::string>();
    const auto table = table_of(doubles(values_of(json["columns"][column])));
    std::string what = column;
    for (const auto& step : steps) what += " " + step;
    for (const int64_t block_rows : {7, 1000}) {
      const auto fitted = fitted_by_blocks(*table, steps, block_rows);
      ASSERT_TRUE(fitted.ok()) << what << fitted.status().ToString();
      // The numbers near 1e9 have ten digits before the point and six after it.
      expect_values(applied(*fitted, *table)[0].second, values_of(item["result"]), what,
                    column == "large" ? 1e-7 : 1e-9);
    }
  }
}

TEST(StepsTest, FitsARealTableAsScikitLearn) {
  const char* data = std::getenv("MILLSTREAM_DATA");
  std::ifstream file(std::string(data ? data : "../shared/data") + "/tabular/california_housing.csv");
  if (!file) GTEST_SKIP() << "no california_housing.csv; set MILLSTREAM_DATA";
  const auto cells = [](const std::string& line) {
    std::vector<std::string> cells(1);
    for (const char c : line) c == ',' ? static_cast<void>(cells.emplace_back()) : cells.back().push_back(c);
    return cells;
  };
  std::string line;
  std::getline(file, line);
  const auto names = cells(line);
  std::vector<Values> columns(names.size());
  while (std::getline(file, line)) {
    const auto row = cells(line);
    for (size_t i = 0; i < names.size(); ++i) columns[i].push_back(parse_number(row[i]));
  }
  for (const auto& item : expectations()["california"]) {
    const auto name = item["column"].get<std::string>();
    const size_t index = std::find(names.begin(), names.end(), name) - names.begin();
    const auto table = table_of(doubles(columns[index]));
    ASSERT_EQ(table->num_rows(), 20640);
    for (const auto& [step, numbers] : item["fitted"].items()) {
      const auto fitted = fitted_by_blocks(*table, {step}, 1000).ValueOrDie();
      ASSERT_EQ(fitted.values.size(), numbers.size()) << name << step;
      for (const FittedValue& value : fitted.values) {
        const double wanted = numbers.at(value.name).get<double>();
        EXPECT_NEAR(value.value, wanted, 1e-9 * std::abs(wanted)) << name << " " << step << " " << value.name;
      }
    }
  }
}

TEST(StepsTest, NothingButNullsHasAResult) {
  const Values nulls(5, std::nullopt);
  for (const auto& table : {table_of(doubles(nulls)), table_of(doubles({}))}) {
    const Values zeros(static_cast<size_t>(table->num_rows()), 0.0);
    for (const char* step :
         {"standard_scale", "min_max_scale", "max_abs_scale", "robust_scale", "clip(0,1)",
          "clip(quantiles,0.1,0.9)", "bucketize(1,2)", "bucketize(quantiles,4)", "log1p"}) {
      const auto fitted = fitted_by_blocks(*table, {step, "fill_null(0)"}, 2);
      ASSERT_TRUE(fitted.ok()) << step << fitted.status().ToString();
      expect_values(applied(*fitted, *table)[0].second, zeros, step);
    }
    EXPECT_EQ(fitted_by_blocks(*table, {"fill_null(median)"}, 2).status().message(),
              "fill_null(median) of column 'x': all its values in the training rows are null, so there is no "
              "median; give a number, as in fill_null(0), or leave the column out");
    EXPECT_FALSE(fitted_by_blocks(*table, {"fill_null(mean)"}, 2).ok());
    EXPECT_FALSE(fitted_by_blocks(*table, {"fill_null(most_frequent)"}, 2).ok());
  }
}

std::shared_ptr<arrow::RecordBatch> times(const std::shared_ptr<arrow::DataType>& type,
                                          const std::vector<std::optional<std::string>>& texts) {
  arrow::StringBuilder builder;
  for (const auto& text : texts) EXPECT_TRUE(builder.AppendOrNull(text).ok());
  const auto strings = table_of(builder.Finish().ValueOrDie());
  const auto cast = expr::make_cast(expr::make_column(0, *strings->schema()->field(0)), type).ValueOrDie();
  return table_of(expr::evaluate(*cast, *strings).ValueOrDie());
}

TEST(StepsTest, TimesBecomeNumbers) {
  for (const auto unit : {arrow::TimeUnit::SECOND, arrow::TimeUnit::MICRO, arrow::TimeUnit::NANO}) {
    const auto table =
        times(arrow::timestamp(unit), {"2024-02-29 18:30:15", std::nullopt, "2023-12-31 00:00:00"});
    auto columns = applied(
        *fitted_by_blocks(*table, {"datetime(hour, dayofweek, month, dayofyear)", "fill_null(-1)"}, 2),
        *table);
    ASSERT_EQ(columns.size(), 4u);
    EXPECT_EQ(columns[0], (std::pair<std::string, Values>{"x_hour", {18, -1, 0}}));
    EXPECT_EQ(columns[1], (std::pair<std::string, Values>{"x_dayofweek", {4, -1, 0}}));
    EXPECT_EQ(columns[2], (std::pair<std::string, Values>{"x_month", {2, -1, 12}}));
    EXPECT_EQ(columns[3], (std::pair<std::string, Values>{"x_dayofyear", {60, -1, 365}}));

    columns = applied(*fitted_by_blocks(*table, {"datetime(hour)", "cyclical(24)"}, 2), *table);
    ASSERT_EQ(columns.size(), 2u);
    EXPECT_EQ(columns[0].first, "x_hour_sin");
    EXPECT_EQ(columns[1].first, "x_hour_cos");
    expect_values(columns[0].second, {-1, std::nullopt, 0}, "sin", 1e-12);
    expect_values(columns[1].second, {0, std::nullopt, 1}, "cos", 1e-12);

    const double seconds = 60 * 86400.0 + 18 * 3600 + 30 * 60 + 15;
    columns = applied(*fitted_by_blocks(*table, {"elapsed"}, 2), *table);
    EXPECT_EQ(columns[0], (std::pair<std::string, Values>{"x", {seconds, std::nullopt, 0}}));
    columns = applied(*fitted_by_blocks(*table, {"elapsed('2023-12-30 23:59:59')"}, 2), *table);
    EXPECT_EQ(columns[0].second, (Values{seconds + 1, std::nullopt, 1}));
    columns = applied(*fitted_by_blocks(*table, {"elapsed", "standard_scale"}, 2), *table);
    expect_values(columns[0].second, {1, std::nullopt, -1}, "scaled");
  }
  const auto dates = times(arrow::date32(), {"2024-02-29", "2024-03-01"});
  EXPECT_EQ(applied(*fitted_by_blocks(*dates, {"elapsed(2024-01-01)"}, 2), *dates)[0].second,
            (Values{59 * 86400.0, 60 * 86400.0}));
  EXPECT_EQ(applied(*fitted_by_blocks(*dates, {"datetime(year, quarter)"}, 2), *dates)[1],
            (std::pair<std::string, Values>{"x_quarter", {1, 1}}));
}

std::shared_ptr<arrow::RecordBatch> texts(const std::vector<std::optional<std::string>>& values) {
  arrow::StringBuilder builder;
  for (const auto& value : values) EXPECT_TRUE(builder.AppendOrNull(value).ok());
  return table_of(builder.Finish().ValueOrDie());
}

TEST(StepsTest, HashBucketsAreStable) {
  const auto table = texts({"N", "Y", std::nullopt, "N", "", "3"});
  const auto columns = applied(*fitted_by_blocks(*table, {"hash_bucket(1000)"}, 2), *table);
  const Values& buckets = columns[0].second;
  EXPECT_EQ(buckets[0], buckets[3]);
  EXPECT_EQ(buckets[2], 1000);
  // XXH3-64 of "N", of "" and of "3": these numbers are in bundles, so they never change.
  EXPECT_EQ(buckets, (Values{78, 208, 1000, 78, 138, 336}));
  // A number is hashed as its text, whatever its type.
  arrow::Int32Builder builder;
  ASSERT_TRUE(builder.Append(3).ok());
  const auto number = table_of(builder.Finish().ValueOrDie());
  EXPECT_EQ(applied(*fitted_by_blocks(*number, {"hash_bucket(1000)"}, 2), *number)[0].second[0], buckets[5]);
}

TEST(StepsTest, CategoriesAreNumberedByCountThenValue) {
  const auto table = texts({"b", std::nullopt, "a", "c", "c", "", "b", "it's"});
  const auto of = [&](const char* step) { return applied(*fitted_by_blocks(*table, {step}, 2), *table); };
  // b and c twice; then the empty text, a and it's.
  EXPECT_EQ(of("categorify")[0].second, (Values{2, 1, 5, 3, 3, 4, 2, 6}));
  EXPECT_EQ(of("categorify(min_count=2)")[0].second, (Values{2, 1, 0, 3, 3, 0, 2, 0}));
  EXPECT_EQ(of("categorify(max_size=1)")[0].second, (Values{2, 1, 0, 0, 0, 0, 2, 0}));
  const auto hot = of("one_hot(max_size=3)");
  ASSERT_EQ(hot.size(), 3u);
  EXPECT_EQ(hot[0], (std::pair<std::string, Values>{"x_b", {1, 0, 0, 0, 0, 0, 1, 0}}));
  EXPECT_EQ(hot[1], (std::pair<std::string, Values>{"x_c", {0, 0, 0, 1, 1, 0, 0, 0}}));
  EXPECT_EQ(hot[2], (std::pair<std::string, Values>{"x_", {0, 0, 0, 0, 0, 1, 0, 0}}));
  EXPECT_EQ(of("ordinal('c','b','it''s')")[0].second, (Values{1, std::nullopt, -1, 0, 0, -1, 1, 2}));
  const auto fitted = *fitted_by_blocks(*table, {"categorify"}, 2);
  ASSERT_EQ(fitted.values.size(), 5u);
  EXPECT_EQ(fitted.values[0].name, "b");
  EXPECT_EQ(fitted.values[0].value, 2);

  const auto nulls = texts({std::nullopt});
  EXPECT_EQ(applied(*fitted_by_blocks(*nulls, {"categorify"}, 2), *nulls)[0].second, (Values{1}));
  EXPECT_EQ(fitted_by_blocks(*nulls, {"one_hot"}, 2).status().message(),
            "one_hot of column 'x': no value of the training rows is kept (0 different ones), so there are "
            "no columns "
            "to make; leave the column out");
}

TEST(StepsTest, EmbeddingsAreIdsBehindTheNumbers) {
  arrow::StringBuilder words;
  for (const char* word : {"b", "a", "b", "c"}) EXPECT_TRUE(words.Append(word).ok());
  EXPECT_TRUE(words.AppendNull().ok());
  const auto x = words.Finish().ValueOrDie();
  const auto number = doubles({1, 2, 3, 4, 5}), weight = doubles({1, 0, 2.5, 1, 1});
  const auto table = arrow::RecordBatch::Make(
      arrow::schema({arrow::field("x", arrow::utf8()), arrow::field("n", arrow::float64()),
                     arrow::field("target", arrow::float64()), arrow::field("w", arrow::float64())}),
      5, {x, number, number, weight});
  FeatureSpec ids, numbers, places;
  ids.columns = {"x"};
  ids.steps = {*parse_step("categorify"), *parse_step("embedding(3)")};
  numbers.columns = {"n"};
  FeaturePlan plan = *FeaturePlan::make(*table->schema(), {ids, numbers}, "target", OnNull::kError, "w");
  EXPECT_EQ(plan.input()->field_names(), (std::vector<std::string>{"x", "n", "target", "w"}));
  EXPECT_TRUE(plan.rules().back().is_weight);
  std::vector<FitState> fits(1);
  ASSERT_EQ(plan.pending().size(), 1u);
  ValueCounter counter(ValueOrder::kTexts, 1, 1 << 20, ::testing::TempDir());
  ASSERT_TRUE(counter.add(0, static_cast<const arrow::StringArray&>(*x)).ok());
  fits[0].counted = counted(counter, 1, INT64_MAX).ValueOrDie();
  ASSERT_TRUE(plan.provide(fits).ok());
  const Fitted fitted = plan.fitted();
  EXPECT_EQ(fitted.columns[0].categories, 5);  // a, b, c, null and what was not there
  EXPECT_EQ(fitted.columns[0].embedding_width, 3);
  EXPECT_EQ(fitted.columns[1].embedding_width, 0);
  const Fitted again = *fitted_from_json(*fitted_to_json(fitted), fitted.input);
  EXPECT_EQ(again.columns[0].categories, 5);
  EXPECT_EQ(again.columns[0].embedding_width, 3);

  const RowPacker packer = *RowPacker::make(fitted, "target", false, "w");
  EXPECT_EQ(packer.num_features(), 1);
  EXPECT_EQ(packer.num_ids(), 1);
  EXPECT_EQ(packer.first_id(), 2);
  ASSERT_EQ(packer.row_floats(), 4);
  std::vector<float> rows(20);
  ASSERT_TRUE(packer.pack(*table, nullptr, 5, rows.data()).ok());
  const int32_t expected[] = {2, 3, 2, 4, 1};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(rows[4 * i], static_cast<float>(i + 1));
    EXPECT_EQ(rows[4 * i + 1], static_cast<float>(i + 1));
    EXPECT_EQ(std::bit_cast<int32_t>(rows[4 * i + 2]), expected[i]) << i;
    EXPECT_EQ(rows[4 * i + 3], static_cast<float>(*Values{1, 0, 2.5, 1, 1}[static_cast<size_t>(i)]));
  }
  const auto negative =
      arrow::RecordBatch::Make(table->schema(), 5, {x, number, number, doubles({1, 1, -2, 1, 1})});
  const Status refused = packer.pack(*negative, nullptr, 5, rows.data());
  EXPECT_EQ(refused.message(), "weight 'w' is -2; it says how much a row counts and can't be negative");
  EXPECT_EQ(error_position(refused)->row, 2);
}

TEST(StepsTest, EmbeddingsFollowCategoriesAndEndAChain) {
  const auto table = table_of(doubles({1, 2, 3}));
  const auto message = [&](const std::vector<std::string>& steps) {
    return plan_of(*table, steps).status().message();
  };
  EXPECT_EQ(message({"embedding(4)"}),
            "feature column 'x': embedding is of categories: the step before it must be categorify, "
            "hash_bucket(N), "
            "ordinal(...) or bucketize(...)");
  EXPECT_EQ(message({"standard_scale", "embedding(4)"}),
            "feature column 'x': embedding is of categories: the step before it must be categorify, "
            "hash_bucket(N), "
            "ordinal(...) or bucketize(...), and is standard_scale");
  EXPECT_EQ(message({"categorify", "embedding(4)", "standard_scale"}),
            "feature column 'x': standard_scale comes after embedding, which gives ids to the model: nothing "
            "follows it");
  EXPECT_FALSE(parse_step("embedding").ok());
  EXPECT_FALSE(parse_step("embedding(0)").ok());
  for (const auto& [steps, categories] :
       {std::pair<std::vector<std::string>, int64_t>{{"hash_bucket(10)", "embedding(2)"}, 11},
        {{"ordinal(2, 1)", "embedding(2)"}, 3},
        {{"bucketize(1.5, 2.5)", "embedding(2)"}, 3}}) {
    const Fitted fitted = plan_of(*table, steps)->fitted();
    EXPECT_EQ(fitted.columns[0].categories, categories) << steps[0];
    const auto ids = *expr::evaluate(*fitted.columns[0].expression, *table);
    for (int i = 0; i < 3; ++i) {
      const double id = static_cast<const arrow::DoubleArray&>(*ids).Value(i);
      EXPECT_TRUE(id >= 0 && id < static_cast<double>(categories)) << steps[0] << " " << id;
    }
  }
}

TEST(StepsTest, CategoriesOfNumbersAndOfMany) {
  const auto table = table_of([] {
    arrow::Int64Builder builder;
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(builder.Append(i * 7 % 500).ok());
    return builder.Finish().ValueOrDie();
  }());
  // Equally frequent ones in the order of numbers.
  const Values ids = applied(*fitted_by_blocks(*table, {"categorify"}, 100), *table)[0].second;
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ids[i], i * 7 % 500 + 2);
  EXPECT_EQ(fitted_by_blocks(*table, {"one_hot"}, 100).status().message(),
            "one_hot of column 'x' would make 500 columns, one for each value, and makes 256 at most unless "
            "it is told "
            "so; say how many, one_hot(max_size=N), or take categorify or hash_bucket(N)");
  EXPECT_EQ(fitted_by_blocks(*table, {"one_hot(max_size=500)"}, 100)->columns[499].name, "x_499");
}

TEST(StepsTest, TextIsFilled) {
  const auto table = texts({"b", std::nullopt, "a", "a", "b"});
  const auto with = [&](const char* fill) {
    return applied(*fitted_by_blocks(*table, {fill, "hash_bucket(100000)"}, 2), *table)[0].second;
  };
  // Of equally frequent ones the smaller.
  const Values frequent = with("fill_null(most_frequent)");
  EXPECT_EQ(frequent[1], frequent[2]);
  const Values fixed = with("fill_null('b')");
  EXPECT_EQ(fixed[1], fixed[0]);
}

TEST(StepsTest, TypesAreChecked) {
  const auto message = [](const std::shared_ptr<arrow::RecordBatch>& table,
                          const std::vector<std::string>& steps) {
    const auto plan = plan_of(*table, steps);
    EXPECT_EQ(error_category(plan.status()), ErrorCategory::kUsage);
    return plan.status().message();
  };
  const auto text = texts({"a"});
  const auto time = times(arrow::timestamp(arrow::TimeUnit::MICRO), {"2024-01-01"});
  const auto number = table_of(doubles({1.0}));
  EXPECT_EQ(message(text, {"standard_scale"}),
            "feature column 'x': standard_scale takes a number, and it is text there; one_hot, categorify, "
            "ordinal and hash_bucket make numbers of it");
  EXPECT_EQ(message(time, {"fill_null(0)"}),
            "feature column 'x': fill_null takes a number, and it is a timestamp[us] there; datetime(PART, "
            "...) and "
            "elapsed make numbers of it");
  EXPECT_EQ(message(number, {"datetime(hour)"}),
            "feature column 'x': datetime takes a date or timestamp, and it is a number there");
  EXPECT_EQ(message(number, {"fill_null('a')"}),
            "feature column 'x': fill_null takes text, and it is a number there");
  EXPECT_EQ(message(text, {"fill_null('a')"}),
            "the feature column 'x' is text (string), which is not a number; turn it into one with a step, "
            "one_hot, categorify, ordinal or hash_bucket, or in the query, with CASE or CAST(x AS DOUBLE), "
            "or leave it out");
}

TEST(StepsTest, TwoFeaturesOfOneNameAreAnError) {
  const auto schema =
      arrow::schema({arrow::field("t", arrow::timestamp(arrow::TimeUnit::MICRO)),
                     arrow::field("t_hour", arrow::float64()), arrow::field("target", arrow::float64())});
  const FeatureSpec time{{"t"}, {parse_step("datetime(hour)").ValueOrDie()}, OnNull::kError};
  const FeatureSpec other{{"t_hour"}, {}, OnNull::kError};
  EXPECT_EQ(FeaturePlan::make(*schema, {other, time}, "target", OnNull::kError).status().message(),
            "two features are named 't_hour', the second by the steps of column 't'; give that column "
            "another name in "
            "the query, with AS");
}

}  // namespace
}  // namespace millstream::features
