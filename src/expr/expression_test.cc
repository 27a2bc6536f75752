// Factories, inference, evaluation under selections, errors.

#include "expr/expression.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "expr/function.h"
#include "expr/type.h"

namespace millstream::expr {
namespace {

ExprPtr integer(int32_t value) {
  return make_literal(arrow::MakeScalar(value));
}
ExprPtr number(double value) {
  return make_literal(arrow::MakeScalar(value));
}
ExprPtr text(const char* value) {
  return make_literal(arrow::MakeScalar(std::string(value)));
}
ExprPtr null() {
  return make_literal(arrow::MakeNullScalar(arrow::null()));
}
ExprPtr decimal(int64_t digits, int width, int scale) {
  return make_literal(
      std::make_shared<arrow::Decimal128Scalar>(arrow::Decimal128(digits), decimal_type(width, scale)));
}
ExprPtr column(int index, const TypePtr& type, const char* name, bool nullable = true) {
  return make_column(index, *arrow::field(name, type, nullable));
}

template <class B, class T>
std::shared_ptr<arrow::Array> array(const std::vector<std::optional<T>>& values) {
  B builder;
  for (const auto& v : values) {
    if (v) {
      EXPECT_TRUE(builder.Append(*v).ok());
    } else {
      EXPECT_TRUE(builder.AppendNull().ok());
    }
  }
  return builder.Finish().ValueOrDie();
}
std::shared_ptr<arrow::Array> int64s(const std::vector<std::optional<int64_t>>& v) {
  return array<arrow::Int64Builder, int64_t>(v);
}
std::shared_ptr<arrow::Array> int32s(const std::vector<std::optional<int32_t>>& v) {
  return array<arrow::Int32Builder, int32_t>(v);
}
std::shared_ptr<arrow::Array> doubles(const std::vector<std::optional<double>>& v) {
  return array<arrow::DoubleBuilder, double>(v);
}
std::shared_ptr<arrow::Array> bools(const std::vector<std::optional<bool>>& v) {
  return array<arrow::BooleanBuilder, bool>(v);
}
std::shared_ptr<arrow::Array> strings(const std::vector<std::optional<std::string>>& v) {
  return array<arrow::StringBuilder, std::string>(v);
}

std::shared_ptr<arrow::RecordBatch> batch(const std::vector<std::shared_ptr<arrow::Array>>& columns) {
  arrow::FieldVector fields;
  for (size_t i = 0; i < columns.size(); ++i) {
    fields.push_back(arrow::field(std::string(1, static_cast<char>('a' + i)), columns[i]->type()));
  }
  int64_t rows = columns[0]->length();
  return arrow::RecordBatch::Make(arrow::schema(fields), rows, columns);
}

ExprPtr col(const arrow::RecordBatch& b, int i) {
  return make_column(i, *b.schema()->field(i));
}

ExprPtr call(std::string_view name, std::vector<ExprPtr> arguments) {
  auto e = make_call(name, std::move(arguments));
  EXPECT_TRUE(e.ok()) << e.status().ToString();
  return e.ok() ? *e : nullptr;
}

void expect(const ExprPtr& e, const std::shared_ptr<arrow::RecordBatch>& b,
            const std::shared_ptr<arrow::Array>& expected) {
  ASSERT_TRUE(e);
  auto result = evaluate(*e, *b);
  ASSERT_TRUE(result.ok()) << e->to_sql() << ": " << result.status().ToString();
  EXPECT_TRUE((*result)->ValidateFull().ok());
  EXPECT_TRUE((*result)->Equals(*expected, arrow::EqualOptions().nans_equal(true)))
      << e->to_sql() << "\n"
      << (*result)->ToString() << "\n"
      << expected->ToString();
  // A slice gives a slice.
  if (b->num_rows() < 2) return;
  auto part = evaluate(*e, *b->Slice(1));
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_TRUE((*part)->Equals(*expected->Slice(1), arrow::EqualOptions().nans_equal(true)))
      << "sliced: " << e->to_sql() << "\n"
      << (*part)->ToString();
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

TEST(Expression, IntegerArithmeticAndItsOverflow) {
  auto b = batch({int64s({1, std::nullopt, 3}), int64s({10, 20, std::nullopt})});
  expect(call("+", {col(*b, 0), col(*b, 1)}), b, int64s({11, std::nullopt, std::nullopt}));
  expect(call("*", {col(*b, 0), integer(7)}), b, int64s({7, std::nullopt, 21}));
  expect(call("-", {col(*b, 0)}), b, int64s({-1, std::nullopt, -3}));

  auto big = batch({int32s({1, 2147483647, 2147483647})});
  auto sum = call("+", {col(*big, 0), integer(1)});
  auto result = evaluate(*sum, *big);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().message(), "overflow in 2147483647 + 1 (INTEGER)");
  EXPECT_EQ(error_category(result.status()), ErrorCategory::kData);
  EXPECT_EQ(error_position(result.status())->row, 1);
}

TEST(Expression, ALiteralTakesTheTypeOfTheOtherSide) {
  auto b = batch({array<arrow::Int8Builder, int8_t>({int8_t{127}})});
  auto sum = call("+", {col(*b, 0), integer(1)});
  EXPECT_TRUE(sum->type->Equals(arrow::int8()));
  EXPECT_EQ(evaluate(*sum, *b).status().message(), "overflow in 127 + 1 (TINYINT)");
  EXPECT_TRUE(call("+", {col(*b, 0), integer(300)})->type->Equals(arrow::int16()) ||
              call("+", {col(*b, 0), integer(300)})->type->Equals(arrow::int32()));
}

TEST(Expression, DivisionIsOfFloatingPointNumbers) {
  auto b = batch({int64s({7, -7, 0, 1})});
  expect(call("/", {col(*b, 0), integer(0)}), b, doubles({kInf, -kInf, kNaN, kInf}));
  expect(call("/", {col(*b, 0), integer(2)}), b, doubles({3.5, -3.5, 0.0, 0.5}));
  expect(call("//", {col(*b, 0), integer(2)}), b, int64s({3, -3, 0, 0}));
  expect(call("%", {col(*b, 0), integer(3)}), b, int64s({1, -1, 0, 1}));
  auto failed = evaluate(*call("//", {integer(7), col(*b, 0)}), *b);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.status().message(), "division by zero in 7 // 0");
  EXPECT_EQ(error_position(failed.status())->row, 2);
}

TEST(Expression, DecimalsKeepTheirDigits) {
  auto b = batch({int32s({3, -3})});
  auto product = call("*", {integer(3), decimal(1, 2, 1)});
  EXPECT_EQ(sql_type_name(*product->type), "DECIMAL(12,1)");
  EXPECT_EQ(evaluate(*product, *b).ValueOrDie()->GetScalar(1).ValueOrDie()->ToString(), "0.3");
  EXPECT_EQ(sql_type_name(*call("+", {decimal(150, 10, 2), decimal(1250, 10, 3)})->type), "DECIMAL(12,3)");
  EXPECT_EQ(sql_type_name(*call("%", {decimal(75, 2, 1), decimal(225, 3, 2)})->type), "DECIMAL(3,2)");
  expect(call("<", {col(*b, 0), decimal(25, 2, 1)}), b, bools({false, true}));
}

TEST(Expression, NaNIsGreatestAndEqualToItself) {
  auto b = batch({doubles({1.0, kNaN, kInf, std::nullopt, kNaN}), doubles({kNaN, kNaN, kNaN, kNaN, 0.0})});
  expect(call("=", {col(*b, 0), col(*b, 1)}), b, bools({false, true, false, std::nullopt, false}));
  expect(call("<>", {col(*b, 0), col(*b, 1)}), b, bools({true, false, true, std::nullopt, true}));
  expect(call("<", {col(*b, 0), col(*b, 1)}), b, bools({true, false, true, std::nullopt, false}));
  expect(call("<=", {col(*b, 0), col(*b, 1)}), b, bools({true, true, true, std::nullopt, false}));
  expect(call(">", {col(*b, 0), col(*b, 1)}), b, bools({false, false, false, std::nullopt, true}));
  expect(call(">=", {col(*b, 0), col(*b, 1)}), b, bools({false, true, false, std::nullopt, true}));
  expect(call("is_distinct_from", {col(*b, 0), col(*b, 1)}), b, bools({true, false, true, true, true}));
  expect(call("is_not_distinct_from", {col(*b, 0), null()}), b, bools({false, false, false, true, false}));
}

TEST(Expression, ThreeValuedLogic) {
  auto b = batch({bools({true, true, true, false, false, false, std::nullopt, std::nullopt, std::nullopt}),
                  bools({true, false, std::nullopt, true, false, std::nullopt, true, false, std::nullopt})});
  expect(*make_and({col(*b, 0), col(*b, 1)}), b,
         bools({true, false, std::nullopt, false, false, false, std::nullopt, false, std::nullopt}));
  expect(*make_or({col(*b, 0), col(*b, 1)}), b,
         bools({true, true, true, true, false, std::nullopt, true, std::nullopt, std::nullopt}));
  expect(call("not", {col(*b, 1)}), b,
         bools({false, true, std::nullopt, false, true, std::nullopt, false, true, std::nullopt}));
  expect(call("is_null", {col(*b, 0)}), b,
         bools({false, false, false, false, false, false, true, true, true}));
}

TEST(Expression, GuardedErrorsDoNotFire) {
  auto b = batch({int64s({0, 2, std::nullopt, 4, 0})});
  auto guard = call("<>", {col(*b, 0), integer(0)});
  auto quotient = call("//", {integer(8), col(*b, 0)});
  expect(*make_and({guard, call(">", {quotient, integer(2)})}), b,
         bools({false, true, std::nullopt, false, false}));
  expect(*make_case({guard, quotient}, integer(-1)), b, int64s({-1, 4, -1, 2, -1}));
  expect(*make_or({call("=", {col(*b, 0), integer(0)}), call("=", {quotient, integer(2)})}), b,
         bools({true, false, std::nullopt, true, true}));
  auto nothing = batch({int64s({std::nullopt, 5})});
  expect(*make_coalesce({col(*nothing, 0), call("//", {integer(1), integer(0)})}), batch({int64s({5, 6})}),
         int64s({5, 6}));
  auto failed = evaluate(**make_case({call("is_null", {col(*nothing, 0)}), integer(0)},
                                     call("//", {col(*nothing, 0), integer(0)})),
                         *nothing);
  EXPECT_EQ(error_position(failed.status())->row, 1);
}

TEST(Expression, TheLowestFailingRowIsReported) {
  auto b = batch({int64s({1, 1, 1, 0}), int64s({1, 0, 1, 1})});
  auto e = call("+", {call("//", {integer(5), col(*b, 0)}), call("//", {integer(6), col(*b, 1)})});
  auto failed = evaluate(*e, *b);
  EXPECT_EQ(error_position(failed.status())->row, 1);
  EXPECT_EQ(failed.status().message(), "division by zero in 6 // 0");
}

TEST(Expression, CaseOverStrings) {
  auto b = batch({int64s({1, 2, 3, std::nullopt}), strings({"x", std::nullopt, "z", "w"})});
  expect(*make_case({call("=", {col(*b, 0), integer(1)}), text("one"), call("=", {col(*b, 0), integer(3)}),
                     col(*b, 1)},
                    nullptr),
         b, strings({"one", std::nullopt, "z", std::nullopt}));
  expect(*make_coalesce({col(*b, 1), text("none")}), b, strings({"x", "none", "z", "w"}));
}

TEST(Expression, In) {
  auto b = batch({int64s({1, 2, std::nullopt, 9})});
  expect(*make_in(col(*b, 0), {integer(1), integer(9)}), b, bools({true, false, std::nullopt, true}));
  expect(*make_in(col(*b, 0), {integer(1), null()}), b,
         bools({true, std::nullopt, std::nullopt, std::nullopt}));
  std::vector<ExprPtr> many;
  for (int i = 2; i < 40; i += 7) many.push_back(integer(i));
  for (int i = 100; i < 110; ++i) many.push_back(integer(i));
  expect(*make_in(col(*b, 0), many), b, bools({false, true, std::nullopt, true}));
  expect(*make_in(integer(1), {col(*b, 0), integer(3)}), b, bools({true, false, std::nullopt, false}));
}

TEST(Expression, Nullability) {
  auto never = column(0, arrow::int64(), "n", false);
  auto maybe = column(1, arrow::int64(), "m");
  EXPECT_FALSE(call("+", {never, integer(1)})->nullable);
  EXPECT_TRUE(call("+", {never, maybe})->nullable);
  EXPECT_FALSE(call("is_null", {maybe})->nullable);
  EXPECT_FALSE((*make_coalesce({maybe, never}))->nullable);
  EXPECT_TRUE((*make_case({call("=", {never, integer(1)}), never}, nullptr))->nullable);
  EXPECT_FALSE((*make_case({call("=", {maybe, integer(1)}), never}, integer(0)))->nullable);
  EXPECT_TRUE((*make_cast(column(0, arrow::utf8(), "s", false), arrow::int64(), true))->nullable);
  EXPECT_FALSE((*make_cast(column(0, arrow::utf8(), "s", false), arrow::int64(), false))->nullable);
  auto inlined = substitute_columns(call("+", {maybe, maybe}), {nullptr, never});
  EXPECT_FALSE(inlined->nullable);
}

TEST(Expression, ColumnsAreReadRemappedAndReplaced) {
  auto e =
      call("+", {column(4, arrow::int64(), "x"), call("*", {column(1, arrow::int64(), "y"), integer(2)})});
  EXPECT_EQ(columns_read(*e), (std::vector<int>{1, 4}));
  auto moved = remap_columns(e, {-1, 0, -1, -1, 1});
  EXPECT_EQ(columns_read(*moved), (std::vector<int>{0, 1}));
  EXPECT_EQ(moved->to_sql(), e->to_sql());
}

TEST(Expression, SqlText) {
  auto x = column(0, arrow::int64(), "x");
  EXPECT_EQ(call("+", {x, integer(1)})->to_sql(), "(\"x\" + CAST(1 AS BIGINT))");
  EXPECT_EQ(call("is_null", {x})->to_sql(), "(\"x\" IS NULL)");
  EXPECT_EQ(number(1.5)->to_sql(), "1.5e0");
  EXPECT_EQ(text("it's")->to_sql(), "'it''s'");
  EXPECT_EQ(decimal(15, 2, 1)->to_sql(), "1.5");
  EXPECT_EQ((*make_cast(x, arrow::utf8(), true))->to_sql(), "TRY_CAST(\"x\" AS VARCHAR)");
}

TEST(Expression, ErrorsOfFactories) {
  auto s = column(0, arrow::utf8(), "s");
  auto unknown = make_call("hourr", {s});
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(error_category(unknown.status()), ErrorCategory::kQuery);
  auto none = make_call("+", {s, integer(1)});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message().substr(0, 52), "there is no +(VARCHAR, INTEGER); there are: +(DECIMA");
  auto compared = make_call("=", {s, integer(1)});
  EXPECT_EQ(compared.status().message(),
            "values of type VARCHAR and INTEGER can't be compared; cast one of them");
  auto mixed = make_case({call("is_null", {s}), s}, integer(1));
  EXPECT_EQ(error_category(mixed.status()), ErrorCategory::kQuery);
  auto cast = make_cast(column(0, arrow::date32(), "d"), arrow::int32());
  EXPECT_EQ(cast.status().message(), "DATE can't be cast to INTEGER: \"d\"");
  EXPECT_FALSE(make_call("=", {column(0, arrow::date32(), "d"), text("no date")}).ok());
}

// However rows are grouped, and wherever a slice begins, a row's value is the same.
TEST(Expression, WholeBatchesEqualSingleRows) {
  std::vector<std::optional<int64_t>> n;
  std::vector<std::optional<double>> x;
  std::vector<std::optional<std::string>> s;
  std::vector<std::optional<bool>> t;
  for (int i = 0; i < 300; ++i) {
    n.push_back(i % 5 == 0 ? std::nullopt : std::optional<int64_t>(i % 11 - 3));
    x.push_back(i % 7 == 0 ? std::nullopt : std::optional<double>(i % 13 == 0 ? kNaN : i * 0.5));
    s.push_back(i % 4 == 0 ? std::nullopt
                           : std::optional<std::string>(std::string(static_cast<size_t>(i % 6), 'z')));
    t.push_back(i % 3 == 0 ? std::nullopt : std::optional<bool>(i % 2 == 0));
  }
  auto b = batch({int64s(n), doubles(x), strings(s), bools(t)});
  auto a = col(*b, 0), c = col(*b, 1), d = col(*b, 2), e = col(*b, 3);
  auto positive = call(">", {a, integer(0)});
  auto quotient = call("//", {integer(100), a});
  auto rare = call("=", {c, number(100.5)});
  const std::vector<ExprPtr> expressions = {
      *make_case({positive, c, e, number(1)}, number(0)),
      *make_case({positive, quotient, rare, integer(5)}, nullptr),
      *make_case({e, call("is_null", {a})}, positive),
      *make_case({positive, d, e, text("b")}, nullptr),
      *make_coalesce({a, *make_cast(call("floor", {c}), arrow::int64(), true), integer(7)}),
      *make_coalesce({d, *make_cast(c, arrow::utf8())}),
      *make_coalesce({e, positive}),
      *make_and({e, positive, call(">", {quotient, integer(20)})}),
      *make_or({rare, call("not", {positive}), call(">", {quotient, integer(20)})}),
      *make_and({rare, call("like", {d, text("%z")})}),
      *make_in(a, {integer(1), integer(-2), null()}),
      *make_in(d, {text("z"), text("zzz")}),
      call("least", {c, number(20), *make_cast(a, arrow::float64())}),
      call("greatest", {d, text("zz")}),
      call("concat", {d, a, text("-")}),
      call("is_distinct_from", {a, integer(2)}),
      call("upper", {call("||", {d, text("é")})}),
      call("nullif", {a, integer(3)}),
  };
  for (const ExprPtr& expression : expressions) {
    for (int64_t offset : {int64_t{0}, int64_t{1}, int64_t{67}}) {
      auto part = b->Slice(offset, 200);
      auto whole = evaluate(*expression, *part);
      ASSERT_TRUE(whole.ok()) << expression->to_sql() << ": " << whole.status().ToString();
      ASSERT_TRUE((*whole)->ValidateFull().ok()) << expression->to_sql();
      for (int64_t i = 0; i < part->num_rows(); ++i) {
        auto row = evaluate(*expression, *part->Slice(i, 1)).ValueOrDie()->GetScalar(0).ValueOrDie();
        auto same = (*whole)->GetScalar(i).ValueOrDie();
        ASSERT_TRUE(same->Equals(*row, arrow::EqualOptions().nans_equal(true)))
            << expression->to_sql() << " at " << offset + i << ": " << same->ToString() << ", "
            << row->ToString();
      }
    }
  }
}

TEST(Expression, FilterAndTake) {
  std::vector<std::optional<double>> miles;
  std::vector<std::optional<int64_t>> seconds;
  for (int i = 0; i < 1000; ++i) {
    miles.push_back(i % 3 == 0   ? std::optional<double>(0.0)
                    : i % 7 == 0 ? std::nullopt
                                 : std::optional<double>(i));
    seconds.push_back(i % 5 == 0 ? 0 : i);
  }
  auto b = batch({doubles(miles), int64s(seconds)});
  auto predicate = *make_and({call(">", {col(*b, 0), integer(0)}), call(">", {col(*b, 1), integer(0)})});
  auto rows = evaluate_filter(*predicate, *b).ValueOrDie();
  std::vector<int32_t> expected;
  for (int i = 0; i < 1000; ++i) {
    if (i % 3 && i % 7 && i % 5) expected.push_back(i);
  }
  EXPECT_EQ(rows, expected);
  auto taken = take_rows(*b, rows).ValueOrDie();
  ASSERT_EQ(taken->num_rows(), static_cast<int64_t>(expected.size()));
  for (int64_t i = 0; i < taken->num_rows(); ++i) {
    EXPECT_EQ(static_cast<const arrow::Int64Array&>(*taken->column(1)).Value(i),
              expected[static_cast<size_t>(i)]);
  }
  std::vector<int32_t> all(1000);
  for (int i = 0; i < 1000; ++i) all[static_cast<size_t>(i)] = i;
  auto same = take_rows(*b, all).ValueOrDie();
  EXPECT_EQ(same->column_data(0)->buffers[1]->data(), b->column_data(0)->buffers[1]->data());
  EXPECT_EQ(take_rows(*b, {}).ValueOrDie()->num_rows(), 0);
}

TEST(Expression, NoRowsAndConstants) {
  auto none = batch({int64s({})});
  auto failing = call("//", {integer(1), integer(0)});
  EXPECT_EQ(evaluate(*failing, *none).ValueOrDie()->length(), 0);
  auto b = batch({int64s({1, 2})});
  expect(call("+", {integer(1), integer(2)}), b, int32s({3, 3}));
  EXPECT_EQ(error_position(evaluate(*failing, *b).status())->row, 0);
}

TEST(Expression, Casts) {
  auto b = batch({strings({" 42 ", "4.5", "1e3", std::nullopt}), doubles({2.5, 3.5, -0.5, std::nullopt})});
  expect(*make_cast(col(*b, 0), arrow::int32()), b, int32s({42, 5, 1000, std::nullopt}));
  expect(*make_cast(col(*b, 1), arrow::int32()), b, int32s({2, 4, 0, std::nullopt}));
  expect(*make_cast(col(*b, 1), arrow::utf8()), b, strings({"2.5", "3.5", "-0.5", std::nullopt}));
  auto bad = batch({strings({"1", "abc"}), doubles({1e10, 1})});
  expect(*make_cast(col(*bad, 0), arrow::int64(), true), bad, int64s({1, std::nullopt}));
  auto failed = evaluate(**make_cast(col(*bad, 0), arrow::int64()), *bad);
  EXPECT_EQ(failed.status().message(), "can't cast 'abc' to BIGINT");
  EXPECT_EQ(error_position(failed.status())->row, 1);
  failed = evaluate(**make_cast(col(*bad, 1), arrow::int32()), *bad);
  EXPECT_EQ(failed.status().message(), "can't cast 10000000000.0 to INTEGER: the value is out of range");
}

}  // namespace
}  // namespace millstream::expr
