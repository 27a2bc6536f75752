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
  EXPECT_EQ(error_of("fill_null(median)"), "fill_null(median): the argument can be mean or a finite number");
  EXPECT_EQ(error_of("fill_null(inf)"), "fill_null(inf): the argument can be mean or a finite number");
  EXPECT_EQ(
      error_of("fill_null"),
      "feature step fill_null takes one argument, fill_null(mean) or a number as in fill_null(0); it has 0");
  EXPECT_EQ(error_of("log1p(2)"), "feature step log1p takes no arguments; it has '2'");
  EXPECT_EQ(error_of("fill_null(0"), "feature step 'fill_null(0' has no closing parenthesis");
}

}  // namespace
}  // namespace millstream::features
