#include "features/feature_plan.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "features/fitted_json.h"
#include "features/row_packer.h"

namespace millstream::features {
namespace {

const arrow::Schema& query() {
  static const auto schema = arrow::schema({
      arrow::field("distance", arrow::float64(), false),
      arrow::field("zone", arrow::int64(), false),
      arrow::field("tips", arrow::float64()),
      arrow::field("flag", arrow::boolean(), false),
      arrow::field("fare", arrow::decimal128(10, 2), false),
      arrow::field("when", arrow::timestamp(arrow::TimeUnit::MICRO)),
      arrow::field("vendor", arrow::utf8()),
      arrow::field("miles", arrow::float64(), false),
  });
  return *schema;
}

FeatureSpec spec(std::vector<std::string> columns, std::vector<std::string> steps = {}) {
  FeatureSpec spec;
  spec.columns = std::move(columns);
  for (const std::string& step : steps) spec.steps.push_back(parse_step(step).ValueOrDie());
  return spec;
}

std::string error_of(const std::vector<FeatureSpec>& specs, const std::string& target = "miles") {
  const auto plan = FeaturePlan::make(query(), specs, target, OnNull::kError);
  EXPECT_FALSE(plan.ok());
  EXPECT_EQ(error_category(plan.status()), ErrorCategory::kUsage);
  return plan.status().message();
}

TEST(FeaturePlanTest, RefusesWhatCannotBecomeATensor) {
  EXPECT_EQ(error_of({spec({"distanse"})}),
            "the feature column 'distanse' is not an output of the query; did you mean 'distance'?");
  EXPECT_EQ(error_of({spec({"zone"}), spec({"zone"})}),
            "the feature column 'zone' is named twice; a column has one chain of steps");
  EXPECT_EQ(error_of({spec({"miles"})}),
            "the column 'miles' is both the target and a feature; the model would learn to copy it");
  EXPECT_EQ(error_of({}),
            "there are no feature columns; name them in a [[feature]] table: columns = [\"...\"]");
  EXPECT_EQ(error_of({spec({"zone"})}, "mile"),
            "the target column 'mile' is not an output of the query; did you mean 'miles'?");
  EXPECT_EQ(error_of({spec({"when"})}),
            "the feature column 'when' is a timestamp[us], which is not a number; take parts of it with "
            "a step, datetime(hour, dayofweek) or elapsed, or in the query, as in hour(when), or its "
            "distance to another time with date_diff");
  EXPECT_EQ(error_of({spec({"zone"})}, "vendor"),
            "the target column 'vendor' is text (string), which is not a number; turn it into one in the "
            "query, with "
            "CASE or CAST(vendor AS DOUBLE), or leave it out");
  EXPECT_EQ(
      error_of({spec({"tips"}, {"fill_null(0)", "null_indicator"})}),
      "feature column 'tips': null_indicator comes after fill_null and would see no null; put it before");
}

TEST(FeaturePlanTest, PassesAreTheLongestChainOfFits) {
  const auto plan =
      FeaturePlan::make(
          query(),
          {spec({"zone", "flag"}, {"standard_scale"}),
           spec({"tips"}, {"null_indicator", "fill_null(mean)", "log1p", "standard_scale"}), spec({"fare"})},
          "miles", OnNull::kError)
          .ValueOrDie();
  EXPECT_EQ(plan.num_passes(), 2);
  std::vector<std::string> columns;
  for (const FitRequest& request : plan.pending()) columns.push_back(request.column);
  EXPECT_EQ(columns, (std::vector<std::string>{"zone", "flag", "tips"}));
  EXPECT_EQ(plan.input()->field_names(), (std::vector<std::string>{"zone", "flag", "tips", "fare", "miles"}));
  EXPECT_TRUE(plan.rules()[2].nulls_allowed);
  EXPECT_FALSE(plan.rules()[0].nulls_allowed);
  EXPECT_TRUE(plan.rules().back().is_target);
}

struct Rows {
  std::shared_ptr<arrow::RecordBatch> batch;
  explicit Rows(const std::shared_ptr<arrow::Schema>& schema) {
    arrow::Int64Builder zone;
    arrow::DoubleBuilder tips, miles;
    EXPECT_TRUE(zone.AppendValues({5, 1000000007, -3, 0}).ok());
    EXPECT_TRUE(tips.AppendValues({1.5, 0, 2.25, 4}, {true, false, true, true}).ok());
    EXPECT_TRUE(miles.AppendValues({0.1, 0.2, 0.3, 0.4}).ok());
    batch = arrow::RecordBatch::Make(
        schema, 4, {zone.Finish().ValueOrDie(), tips.Finish().ValueOrDie(), miles.Finish().ValueOrDie()});
  }
};

FeaturePlan fitted_plan(bool log) {
  auto plan = FeaturePlan::make(
                  query(),
                  {spec({"zone"}, {"standard_scale"}),
                   spec({"tips"}, log ? std::vector<std::string>{"null_indicator", "fill_null(mean)", "log1p"}
                                      : std::vector<std::string>{"null_indicator", "fill_null(mean)"})},
                  "miles", OnNull::kError)
                  .ValueOrDie();
  std::vector<FitState> fits(2);
  fits[0].moments = {4, 250000002.25, 4e18};
  fits[1].moments = {3, 2.5833333333333335, 3.0};
  EXPECT_TRUE(plan.provide(fits).ok());
  EXPECT_TRUE(plan.pending().empty());
  return plan;
}

TEST(RowPackerTest, PacksWhatTheExpressionsSay) {
  const FeaturePlan plan = fitted_plan(true);
  const Fitted fitted = plan.fitted();
  ASSERT_EQ(fitted.columns.size(), 3u);
  EXPECT_EQ(fitted.columns[1].name, "tips_is_null");
  const RowPacker packer = RowPacker::make(fitted, "miles").ValueOrDie();
  EXPECT_EQ(packer.row_floats(), 4);
  const Rows rows(plan.input());
  const std::vector<int32_t> selection = {3, 1};
  std::vector<float> out(8, -1);
  const Status status = packer.pack(*rows.batch, selection.data(), 2, out.data());
  ASSERT_TRUE(status.ok()) << status.ToString();
  const double scale = std::sqrt(4e18 / 4);
  const std::vector<float> expected = {static_cast<float>((0 - 250000002.25) / scale),
                                       0,
                                       static_cast<float>(std::log1p(4.0)),
                                       0.4f,
                                       static_cast<float>((1000000007 - 250000002.25) / scale),
                                       1,
                                       static_cast<float>(std::log1p(2.5833333333333335)),
                                       0.2f};
  EXPECT_EQ(out, expected);
}

TEST(RowPackerTest, ShortcutHasTheBitsOfTheInterpreter) {
  const FeaturePlan plan = fitted_plan(false);
  const Fitted fitted = plan.fitted();
  const RowPacker packer = RowPacker::make(fitted, "").ValueOrDie();
  const Rows rows(plan.input());
  std::vector<float> out(12);
  ASSERT_TRUE(packer.pack(*rows.batch, nullptr, 4, out.data()).ok());
  const auto values = expr::evaluate(*fitted.columns[0].expression, *rows.batch).ValueOrDie();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(out[i * 3], static_cast<float>(static_cast<const arrow::DoubleArray&>(*values).Value(i)));
  }
}

TEST(RowPackerTest, NarrowedColumnsGiveTheSame) {
  const FeaturePlan plan = fitted_plan(true);
  const RowPacker packer = RowPacker::make(plan.fitted(), "miles").ValueOrDie();
  const Rows rows(plan.input());
  std::vector<float> wide(16), narrow(16);
  ASSERT_TRUE(packer.pack(*rows.batch, nullptr, 4, wide.data()).ok());
  arrow::Int32Builder zone;
  ASSERT_TRUE(zone.AppendValues({5, 1000000007, -3, 0}).ok());
  auto schema = rows.batch->schema()->SetField(0, arrow::field("zone", arrow::int32())).ValueOrDie();
  const auto batch = arrow::RecordBatch::Make(
      schema, 4, {zone.Finish().ValueOrDie(), rows.batch->column(1), rows.batch->column(2)});
  ASSERT_TRUE(packer.pack(*batch, nullptr, 4, narrow.data()).ok());
  EXPECT_EQ(wide, narrow);
}

TEST(RowPackerTest, NamesAValueThatIsNotFinite) {
  const auto schema =
      arrow::schema({arrow::field("a", arrow::float64()), arrow::field("miles", arrow::float64())});
  auto plan = FeaturePlan::make(*schema, {spec({"a"})}, "miles", OnNull::kError).ValueOrDie();
  const RowPacker packer = RowPacker::make(plan.fitted(), "miles").ValueOrDie();
  arrow::DoubleBuilder a, miles;
  ASSERT_TRUE(a.AppendValues({1, 2, 1e300}).ok());
  ASSERT_TRUE(miles.AppendValues({1, 2, 3}).ok());
  const auto batch =
      arrow::RecordBatch::Make(schema, 3, {a.Finish().ValueOrDie(), miles.Finish().ValueOrDie()});
  std::vector<float> out(6);
  const Status status = packer.pack(*batch, nullptr, 3, out.data());
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(),
            "feature 'a' is 1e+300, more than a float32 holds, after its steps; leave such rows out in the "
            "WHERE, or "
            "change its steps");
  EXPECT_EQ(error_position(status)->row, 2);
}

TEST(FittedJsonTest, ComesBackTheSame) {
  const FeaturePlan plan = fitted_plan(true);
  const Fitted fitted = plan.fitted();
  const std::string json = fitted_to_json(fitted).ValueOrDie();
  const auto back = fitted_from_json(json, plan.input());
  ASSERT_TRUE(back.ok()) << back.status().ToString() << "\n" << json;
  ASSERT_EQ(back->values.size(), fitted.values.size());
  for (size_t i = 0; i < fitted.values.size(); ++i) {
    EXPECT_EQ(back->values[i].value, fitted.values[i].value);
    EXPECT_EQ(back->values[i].column, fitted.values[i].column);
  }
  const Rows rows(plan.input());
  std::vector<float> before(16), after(16);
  ASSERT_TRUE(RowPacker::make(fitted, "miles")->pack(*rows.batch, nullptr, 4, before.data()).ok());
  ASSERT_TRUE(RowPacker::make(*back, "miles")->pack(*rows.batch, nullptr, 4, after.data()).ok());
  EXPECT_EQ(before, after);

  const auto without =
      arrow::schema({arrow::field("tip", arrow::float64()), arrow::field("zone", arrow::int64())});
  EXPECT_EQ(
      fitted_from_json(json, without).status().message(),
      "the features need the column 'tips' (double), which the input does not have; did you mean 'tip'?");
}

}  // namespace
}  // namespace millstream::features
