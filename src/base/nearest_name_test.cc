#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace millstream {
namespace {

TEST(NearestName, FindsSlips) {
  const std::vector<std::string> names{"trip_miles", "trip_time", "tips"};
  EXPECT_EQ(nearest_name("trip_mile", names), "trip_miles");
  EXPECT_EQ(nearest_name("TRIP_TIEM", names), "trip_time");
  EXPECT_EQ(nearest_name("passengers", names), std::nullopt);
  EXPECT_EQ(nearest_name("x", {"a", "b"}), std::nullopt);
  EXPECT_EQ(nearest_name("A", {"b", "a"}), "a");
  EXPECT_EQ(nearest_name("a", {""}), std::nullopt);
  EXPECT_EQ(nearest_name("", {"a"}), std::nullopt);
  EXPECT_EQ(edit_distance("abcd", "abdc"), 1);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(name_hint("tip", names), "; did you mean 'tips'?");
  EXPECT_EQ(name_hint("passengers", names), "; there are: trip_miles, trip_time, tips");
  EXPECT_EQ(name_hint("passengers", names, 1), "; there are: trip_miles and 2 more");
}

}  // namespace
}  // namespace millstream
