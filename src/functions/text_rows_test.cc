// Code points are counted right wherever they lie in a string, whatever its length.

#include "functions/text_rows.h"

#include <string>

#include <gtest/gtest.h>

namespace millstream::functions {
namespace {

TEST(TextRows, CodePointsAreCounted) {
  for (const std::string_view wide : {"é", "€", "😀"}) {
    for (size_t before = 0; before < 20; ++before) {
      for (size_t after = 0; after < 20; ++after) {
        const std::string text = std::string(before, 'a') + std::string(wide) + std::string(after, '~');
        EXPECT_EQ(count_code_points(text), static_cast<int64_t>(before + 1 + after)) << text;
        EXPECT_EQ(count_code_points(text.substr(0, before)), static_cast<int64_t>(before)) << text;
        EXPECT_EQ(count_code_points(text + text), static_cast<int64_t>(2 * (before + 1 + after))) << text;
      }
    }
  }
}

}  // namespace
}  // namespace millstream::functions
