#include "features/feature_spec.h"

#include <gtest/gtest.h>

namespace millstream::features {
namespace {

TEST(FeatureSpecTest, ReadsSteps) {
  EXPECT_EQ(parse_step("standard_scale")->name, "standard_scale");
  const auto fill = parse_step(" fill_null( -1.5 ) ");
  ASSERT_TRUE(fill.ok()) << fill.status().ToString();
  EXPECT_EQ(fill->name, "fill_null");
  EXPECT_EQ(fill->arguments, std::vector<std::string>{"-1.5"});
  EXPECT_EQ(step_text(*fill), "fill_null(-1.5)");
  EXPECT_TRUE(parse_step("fill_null(mean)").ok());
  EXPECT_EQ(parse_step("fill_null('it''s, well')")->arguments, std::vector<std::string>{"'it''s, well'"});
  EXPECT_EQ(quoted_text("'it''s'"), "it's");
  EXPECT_EQ(parse_time("2024-01-01 00:00:01"), 1704067201.0);
}

std::string error_of(std::string_view step) {
  const auto parsed = parse_step(step);
  EXPECT_FALSE(parsed.ok()) << step;
  EXPECT_EQ(error_category(parsed.status()), ErrorCategory::kUsage);
  return parsed.status().message();
}

TEST(FeatureSpecTest, NamesWhatIsWrong) {
  EXPECT_EQ(error_of("standart_scale"),
            "unknown feature step 'standart_scale'; did you mean 'standard_scale'?");
  const std::string can_be =
      "the argument can be mean, median, most_frequent, a finite number or a text in quotes, 'none'";
  EXPECT_EQ(error_of("fill_null(meen)"), "fill_null(meen): " + can_be);
  EXPECT_EQ(error_of("fill_null(inf)"), "fill_null(inf): " + can_be);
  EXPECT_EQ(error_of("fill_null('it's')"),
            "feature step 'fill_null('it's')' has a text without its closing quote");
  EXPECT_EQ(error_of("clip(2,1)"),
            "clip(2,1): it is written clip(LOW, HIGH) with numbers, of which one may be none, or "
            "clip(quantiles, LOW, HIGH) with 0 <= LOW <= HIGH <= 1");
  EXPECT_EQ(error_of("bucketize(1,1)"),
            "bucketize(1,1): it is written bucketize(EDGE, EDGE, ...) with ascending numbers, or "
            "bucketize(quantiles, N) with N from 2 to 1000");
  EXPECT_EQ(error_of("datetime(houre)"),
            "datetime(houre): there is no part 'houre'; did you mean 'hour'?; there are year, quarter, "
            "month, week, "
            "day, dayofweek, dayofyear, hour, minute, second");
  EXPECT_EQ(error_of("elapsed(yesterday)"),
            "elapsed(yesterday): it is written elapsed, since the earliest time of the training rows, or "
            "elapsed(2024-01-01)");
  EXPECT_EQ(error_of("hash_bucket(0)"),
            "hash_bucket(0): it is written hash_bucket(N) with N from 1 to 16777216");
  EXPECT_EQ(error_of("one_hot(max_size=0)"), "one_hot(max_size=0): max_size is a whole number, at least 1");
  EXPECT_EQ(
      error_of("categorify(5)"),
      "categorify(5): it is written categorify or categorify(min_count=N, max_size=N), each at most once");
  EXPECT_EQ(error_of("ordinal"),
            "ordinal: name the values in their order, as in ordinal('low', 'middle', 'high')");
  EXPECT_EQ(error_of("ordinal('a','a')"), "ordinal('a','a'): 'a' is there twice");
  EXPECT_EQ(error_of("min_max_scale(1,0)"),
            "min_max_scale(1,0): it is written min_max_scale or min_max_scale(LOW, HIGH) with LOW < HIGH");
  EXPECT_EQ(
      error_of("fill_null"),
      "feature step fill_null takes one argument, fill_null(mean) or a number as in fill_null(0); it has 0");
  EXPECT_EQ(error_of("log1p(2)"), "feature step log1p takes no arguments; it has '2'");
  EXPECT_EQ(error_of("fill_null(0"), "feature step 'fill_null(0' has no closing parenthesis");
}

}  // namespace
}  // namespace millstream::features
