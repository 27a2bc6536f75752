#include "cli/json_output.h"

#include <limits>

#include <gtest/gtest.h>

namespace millstream::cli {
namespace {

TEST(JsonOutput, NumbersRoundTripInFewDigits) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(5), "5.0");
  EXPECT_EQ(json_number(1e-7), "1e-07");
  EXPECT_EQ(json_number(1.0 / 3), "0.3333333333333333");
  EXPECT_EQ(json_number(std::numeric_limits<double>::quiet_NaN()), "\"NaN\"");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "\"Infinity\"");
  EXPECT_EQ(json_number(-std::numeric_limits<double>::infinity()), "\"-Infinity\"");
}

TEST(JsonOutput, StringsAreEscapedAndAlwaysUtf8) {
  EXPECT_EQ(json_string("a\"b\\c\n\t\x01"), R"("a\"b\\c\n\t\u0001")");
  EXPECT_EQ(json_string("né"), "\"né\"");
  EXPECT_EQ(json_string("\xff\xc0\xaf!"), "\"\\ufffd\\ufffd\\ufffd!\"");
  EXPECT_EQ(json_string("\xe2\x82"), "\"\\ufffd\\ufffd\"");
}

TEST(JsonOutput, KeysKeepTheirOrder) {
  JsonArray list;
  list.add_json("1").add_json("\"x\"");
  JsonObject object;
  object.add("z", int64_t{3})
      .add("a", "text")
      .add("flag", true)
      .add_json("list", list.str())
      .add("half", 0.5);
  EXPECT_EQ(object.str(), R"({"z": 3, "a": "text", "flag": true, "list": [1, "x"], "half": 0.5})");
}

}  // namespace
}  // namespace millstream::cli
