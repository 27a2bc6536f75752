// Names, canonical forms and promotions of types.

#include "expr/type.h"

#include <arrow/api.h>
#include <gtest/gtest.h>

namespace millstream::expr {
namespace {

std::string parsed(const char* text) {
  auto type = parse_type(text);
  return type.ok() ? sql_type_name(**type) : type.status().message();
}

TEST(Type, NamesAreParsed) {
  EXPECT_EQ(parsed("integer"), "INTEGER");
  EXPECT_EQ(parsed("INT8"), "BIGINT");
  EXPECT_EQ(parsed(" decimal ( 10 , 2 ) "), "DECIMAL(10,2)");
  EXPECT_EQ(parsed("NUMERIC(5)"), "DECIMAL(5,0)");
  EXPECT_EQ(parsed("DECIMAL"), "DECIMAL(18,3)");
  EXPECT_EQ(parsed("varchar(20)"), "VARCHAR");
  EXPECT_EQ(parsed("timestamp  with time zone"), "TIMESTAMP WITH TIME ZONE");
  EXPECT_EQ(parsed("double precision"), "DOUBLE");
  EXPECT_EQ(parsed("HUGEINT"), "DECIMAL(38,0)");
  EXPECT_EQ(parsed("TIMESTAMP_NS"), "TIMESTAMP_NS");
}

TEST(Type, WrongNamesNameTheNearest) {
  EXPECT_EQ(parsed("INTEGR"), "unknown type 'INTEGR'; did you mean 'INTEGER'?");
  EXPECT_NE(parsed("DECIMAL(39,0)").find("1 to 38"), std::string::npos);
  EXPECT_NE(parsed("DECIMAL(5,6)").find("behind the point"), std::string::npos);
  EXPECT_EQ(parsed("DATE(3)"), "type DATE takes no arguments");
  EXPECT_EQ(error_category(parse_type("x").status()), ErrorCategory::kQuery);
}

TEST(Type, EveryNameIsItsOwnTypeAgain) {
  for (const std::string& name : type_names()) {
    auto type = parse_type(name).ValueOrDie();
    EXPECT_TRUE(parse_type(sql_type_name(*type)).ValueOrDie()->Equals(*type)) << name;
    EXPECT_TRUE(canonical_type(type).ValueOrDie()->Equals(*type)) << name;
  }
}

TEST(Type, CanonicalForms) {
  auto is = [](const TypePtr& from, const TypePtr& to) {
    return canonical_type(from).ValueOrDie()->Equals(*to);
  };
  EXPECT_TRUE(is(arrow::large_utf8(), arrow::utf8()));
  EXPECT_TRUE(is(arrow::dictionary(arrow::int32(), arrow::large_utf8()), arrow::utf8()));
  EXPECT_TRUE(is(arrow::fixed_size_binary(4), arrow::binary()));
  EXPECT_TRUE(is(arrow::date64(), arrow::date32()));
  EXPECT_TRUE(is(arrow::decimal256(20, 3), decimal_type(20, 3)));
  EXPECT_TRUE(is(arrow::float16(), arrow::float32()));
  EXPECT_TRUE(
      is(arrow::timestamp(arrow::TimeUnit::NANO, "UTC"), arrow::timestamp(arrow::TimeUnit::NANO, "UTC")));
  EXPECT_EQ(error_category(canonical_type(arrow::decimal256(60, 3)).status()), ErrorCategory::kData);
}

TEST(Type, CommonTypes) {
  auto common = [](const TypePtr& a, const TypePtr& b) {
    TypePtr x = common_type(a, b), y = common_type(b, a);
    EXPECT_EQ(x == nullptr, y == nullptr);
    EXPECT_TRUE(!x || x->Equals(*y));
    return x ? sql_type_name(*x) : "none";
  };
  EXPECT_EQ(common(arrow::int8(), arrow::int64()), "BIGINT");
  EXPECT_EQ(common(arrow::uint8(), arrow::int8()), "SMALLINT");
  EXPECT_EQ(common(arrow::uint32(), arrow::int32()), "BIGINT");
  EXPECT_EQ(common(arrow::uint64(), arrow::int64()), "DECIMAL(38,0)");
  EXPECT_EQ(common(arrow::int64(), arrow::float32()), "FLOAT");
  EXPECT_EQ(common(arrow::float32(), arrow::float64()), "DOUBLE");
  EXPECT_EQ(common(arrow::int32(), decimal_type(2, 1)), "DECIMAL(11,1)");
  EXPECT_EQ(common(decimal_type(10, 5), decimal_type(12, 2)), "DECIMAL(15,5)");
  EXPECT_EQ(common(decimal_type(10, 5), arrow::float64()), "DOUBLE");
  EXPECT_EQ(common(arrow::date32(), timestamp_type()), "TIMESTAMP");
  EXPECT_EQ(common(arrow::timestamp(arrow::TimeUnit::SECOND), timestamp_type()), "TIMESTAMP");
  EXPECT_EQ(common(timestamp_type(), timestamp_with_zone_type()), "TIMESTAMP WITH TIME ZONE");
  EXPECT_EQ(common(arrow::null(), arrow::utf8()), "VARCHAR");
  EXPECT_EQ(common(arrow::utf8(), arrow::int32()), "none");
  EXPECT_EQ(common(arrow::boolean(), arrow::int32()), "INTEGER");
}

TEST(Type, ImplicitConversions) {
  EXPECT_EQ(implicit_cast_cost(*arrow::int32(), *arrow::int32()), 0);
  EXPECT_TRUE(implicit_cast_cost(*arrow::int32(), *arrow::int64()));
  EXPECT_FALSE(implicit_cast_cost(*arrow::int64(), *arrow::int32()));
  EXPECT_FALSE(implicit_cast_cost(*arrow::float64(), *arrow::float32()));
  EXPECT_FALSE(implicit_cast_cost(*arrow::utf8(), *arrow::int32()));
  EXPECT_FALSE(implicit_cast_cost(*timestamp_with_zone_type(), *timestamp_type()));
  EXPECT_LT(*implicit_cast_cost(*arrow::int32(), *arrow::int64()),
            *implicit_cast_cost(*arrow::int32(), *arrow::float64()));
}

}  // namespace
}  // namespace millstream::expr
