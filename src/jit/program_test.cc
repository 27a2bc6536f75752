// Programs: conditions that keep rows from failing, filters, packed rows, kernels, limits, and what the vectoriser
// makes of the loops.

#include "jit/program.h"

#include <cmath>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "jit/compiler.h"
#include "jit/variant.h"
#include "sql/binder.h"

namespace millstream::jit {
namespace {

using expr::ExprPtr;

std::shared_ptr<arrow::Schema> schema(bool nullable) {
  return arrow::schema(
      {arrow::field("i", arrow::int32(), nullable), arrow::field("k", arrow::int64(), nullable),
       arrow::field("x", arrow::float64(), nullable), arrow::field("y", arrow::float64(), nullable),
       arrow::field("f", arrow::float32(), nullable), arrow::field("b", arrow::boolean(), nullable),
       arrow::field("t", arrow::timestamp(arrow::TimeUnit::MICRO), nullable),
       arrow::field("d", arrow::date32(), nullable), arrow::field("s", arrow::utf8(), nullable),
       arrow::field("c", arrow::decimal128(12, 2), nullable)});
}

/// Small numbers of all signs, zeros among them; with NULLs in every column at other places.
std::shared_ptr<arrow::RecordBatch> batch(int64_t rows, bool nulls) {
  arrow::ArrayVector columns;
  int column = 0;
  const auto fields = schema(true)->fields();
  for (const auto& field : fields) {
    std::unique_ptr<arrow::ArrayBuilder> builder;
    EXPECT_TRUE(arrow::MakeBuilder(arrow::default_memory_pool(), field->type(), &builder).ok());
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t number = (row * 7 + column * 13) % 41 - 20;
      if (nulls && (row + column) % 5 == 0) {
        EXPECT_TRUE(builder->AppendNull().ok());
        continue;
      }
      std::shared_ptr<arrow::Scalar> value;
      switch (field->type()->id()) {
        case arrow::Type::BOOL:
          value = arrow::MakeScalar(number % 3 == 0);
          break;
        case arrow::Type::DOUBLE:
          value = arrow::MakeScalar(static_cast<double>(number) / 4);
          break;
        case arrow::Type::FLOAT:
          value = arrow::MakeScalar(static_cast<float>(number) / 8);
          break;
        case arrow::Type::TIMESTAMP:
          value = arrow::MakeScalar(field->type(), number * 5'000'000'000'003 + row).ValueOrDie();
          break;
        case arrow::Type::STRING:
          value = arrow::MakeScalar(std::to_string(number));
          break;
        case arrow::Type::DECIMAL128:
          value = std::make_shared<arrow::Decimal128Scalar>(arrow::Decimal128(number * 37), field->type());
          break;
        default:
          value = arrow::MakeScalar(field->type(), number).ValueOrDie();
      }
      EXPECT_TRUE(builder->AppendScalar(*value).ok());
    }
    columns.push_back(builder->Finish().ValueOrDie());
    ++column;
  }
  return arrow::RecordBatch::Make(schema(nulls), rows, columns);
}

ExprPtr bound(const std::string& text, bool nullable = true) {
  auto e = sql::bind_text(text, schema(nullable), "test");
  EXPECT_TRUE(e.ok()) << text << ": " << e.status().ToString();
  return e.ok() ? *e : nullptr;
}

class ProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!open_compiler().ok()) GTEST_SKIP() << "this build has no code generator";
    set_engine(Engine::kCompiled);
  }
  void TearDown() override { set_code_directory(""); }
};

bool same(const arrow::Array& a, const arrow::Array& b) {
  return a.Equals(b, arrow::EqualOptions().nans_equal(true).signed_zeros_equal(false));
}

/// Compiled and interpreted are the same, and nothing failed or stayed a kernel.
void expect_fused(const std::string& text, bool nulls) {
  const auto e = bound(text, nulls);
  const auto program = Program::columns(schema(nulls), {e});
  EXPECT_TRUE(program.report().kernels.empty()) << text << ": " << program.report().kernels[0].reason;
  const auto input = batch(3000, nulls);
  const auto before = code_counts();
  const auto values = program.evaluate(*input);
  ASSERT_TRUE(values.ok()) << text << ": " << values.status().ToString();
  EXPECT_EQ(code_counts().failed_batches, before.failed_batches) << text;
  EXPECT_EQ(code_counts().batches, before.batches + 1) << text;
  EXPECT_TRUE(same(*(*values)[0], *expr::evaluate(*e, *input).ValueOrDie())) << text;
}

TEST_F(ProgramTest, ConditionsKeepRowsFromFailing) {
  for (const bool nulls : {false, true}) {
    expect_fused("CASE WHEN i <> 0 THEN 100 // i ELSE 0 END", nulls);
    expect_fused("CASE WHEN i > 0 THEN k // i WHEN i < 0 THEN k % i END", nulls);
    expect_fused("i <> 0 AND 100 // i > 3", nulls);
    expect_fused("i = 0 OR 100 // i > 3", nulls);
    expect_fused("CASE WHEN b AND i <> 0 THEN CASE WHEN k <> 0 THEN (i // k) // i ELSE 0 END ELSE 7 END",
                 nulls);
    expect_fused("coalesce(nullif(i, 0), 5) // coalesce(nullif(k, 0), 3)", nulls);
    expect_fused("i IS NULL OR i = 0 OR 5 // i > 1", nulls);
  }
}

TEST_F(ProgramTest, LogicIsThreeValued) {
  for (const bool nulls : {false, true}) {
    expect_fused("x < y AND b", nulls);
    expect_fused("x < y OR b OR i = 3", nulls);
    expect_fused("NOT (x < y) AND NOT b", nulls);
    expect_fused("x IS NULL", nulls);
    expect_fused("(x < y) IS NOT NULL", nulls);
    expect_fused("x IS DISTINCT FROM y", nulls);
    expect_fused("i IS NOT DISTINCT FROM k", nulls);
    expect_fused("i IN (1, 2, 3)", nulls);
    expect_fused("i IN (1, NULL, 3)", nulls);
    expect_fused("greatest(x, y, 1e0)", nulls);
    expect_fused("least(i, k)", nulls);
    expect_fused("x BETWEEN -1e0 AND y", nulls);
    expect_fused("coalesce(nullif(x, 1e0), y, 0e0)", nulls);
    expect_fused("CASE WHEN b THEN x WHEN x < y THEN y END", nulls);
    expect_fused("CASE s WHEN '3' THEN 1 WHEN '-4' THEN 2 ELSE length(s) END", nulls);
    expect_fused("c + c * 2.5 > 3", nulls);
    expect_fused("date_trunc('day', t)", nulls);
    expect_fused("t + INTERVAL '1 day 2 hours'", nulls);
    expect_fused("hour(t) + dayofweek(d)", nulls);
    expect_fused("exp(x) / (1e0 + exp(x))", nulls);
  }
}

TEST_F(ProgramTest, FiltersAskOnlyWhereAllBeforeIsTrue) {
  for (const bool nulls : {false, true}) {
    for (const char* text :
         {"i <> 0 AND 10 // i < 4", "b AND x < y", "x > 0e0 OR b", "b", "i IS NOT NULL AND i > 3"}) {
      const auto e = bound(text, nulls);
      const auto program = Program::filter(schema(nulls), e);
      for (const int64_t rows : {0, 1, 64, 3000}) {
        const auto input = batch(rows, nulls);
        EXPECT_EQ(program.select(*input).ValueOrDie(), expr::evaluate_filter(*e, *input).ValueOrDie())
            << text;
      }
    }
  }
}

TEST_F(ProgramTest, ErrorsAreThoseOfTheInterpreter) {
  const auto input = batch(3000, true);
  const std::vector<ExprPtr> outputs = {bound("x + y"), bound("100 // i"), bound("100 % (k - 2)")};
  const auto got = Program::columns(schema(true), outputs).evaluate(*input).status();
  ASSERT_FALSE(got.ok());
  int64_t lowest = 3000;
  for (const auto& e : outputs) {
    const auto status = expr::evaluate(*e, *input).status();
    if (!status.ok()) lowest = std::min(lowest, error_position(status)->row);
  }
  EXPECT_EQ(error_position(got)->row, lowest);
}

TEST_F(ProgramTest, RowsArePackedAsFloats) {
  const std::vector<ExprPtr> outputs = {bound("x", false),       bound("(y - 0.5e0) / 3e0", false),
                                        bound("i", false),       bound("b", false),
                                        bound("sin(x)", false),  bound("length(s)", false),
                                        bound("f", false),       bound("k", false),
                                        bound("hour(t)", false), bound("x + y", false)};
  const int stride = static_cast<int>(outputs.size()) + 1;
  const auto program = Program::rows(schema(false), outputs);
  const auto input = batch(2500, false);
  std::vector<int32_t> some;
  for (int32_t row = 0; row < 1700; ++row) some.push_back((row * 31) % 2500);
  for (const bool all : {true, false}) {
    const int64_t count = all ? 2500 : 1700;
    std::vector<float> packed(static_cast<size_t>(count * stride), -1);
    ASSERT_TRUE(program.pack(*input, all ? nullptr : some.data(), count, stride, packed.data()).ValueOrDie());
    for (size_t o = 0; o < outputs.size(); ++o) {
      const auto wide = expr::make_cast(outputs[o], arrow::float64()).ValueOrDie();
      const auto values = expr::evaluate(*wide, *input).ValueOrDie();
      const auto& doubles = static_cast<const arrow::DoubleArray&>(*values);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = all ? i : some[static_cast<size_t>(i)];
        ASSERT_EQ(packed[static_cast<size_t>(i * stride) + o], static_cast<float>(doubles.Value(row)))
            << o << " " << i;
      }
    }
    for (int64_t i = 0; i < count; ++i) ASSERT_EQ(packed[static_cast<size_t>((i + 1) * stride - 1)], -1);
  }
  // NULL and infinities are left to the caller, who says where they are.
  std::vector<float> packed(2500 * 7);
  EXPECT_FALSE(Program::rows(schema(false), {bound("x / 0e0", false)})
                   .pack(*input, nullptr, 2500, 7, packed.data())
                   .ValueOrDie());
  EXPECT_FALSE(Program::rows(schema(true), {bound("x")})
                   .pack(*batch(100, true), nullptr, 100, 7, packed.data())
                   .ValueOrDie());
}

TEST_F(ProgramTest, KernelsAreNamed) {
  const auto program = Program::columns(schema(true), {bound("length(upper(s)) + i"), bound("lower(s)")});
  const auto report = program.report();
  ASSERT_EQ(report.kernels.size(), 2u);
  EXPECT_EQ(report.kernels[0].expression, "upper(\"s\")");
  EXPECT_NE(report.kernels[0].reason.find("'upper'"), std::string::npos);
  const auto input = batch(200, true);
  const auto values = program.evaluate(*input).ValueOrDie();
  EXPECT_TRUE(values[0]->Equals(expr::evaluate(*bound("length(upper(s)) + i"), *input).ValueOrDie()));
  EXPECT_TRUE(values[1]->Equals(expr::evaluate(*bound("lower(s)"), *input).ValueOrDie()));
}

TEST_F(ProgramTest, KernelsThatMayFailTakeTheirConditionAlong) {
  // The interpreter must not cast texts of rows that never ask for it.
  const char* text = "CASE WHEN i > 3 THEN (repeat(s, 1) || '')::INTEGER ELSE 0 END";
  const auto e = sql::bind_text(text, schema(true), "test");
  if (!e.ok()) GTEST_SKIP() << e.status().ToString();
  const auto input = batch(200, true);
  const auto values = Program::columns(schema(true), {*e}).evaluate(*input).ValueOrDie();
  EXPECT_TRUE(values[0]->Equals(expr::evaluate(**e, *input).ValueOrDie()));
}

// ---- shapes of the code

std::string optimised(const std::string& text, bool nulls) {
  const auto lowered = lower({bound(text, nulls)}, Destination::kColumn);
  EXPECT_EQ(lowered.loops.size(), 1u) << text;
  return (*open_compiler())->compile(lowered.loops[0].loop, true).ValueOrDie().ir;
}

TEST_F(ProgramTest, LoopsAreVectorCode) {
  for (const bool nulls : {false, true}) {
    for (const char* text : {"i + i",
                             "k - 3",
                             "x * y + 1e0",
                             "(x - 2e0) / 3e0",
                             "i::DOUBLE",
                             "k::DOUBLE / 7e0",
                             "x::FLOAT",
                             "f * 2::FLOAT",
                             "x < y",
                             "i = 3",
                             "x BETWEEN 1e0 AND 2e0",
                             "i > 3 AND x < 2e0",
                             "b OR x < y",
                             "NOT b",
                             "x IS NULL OR b",
                             "CASE WHEN x > 1e0 THEN y ELSE 0e0 END",
                             "CASE WHEN i < 3 THEN 1 WHEN i < 7 THEN 2 ELSE 3 END",
                             "coalesce(nullif(x, 1e0), y, 0e0)",
                             "greatest(x, y)",
                             "least(i, 3)",
                             "i IN (1, 5, 7)",
                             "x IS DISTINCT FROM y",
                             "abs(i)",
                             "abs(x)",
                             "sqrt(x * x + y * y)",
                             "floor(x)",
                             "-x",
                             "sign(x)",
                             "nullif(i, 3)",
                             "i::BIGINT + k",
                             "i * i",
                             "k::INTEGER",
                             "isnan(x)",

                             "t < TIMESTAMP '2020-01-01'"}) {
      const std::string ir = optimised(text, nulls);
      EXPECT_NE(ir.find("vector.body"), std::string::npos) << text << (nulls ? " with NULLs" : "") << "\n"
                                                           << ir;
      EXPECT_EQ(ir.find("vector.memcheck"), std::string::npos) << text << ": checks whether columns overlap";
      EXPECT_EQ(ir.find("call void @N10millstream"), std::string::npos) << text << ": a body is still called";
    }
  }
}

TEST_F(ProgramTest, ClocksAndDatesAtTheirEdges) {
  arrow::TimestampBuilder times(arrow::timestamp(arrow::TimeUnit::MICRO), arrow::default_memory_pool());
  const int64_t units[] = {1, 1000, 60'000'000, 3'600'000'000, 86'400'000'000, 146'097 * 86'400'000'000};
  for (const int64_t unit : units) {
    const int64_t most = INT64_MAX / unit;
    for (const int64_t count :
         {int64_t{0}, int64_t{1}, int64_t{59}, int64_t{60}, most / 3, most / 2 + 1, most - 1}) {
      for (const int64_t near : {-1, 0, 1}) {
        for (const int64_t sign : {-1, 1}) ASSERT_TRUE(times.Append(sign * (count * unit + near)).ok());
      }
    }
  }
  auto columns = batch(times.length(), false)->columns();
  columns[6] = times.Finish().ValueOrDie();
  const auto input = arrow::RecordBatch::Make(schema(true), columns[6]->length(), columns);
  for (const char* text :
       {"hour(t)", "minute(t)", "second(t)", "millisecond(t)", "microsecond(t)", "dayofweek(t)", "isodow(t)",
        "year(t)", "month(t)", "day(t)", "dayofyear(t)", "week(t)"}) {
    const auto e = bound(text, true);
    const auto values = Program::columns(schema(true), {e}).evaluate(*input);
    ASSERT_TRUE(values.ok()) << text << ": " << values.status().ToString();
    EXPECT_TRUE(same(*(*values)[0], *expr::evaluate(*e, *input).ValueOrDie())) << text;
  }
}

// ---- NULLs

Variant by_words(const std::string& text, Destination destination) {
  return make_variant(lower({bound(text, true)}, destination).loops.at(0), NullForm::kByWords);
}
size_t seen_by_loop(const Variant& variant) {
  return static_cast<size_t>(std::count_if(variant.loop.inputs.begin(), variant.loop.inputs.end(),
                                           [](const LoopInput& input) { return input.nullable; }));
}

TEST_F(ProgramTest, NullsThatOnlyMakeNullsStayOutsideOfLoops) {
  const auto column = [](const char* text) { return by_words(text, Destination::kColumn); };
  for (const char* text :
       {"x * y + 1e0", "i::DOUBLE / 60e0", "NOT (x < y)", "i IN (1, 5, 7)", "hour(t) + i"}) {
    const Variant variant = column(text);
    EXPECT_EQ(seen_by_loop(variant), 0u) << text;
    EXPECT_EQ(variant.null_inputs.at(0).size(), variant.inputs.size()) << text;
  }
  for (const char* text : {"coalesce(x, y)", "x IS NULL", "greatest(x, y)", "x IS DISTINCT FROM y",
                           "b OR x < y", "CASE WHEN x > 1e0 THEN y ELSE 0e0 END"}) {
    const Variant variant = column(text);
    EXPECT_EQ(seen_by_loop(variant), variant.inputs.size()) << text;
    EXPECT_TRUE(variant.null_inputs.at(0).empty()) << text;
  }
  // y only makes the sum NULL, x is looked at.
  const Variant both = column("coalesce(x, 1e0) + y");
  EXPECT_EQ(seen_by_loop(both), 1u);
  EXPECT_EQ(both.null_inputs.at(0).size(), 1u);
  // x counts for coalesce(), and so for the sum beside it.
  EXPECT_EQ(seen_by_loop(column("coalesce(x, 1e0) + x * y")), 1u);

  const auto filter = [](const char* text) { return by_words(text, Destination::kFilter); };
  EXPECT_EQ(seen_by_loop(filter("x > 1e0 AND (y < 3e0 AND i = 7)")), 0u);
  EXPECT_EQ(seen_by_loop(filter("x > 1e0 AND (y < 3e0 OR i = 7)")), 2u);
  EXPECT_EQ(seen_by_loop(filter("NOT (x > 1e0 AND y < 3e0)")), 2u);
}

TEST_F(ProgramTest, WhatLiesUnderNullsFailsNobody) {
  std::shared_ptr<arrow::Array> whole;
  arrow::Int32Builder builder;
  const int64_t rows = 5000;
  for (int64_t row = 0; row < rows; ++row) ASSERT_TRUE(builder.Append(row % 3 ? 7 : INT32_MAX).ok());
  ASSERT_TRUE(builder.Finish(&whole).ok());
  auto validity = arrow::AllocateEmptyBitmap(rows).ValueOrDie();
  for (int64_t row = 0; row < rows; ++row)
    arrow::bit_util::SetBitTo(validity->mutable_data(), row, row % 3 != 0);
  auto data = whole->data()->Copy();
  data->buffers[0] = std::move(validity);
  data->null_count = arrow::kUnknownNullCount;
  auto columns = batch(rows, true)->columns();
  columns[0] = arrow::MakeArray(data);
  const auto input = arrow::RecordBatch::Make(schema(true), rows, columns);
  const auto before = code_counts();
  const auto e = bound("i + 1", true);
  const auto values = Program::columns(schema(true), {e}).evaluate(*input);
  ASSERT_TRUE(values.ok()) << values.status().ToString();
  EXPECT_TRUE(same(*(*values)[0], *expr::evaluate(*e, *input).ValueOrDie()));
  const auto predicate = bound("i + 1 > 3 AND x > 0e0", true);
  EXPECT_EQ(Program::filter(schema(true), predicate).select(*input).ValueOrDie(),
            expr::evaluate_filter(*predicate, *input).ValueOrDie());
  EXPECT_EQ(code_counts().failed_batches, before.failed_batches);
}

TEST_F(ProgramTest, ColumnsAreHandedOn) {
  const auto e = bound("coalesce(x, y)", true);
  const auto program = Program::columns(schema(true), {e, bound("x + y", true)});
  const auto input = batch(3000, false);
  const auto values = program.evaluate(*input).ValueOrDie();
  EXPECT_EQ(values[0]->data()->buffers[1].get(), input->column_data(2)->buffers[1].get());
  EXPECT_TRUE(same(*values[0], *input->column(2)));
  EXPECT_TRUE(Program::columns(schema(false), {bound("coalesce(x, y)", false)}).report().kernels.empty());
  // The NULLs of one column are those of the result: the bitmap is the same, of slices too.
  const auto nulls = batch(3000, true)->Slice(64, 2000);
  const auto sum = Program::columns(schema(true), {bound("x + 1e0", true)}).evaluate(*nulls).ValueOrDie();
  EXPECT_EQ(sum[0]->data()->buffers[0]->data(), nulls->column_data(2)->buffers[0]->data() + 8);
}

TEST_F(ProgramTest, NullsOfSlices) {
  for (const int64_t offset : {0, 1, 7, 8, 63, 64, 65}) {
    for (const int64_t rows : {1, 63, 64, 65, 2047, 2049}) {
      const auto input = batch(3000, true)->Slice(offset, rows);
      for (const char* text :
           {"x + 1e0", "x + y", "coalesce(x, 1e0) + y", "x < y", "b OR x < y", "nullif(i, 3) + k"}) {
        const auto e = bound(text, true);
        const auto values = Program::columns(schema(true), {e}).evaluate(*input).ValueOrDie();
        EXPECT_TRUE(same(*values[0], *expr::evaluate(*e, *input).ValueOrDie()))
            << text << " from " << offset << ", " << rows << " rows";
      }
      const auto predicate = bound("x > 0e0 AND (y < 3e0 AND b)", true);
      EXPECT_EQ(Program::filter(schema(true), predicate).select(*input).ValueOrDie(),
                expr::evaluate_filter(*predicate, *input).ValueOrDie());
    }
  }
}

// ---- memory

/// `bytes` bytes that end where a page ends that may not be touched.
class GuardedBytes {
 public:
  explicit GuardedBytes(size_t bytes) {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    size_ = (bytes + page - 1) / page * page + page;
    base_ = static_cast<uint8_t*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
    EXPECT_EQ(::mprotect(base_ + size_ - page, page, PROT_NONE), 0);
    data_ = base_ + size_ - page - bytes;
  }
  ~GuardedBytes() { ::munmap(base_, size_); }
  uint8_t* data() { return data_; }

 private:
  size_t size_;
  uint8_t* base_;
  uint8_t* data_;
};

TEST_F(ProgramTest, NothingIsReadBehindABuffer) {
  std::vector<ExprPtr> outputs;
  for (const char* text :
       {"i + 1", "x < y", "NOT b", "length(s)", "c + c", "hour(t)", "f * 2::FLOAT", "k = 3"})
    outputs.push_back(bound(text));
  const auto program = Program::columns(schema(true), outputs);
  const auto rows_program = Program::rows(schema(true), {bound("coalesce(x, 0e0)"), bound("coalesce(i, 0)")});
  for (const int64_t rows : {1, 7, 63, 64, 65, 1000, 1025}) {
    for (const bool nulls : {false, true}) {
      std::vector<std::unique_ptr<GuardedBytes>> memory;
      arrow::ArrayVector guarded;
      const auto own = batch(rows, nulls);
      for (const auto& column : own->columns()) {
        auto data = column->data()->Copy();
        for (size_t b = 0; b < data->buffers.size(); ++b) {
          auto& buffer = data->buffers[b];
          if (!buffer) continue;
          int64_t bytes = buffer->size();
          const bool bits = b == 0 || column->type_id() == arrow::Type::BOOL;
          if (bits) {
            bytes = (rows + 7) / 8;
          } else if (column->type_id() == arrow::Type::STRING) {
            bytes = b == 1 ? (rows + 1) * 4
                           : static_cast<const arrow::StringArray&>(*column).total_values_length();
          } else {
            bytes = rows * column->type()->byte_width();
          }
          memory.push_back(std::make_unique<GuardedBytes>(static_cast<size_t>(bytes)));
          std::memcpy(memory.back()->data(), buffer->data(), static_cast<size_t>(bytes));
          buffer = std::make_shared<arrow::Buffer>(memory.back()->data(), bytes);
        }
        guarded.push_back(arrow::MakeArray(data));
      }
      const auto input = arrow::RecordBatch::Make(schema(true), rows, guarded);
      const auto values = program.evaluate(*input).ValueOrDie();
      for (size_t o = 0; o < outputs.size(); ++o)
        EXPECT_TRUE(same(*values[o], *expr::evaluate(*outputs[o], *input).ValueOrDie()));
      std::vector<float> packed(static_cast<size_t>(rows * 2));
      EXPECT_TRUE(rows_program.pack(*input, nullptr, rows, 2, packed.data()).ValueOrDie());
      const std::vector<int32_t> last = {static_cast<int32_t>(rows - 1)};
      EXPECT_TRUE(rows_program.pack(*input, last.data(), 1, 2, packed.data()).ValueOrDie());
    }
  }
}

// ---- limits

TEST_F(ProgramTest, ManyExpressionsAreCutIntoLoops) {
  std::vector<ExprPtr> outputs;
  for (int e = 0; e < 1000; ++e)
    outputs.push_back(bound(fmt::format("(x * {0}e0 + y) / {1}e0 - {0}e0", e % 97, e % 89 + 1), true));
  const auto program = Program::columns(schema(true), outputs);
  EXPECT_GT(program.report().loops, 10);
  const auto input = batch(500, true);
  const auto values = program.evaluate(*input).ValueOrDie();
  for (size_t e = 0; e < outputs.size(); e += 50)
    EXPECT_TRUE(same(*values[e], *expr::evaluate(*outputs[e], *input).ValueOrDie()));
}

TEST_F(ProgramTest, ManyColumns) {
  arrow::FieldVector fields;
  arrow::ArrayVector arrays;
  std::vector<ExprPtr> outputs;
  const auto values = batch(300, true)->column(2);
  for (int c = 0; c < 5000; ++c) {
    fields.push_back(arrow::field(fmt::format("c{}", c), arrow::float64()));
    arrays.push_back(values);
    outputs.push_back(expr::make_call("-", {expr::make_column(c, *fields.back()),
                                            expr::make_literal(arrow::MakeScalar(1.5))})
                          .ValueOrDie());
  }
  const auto wide = arrow::schema(fields);
  const auto input = arrow::RecordBatch::Make(wide, 300, arrays);
  const auto got = Program::columns(wide, outputs).evaluate(*input).ValueOrDie();
  EXPECT_TRUE(got[4999]->Equals(expr::evaluate(*outputs[4999], *input).ValueOrDie()));
}

TEST_F(ProgramTest, ACaseOfManyArms) {
  for (const int arms : {60, 2000}) {
    std::string text = "CASE";
    for (int a = 0; a < arms; ++a) text += fmt::format(" WHEN i = {} THEN x + {}e0", a - 20, a);
    const auto e = bound(text + " ELSE 0e0 END");
    const auto program = Program::columns(schema(true), {e});
    EXPECT_EQ(program.report().kernels.size(), arms == 60 ? 0u : 1u);
    const auto input = batch(500, true);
    EXPECT_TRUE(same(*program.evaluate(*input).ValueOrDie()[0], *expr::evaluate(*e, *input).ValueOrDie()));
  }
}

// ---- the cache

TEST_F(ProgramTest, ObjectsAreKeptAndDamagedOnesReplaced) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("millstream_code_{}", ::getpid());
  set_code_directory(folder.string());
  const auto input = batch(300, true);
  const auto run = [&](double constant) {
    forget_unused_code();
    const auto e =
        expr::make_call("*", {bound("x + y"), expr::make_literal(arrow::MakeScalar(constant))}).ValueOrDie();
    const auto values = Program::columns(schema(true), {e}).evaluate(*input).ValueOrDie();
    EXPECT_TRUE(values[0]->Equals(expr::evaluate(*e, *input).ValueOrDie()));
  };
  const auto before = code_counts();
  run(2.5);
  EXPECT_EQ(code_counts().compiled, before.compiled + 1);
  EXPECT_EQ(code_counts().loaded, before.loaded);
  run(3.5);  // another constant is the same code
  EXPECT_EQ(code_counts().compiled, before.compiled + 1);
  EXPECT_EQ(code_counts().loaded, before.loaded + 1);
  int objects = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    ++objects;
    std::filesystem::resize_file(file.path(), std::filesystem::file_size(file.path()) - 7);
  }
  EXPECT_EQ(objects, 1);
  run(4.5);
  EXPECT_EQ(code_counts().compiled, before.compiled + 2);
  run(5.5);
  EXPECT_EQ(code_counts().loaded, before.loaded + 2);
  std::filesystem::remove_all(folder);
}

TEST(Interpreter, GivesTheSameWithoutCode) {
  const Engine was = engine();
  set_engine(Engine::kInterpreter);
  const auto e = bound("x + y");
  const auto program = Program::columns(schema(true), {e});
  EXPECT_EQ(program.report().loops, 0);
  const auto input = batch(300, true);
  EXPECT_TRUE(program.evaluate(*input).ValueOrDie()[0]->Equals(expr::evaluate(*e, *input).ValueOrDie()));
  std::vector<float> packed(600);
  EXPECT_FALSE(Program::rows(schema(true), {e}).pack(*input, nullptr, 300, 2, packed.data()).ValueOrDie());
  set_engine(was);
}

}  // namespace
}  // namespace millstream::jit
