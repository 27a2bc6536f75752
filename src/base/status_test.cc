#include "base/status.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

TEST(Status, EncodesAndDecodes) {
  EXPECT_TRUE(decode_status(encode_status(Status::OK())).ok());
  const Status error = make_error(ErrorCategory::kData, "column 'a', row 7: null", SourcePosition{2, 7}, 3);
  const Status back = decode_status(encode_status(error));
  EXPECT_EQ(back.message(), error.message());
  EXPECT_EQ(error_category(back), ErrorCategory::kData);
  EXPECT_EQ(error_position(back), (SourcePosition{2, 7}));
  EXPECT_EQ(exit_code(back), 3);
  EXPECT_EQ(error_category(decode_status("")), ErrorCategory::kBug);
  EXPECT_EQ(error_category(decode_status(std::string("\0\x01", 2))), ErrorCategory::kBug);
}

TEST(Status, LowestPositionIsReported) {
  const Status near = make_error(ErrorCategory::kData, "near", SourcePosition{0, 5});
  const Status far = make_error(ErrorCategory::kData, "far", SourcePosition{1, 0});
  const Status peer = make_error(ErrorCategory::kPeerFailed, "peer");
  const Status interrupted = make_error(ErrorCategory::kInterrupted, "signal");
  EXPECT_TRUE(reported_before(near, 3, far, 0));
  EXPECT_FALSE(reported_before(peer, 0, far, 3));
  EXPECT_TRUE(reported_before(far, 3, interrupted, 0));
  EXPECT_TRUE(reported_before(far, 0, far, 1));
}

Result<int> twice(Result<int> value) {
  MILLSTREAM_ASSIGN(const int number, std::move(value));
  MILLSTREAM_TRY(number < 0 ? usage_error("{} is negative", number) : Status::OK());
  return 2 * number;
}

TEST(Status, MacrosReturnErrors) {
  EXPECT_EQ(twice(4).ValueOrDie(), 8);
  EXPECT_EQ(twice(-1).status().message(), "-1 is negative");
  EXPECT_EQ(exit_code(twice(file_error("gone")).status()), 3);
  EXPECT_EQ(with_context(usage_error("x"), "recipe.toml").message(), "recipe.toml: x");
  EXPECT_EQ(exit_code(with_context(usage_error("x"), "recipe.toml")), 2);
}

}  // namespace
}  // namespace millstream
