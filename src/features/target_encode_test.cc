// target_encode against scikit-learn's encodings of the whole, and out of fold against its definition; cross.

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "features/feature_plan.h"

namespace millstream::features {
namespace {

FeatureSpec spec_of(const std::vector<std::string>& columns, const std::vector<std::string>& steps) {
  FeatureSpec spec;
  spec.columns = columns;
  for (const std::string& text : steps) spec.steps.push_back(parse_step(text).ValueOrDie());
  return spec;
}

struct Table {
  std::vector<std::optional<std::string>> towns;
  std::vector<double> targets;
  std::vector<int64_t> places;

  std::shared_ptr<arrow::RecordBatch> batch() const {
    arrow::StringBuilder town;
    for (const auto& value : towns) EXPECT_TRUE((value ? town.Append(*value) : town.AppendNull()).ok());
    arrow::DoubleBuilder target;
    EXPECT_TRUE(target.AppendValues(targets).ok());
    arrow::Int64Builder place;
    EXPECT_TRUE(place.AppendValues(places).ok());
    const auto schema =
        arrow::schema({arrow::field("town", arrow::utf8()), arrow::field("y", arrow::float64()),
                       arrow::field(kPlaceColumn, arrow::int64())});
    return arrow::RecordBatch::Make(schema, static_cast<int64_t>(towns.size()),
                                    {*town.Finish(), *target.Finish(), *place.Finish()});
  }
};

// The query gives all but the places.
Result<FeaturePlan> plan_of(const arrow::RecordBatch& batch, const std::vector<std::string>& steps) {
  MILLSTREAM_ASSIGN(const auto query, batch.schema()->RemoveField(2));
  return FeaturePlan::make(*query, {spec_of({"town"}, steps)}, "y", OnNull::kError);
}

Result<FitState> fit(const FitRequest& request, const arrow::RecordBatch& batch, int64_t block_rows) {
  FitState all;
  for (int64_t first = 0; first < batch.num_rows(); first += block_rows) {
    const auto block = batch.Slice(first, block_rows);
    MILLSTREAM_ASSIGN(const auto texts, expr::evaluate(*request.expression, *block));
    MILLSTREAM_ASSIGN(const auto targets, expr::evaluate(*request.target, *block));
    MILLSTREAM_ASSIGN(const auto folds, expr::evaluate(*request.fold, *block));
    FitState one;
    MILLSTREAM_TRY(one.add_targets(*texts, *targets, *folds, request.num_folds));
    MILLSTREAM_ASSIGN(const auto sent, FitState::decode(one.encode()));
    MILLSTREAM_TRY(all.merge(sent));
  }
  return all;
}

Result<Fitted> fitted(const arrow::RecordBatch& batch, const std::vector<std::string>& steps) {
  MILLSTREAM_ASSIGN(auto plan, plan_of(batch, steps));
  EXPECT_TRUE(plan.needs_places());
  EXPECT_EQ(plan.query_columns(), (std::vector<std::string>{"town", "y"}));
  MILLSTREAM_ASSIGN(auto state, fit(plan.pending()[0], batch, 77));
  MILLSTREAM_TRY(plan.provide({std::move(state)}));
  return plan.fitted();
}

Table random_table() {
  const auto json = nlohmann::json::parse(std::ifstream(
      std::string(MILLSTREAM_SOURCE_DIR) + "/src/features/testdata/sklearn.json"))["target_encode"];
  Table table;
  uint64_t place = 5;
  for (const auto& town : json["categories"]) {
    table.towns.push_back(town.is_null() ? std::nullopt : std::optional(town.get<std::string>()));
    place = place * 6364136223846793005u + 1442695040888963407u;
    table.places.push_back(static_cast<int64_t>(place >> 1));
  }
  for (const auto& target : json["targets"]) table.targets.push_back(target.get<double>());
  return table;
}

double at(const arrow::Array& array, int64_t row) {
  return static_cast<const arrow::DoubleArray&>(array).Value(row);
}

TEST(TargetEncode, RowsThatDoNotTrainGetWhatScikitLearnGives) {
  const auto json = nlohmann::json::parse(std::ifstream(
      std::string(MILLSTREAM_SOURCE_DIR) + "/src/features/testdata/sklearn.json"))["target_encode"];
  const Table table = random_table();
  Table with_unseen = table;
  with_unseen.towns.push_back("never seen");
  with_unseen.targets.push_back(0);
  with_unseen.places.push_back(0);
  for (const auto& encoder : json["encoders"]) {
    const auto result =
        fitted(*table.batch(), {fmt::format("target_encode(smooth={})", encoder["smooth"].get<double>())});
    ASSERT_TRUE(result.ok()) << result.status().message();
    const auto encoded = expr::evaluate(*result->columns[0].expression, *with_unseen.batch()).ValueOrDie();
    for (int64_t row = 0; row < encoded->length(); ++row) {
      const double expected = encoder["result"][static_cast<size_t>(row)];
      EXPECT_NEAR(at(*encoded, row), expected, 1e-9 * std::abs(expected)) << row;
    }
  }
}

TEST(TargetEncode, RowsThatTrainAreEncodedByTheOtherFolds) {
  const Table table = random_table();
  const int folds = 4;
  const double smooth = 3;
  const auto result = fitted(*table.batch(), {"target_encode(smooth=3, folds=4)"});
  ASSERT_TRUE(result.ok()) << result.status().message();
  const auto encoded = expr::evaluate(*result->columns[0].training, *table.batch()).ValueOrDie();
  for (size_t row = 0; row < table.towns.size(); ++row) {
    double all = 0, all_count = 0, sum = 0, count = 0;
    for (size_t other = 0; other < table.towns.size(); ++other) {
      if (table.places[other] % folds == table.places[row] % folds) continue;
      all += table.targets[other];
      all_count += 1;
      if (table.towns[other] != table.towns[row]) continue;
      sum += table.targets[other];
      count += 1;
    }
    const double expected = (sum + smooth * (all / all_count)) / (count + smooth);
    EXPECT_NEAR(at(*encoded, static_cast<int64_t>(row)), expected, 1e-9 * std::abs(expected)) << row;
  }
  // No row's own target is in its encoding.
  Table changed = table;
  changed.targets[17] += 1000;
  const auto other = fitted(*changed.batch(), {"target_encode(smooth=3, folds=4)"});
  EXPECT_EQ(at(*expr::evaluate(*other->columns[0].training, *changed.batch()).ValueOrDie(), 17),
            at(*encoded, 17));
}

TEST(TargetEncode, OneRowCannotBeEncodedByOthers) {
  const Table table{{"Ulm"}, {3}, {7}};
  const auto result = fitted(*table.batch(), {"target_encode"});
  EXPECT_NE(result.status().message().find("it needs more rows"), std::string::npos)
      << result.status().message();
}

TEST(TargetEncode, Mistakes) {
  EXPECT_FALSE(parse_step("target_encode(smooth=-1)").ok());
  EXPECT_FALSE(parse_step("target_encode(folds=1)").ok());
  EXPECT_FALSE(parse_step("target_encode(fold=3)").ok());
  EXPECT_FALSE(parse_step("quantile_transform(1)").ok());
  EXPECT_FALSE(parse_step("cross").ok());
  EXPECT_FALSE(parse_step("cross(a, a)").ok());
}

TEST(Cross, MakesOneTextOfTwoColumns) {
  const auto schema =
      arrow::schema({arrow::field("sex", arrow::utf8()), arrow::field("class", arrow::int64()),
                     arrow::field("y", arrow::float64())});
  auto plan = FeaturePlan::make(*schema, {spec_of({"sex"}, {"cross(class)", "ordinal('f|1', 'm|1', 'm|2')"})},
                                "y", OnNull::kError);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  // The other column is needed, and is no feature.
  EXPECT_EQ(plan->query_columns(), (std::vector<std::string>{"sex", "class", "y"}));
  const Fitted result = plan->fitted();
  ASSERT_EQ(result.columns.size(), 1u);
  EXPECT_EQ(result.columns[0].name, "sex_class");
  arrow::StringBuilder sex;
  arrow::Int64Builder number;
  arrow::DoubleBuilder y;
  EXPECT_TRUE(sex.AppendValues({"m", "f", "m", "f"}).ok() && sex.AppendNull().ok());
  EXPECT_TRUE(number.AppendValues({2, 1, 1}).ok() && number.AppendNull().ok() && number.Append(1).ok());
  EXPECT_TRUE(y.AppendValues(std::vector<double>(5, 0)).ok());
  const auto batch = arrow::RecordBatch::Make(schema, 5, {*sex.Finish(), *number.Finish(), *y.Finish()});
  const auto values = expr::evaluate(*result.columns[0].expression, *batch).ValueOrDie();
  EXPECT_EQ(at(*values, 0), 2);
  EXPECT_EQ(at(*values, 1), 0);
  EXPECT_EQ(at(*values, 2), 1);
  EXPECT_TRUE(values->IsNull(3));
  EXPECT_TRUE(values->IsNull(4));
}

TEST(Cross, Mistakes) {
  const auto schema =
      arrow::schema({arrow::field("sex", arrow::utf8()), arrow::field("class", arrow::int64()),
                     arrow::field("y", arrow::float64())});
  const auto message = [&](const std::string& step) {
    return FeaturePlan::make(*schema, {spec_of({"sex"}, {step, "one_hot"})}, "y", OnNull::kError)
        .status()
        .message();
  };
  EXPECT_NE(message("cross(clas)").find("did you mean 'class'?"), std::string::npos)
      << message("cross(clas)");
  EXPECT_NE(message("cross(y)").find("that is the target"), std::string::npos);
  EXPECT_NE(message("cross(sex)").find("crossed with itself"), std::string::npos);
}

}  // namespace
}  // namespace millstream::features
