// What the scan reads and what it passes over: late materialisation, page index, bloom filters, and that neither
// changes a row.

#include <cstring>
#include <functional>
#include <random>

#include <arrow/compute/api.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include "exec/block_source.h"
#include "exec/parquet_page.h"
#include "exec/test_files.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

using expr::ExprPtr;

ExprPtr literal(std::shared_ptr<arrow::Scalar> value) {
  return expr::make_literal(std::move(value));
}
ExprPtr number(int64_t value) {
  return literal(arrow::MakeScalar(value));
}
ExprPtr call(const char* function, std::vector<ExprPtr> arguments) {
  return expr::make_call(function, std::move(arguments)).ValueOrDie();
}
ExprPtr both(ExprPtr a, ExprPtr b) {
  return expr::make_and({std::move(a), std::move(b)}).ValueOrDie();
}
ExprPtr either(ExprPtr a, ExprPtr b) {
  return expr::make_or({std::move(a), std::move(b)}).ValueOrDie();
}

struct WriteOptions {
  int64_t row_group_rows = 1 << 20;
  int64_t page_rows = 100;
  int64_t page_bytes = 0;  ///< where not 0, pages end by their bytes instead
  bool statistics = true;
  bool page_index = false;
  bool dictionary = false;
  int64_t dictionary_bytes = 1 << 20;
  bool crc = false;
  parquet::ParquetDataPageVersion version = parquet::ParquetDataPageVersion::V1;
  arrow::Compression::type codec = arrow::Compression::ZSTD;
  std::vector<std::string> bloom_filters;
  std::vector<std::pair<std::string, parquet::Encoding::type>> encodings;
};

std::string write(const TemporaryFolder& folder, const std::string& name, const arrow::Table& table,
                  const WriteOptions& options) {
  const std::string path = folder.file(name);
  auto out = arrow::io::FileOutputStream::Open(path).ValueOrDie();
  parquet::WriterProperties::Builder properties;
  if (!options.statistics) properties.disable_statistics();
  if (options.page_index) {
    properties.enable_write_page_index();
  } else {
    properties.disable_write_page_index();
  }
  if (options.dictionary) {
    properties.enable_dictionary()->dictionary_pagesize_limit(options.dictionary_bytes);
  } else {
    properties.disable_dictionary();
  }
  if (options.crc) properties.enable_page_checksum();
  properties.data_page_version(options.version)->compression(options.codec);
  // Arrow's writer looks at a page's size after every batch of values.
  if (options.page_bytes > 0) {
    properties.write_batch_size(10)->data_pagesize(options.page_bytes);
  } else {
    properties.write_batch_size(options.page_rows)->max_rows_per_page(options.page_rows);
  }
  for (const auto& column : options.bloom_filters)
    properties.enable_bloom_filter(column, parquet::BloomFilterOptions{.ndv = 10000, .fpp = 0.0001});
  for (const auto& [column, encoding] : options.encodings) properties.encoding(column, encoding);
  EXPECT_OK(parquet::arrow::WriteTable(table, arrow::default_memory_pool(), out, options.row_group_rows,
                                       properties.build(),
                                       parquet::ArrowWriterProperties::Builder().store_schema()->build()));
  EXPECT_OK(out->Close());
  return path;
}

std::shared_ptr<arrow::Array> whole_numbers(int64_t begin, int64_t end) {
  std::vector<std::optional<int64_t>> values;
  for (int64_t i = begin; i < end; ++i) values.push_back(i);
  return int64s(values);
}

class Scan : public ::testing::Test {
 protected:
  void open(const std::string& file) {
    auto table = open_table({file}, folder_.path());
    ASSERT_OK(table);
    pipeline_ = {};
    pipeline_.table = *table;
    for (int i = 0; i < (*table)->schema()->num_fields(); ++i) pipeline_.columns.push_back(i);
    pipeline_.schema = (*table)->schema();
    for (int i = 0; i < (*table)->schema()->num_fields(); ++i)
      pipeline_.outputs.push_back(expr::make_column(i, *(*table)->schema()->field(i)));
  }
  ExprPtr column(const std::string& name) {
    const int index = pipeline_.table->schema()->GetFieldIndex(name);
    return expr::make_column(index, *pipeline_.table->schema()->field(index));
  }
  /// Reads all; the rows that passed.
  std::shared_ptr<arrow::Table> run() {
    const BlockSource source(pipeline_);
    std::vector<std::shared_ptr<arrow::RecordBatch>> batches;
    for (size_t e = 0; e < source.table().entry_points().size(); ++e) {
      auto stream = source.open(static_cast<int>(e));
      EXPECT_OK(stream);
      if (!stream.ok()) return nullptr;
      int blocks = 0;
      while (true) {
        auto block = (*stream)->next();
        EXPECT_OK(block);
        if (!block.ok()) return nullptr;
        if (!*block) break;
        const auto& entry = source.table().entry_points()[e];
        EXPECT_EQ((*block)->block, entry.first_block + blocks);
        EXPECT_EQ((*block)->rows_read, std::min(plan::kBlockRows, entry.rows - blocks * plan::kBlockRows));
        EXPECT_OK((*block)->rows->ValidateFull());
        for (int64_t i = 0; i < (*block)->rows->num_rows(); ++i) places_.push_back((*block)->row_in_file(i));
        batches.push_back((*block)->rows);
        ++blocks;
      }
      EXPECT_EQ(blocks, source.table().entry_points()[e].num_blocks);
    }
    counts_ = source.counts();
    return arrow::Table::FromRecordBatches(pipeline_.schema, batches).ValueOrDie();
  }
  std::shared_ptr<arrow::Table> run(ExprPtr predicate) {
    pipeline_.predicate = std::move(predicate);
    places_.clear();
    return run();
  }

  TemporaryFolder folder_;
  plan::Pipeline pipeline_;
  ScanCounts counts_;
  std::vector<int64_t> places_;
};

// 10 pages of 100 rows each; `id` ascends, `x` does not.
std::shared_ptr<arrow::Table> thousand_rows() {
  std::vector<std::optional<std::string>> texts;
  std::vector<std::optional<double>> numbers;
  for (int i = 0; i < 1000; ++i) {
    texts.push_back(i % 7 == 0 ? std::optional<std::string>() : fmt::format("text {}", i));
    numbers.push_back(i * 0.5);
  }
  return arrow::Table::Make(
      arrow::schema({arrow::field("id", arrow::int64()), arrow::field("s", arrow::utf8()),
                     arrow::field("x", arrow::float64())}),
      {whole_numbers(0, 1000), strings(texts), doubles(numbers)});
}

TEST_F(Scan, ColumnsThatTheFilterDoesNotReadAreDecodedWhereRowsPass) {
  write(folder_, "a.parquet", *thousand_rows(), {.statistics = false});
  open("a.parquet");
  const auto all = run(nullptr);
  EXPECT_EQ(counts_.pages_read, 30);
  EXPECT_EQ(counts_.pages_skipped, 0);
  EXPECT_TRUE(all->Equals(*thousand_rows()));

  // Rows 250 and 720: of `id` all ten pages, of the others two each.
  auto rows = run(either(call("=", {column("id"), number(250)}), call("=", {column("id"), number(720)})));
  EXPECT_EQ(places_, (std::vector<int64_t>{250, 720}));
  EXPECT_EQ(counts_.pages_read, 14);
  EXPECT_EQ(counts_.pages_skipped, 16);
  EXPECT_EQ(counts_.rows_filtered, 998);
  EXPECT_EQ(counts_.rows_passed, 2);
  EXPECT_EQ(counts_.row_groups_pruned, 0);
  EXPECT_EQ(rows->GetColumnByName("s")->GetScalar(0).ValueOrDie()->ToString(), "text 250");
  EXPECT_TRUE(rows->GetColumnByName("x")->chunk(0)->Equals(doubles({125.0, 360.0})));

  run(call(">", {column("id"), number(5000)}));
  EXPECT_EQ(counts_.pages_read, 10) << "nothing passes: only the filter's column is decoded";
  EXPECT_EQ(counts_.pages_skipped, 20);
  EXPECT_EQ(counts_.rows_passed, 0);
}

TEST_F(Scan, PagesThatThePageIndexRulesOutAreNotDecoded) {
  write(folder_, "a.parquet", *thousand_rows(), {.page_index = true});
  open("a.parquet");
  // One page of each of three columns.
  auto rows = run(both(call(">=", {column("id"), number(310)}), call("<", {column("id"), number(320)})));
  EXPECT_EQ(rows->num_rows(), 10);
  EXPECT_EQ(places_.front(), 310);
  EXPECT_EQ(counts_.pages_read, 3);
  EXPECT_EQ(counts_.pages_skipped, 27);
  EXPECT_EQ(counts_.rows_skipped, 900);
  EXPECT_EQ(counts_.rows_filtered, 90);
  EXPECT_EQ(counts_.row_groups_pruned, 0);

  rows = run(call("=", {column("id"), number(999)}));
  EXPECT_EQ(rows->num_rows(), 1);
  EXPECT_EQ(counts_.pages_read, 3);
  EXPECT_EQ(counts_.rows_skipped, 900);

  rows = run(expr::make_in(column("id"), {number(5), number(450), number(460)}).ValueOrDie());
  EXPECT_EQ(places_, (std::vector<int64_t>{5, 450, 460}));
  EXPECT_EQ(counts_.pages_read, 6);
  EXPECT_EQ(counts_.rows_skipped, 800);

  rows = run(either(call("<", {column("id"), number(50)}),
                    call(">=", {column("x"), literal(arrow::MakeScalar(499.0))})));
  EXPECT_EQ(rows->num_rows(), 52);
  EXPECT_EQ(counts_.rows_skipped, 0) << "doubles have no upper limit: NaN is above every number";

  rows = run(call("<", {column("x"), literal(arrow::MakeScalar(49.5))}));
  EXPECT_EQ(rows->num_rows(), 99);
  EXPECT_EQ(counts_.rows_skipped, 900);

  // A filter that can fail looks at every row.
  const auto small = expr::make_cast(column("id"), arrow::int16()).ValueOrDie();
  rows = run(call("=", {small, literal(arrow::MakeScalar(int16_t{3}))}));
  EXPECT_EQ(rows->num_rows(), 1);
  EXPECT_EQ(counts_.rows_skipped, 0);
  EXPECT_EQ(counts_.pages_read, 12);
}

TEST_F(Scan, NoPageOfARowGroupMayHaveARowThatPasses) {
  // Statistics of the row group say 0 … 900, its pages 0 … 9 and 900 … 909.
  std::vector<std::optional<int64_t>> ids;
  for (int64_t i = 0; i < 10; ++i) ids.push_back(i);
  for (int64_t i = 0; i < 10; ++i) ids.push_back(900 + i);
  const auto table = arrow::Table::Make(arrow::schema({arrow::field("id", arrow::int64())}), {int64s(ids)});
  write(folder_, "a.parquet", *table, {.page_rows = 10, .page_index = true});
  open("a.parquet");
  EXPECT_EQ(run(call("=", {column("id"), number(500)}))->num_rows(), 0);
  EXPECT_EQ(counts_.row_groups_pruned, 1);
  EXPECT_EQ(counts_.row_groups_pruned_by_pages, 1);
  EXPECT_EQ(counts_.rows_pruned, 20);
  EXPECT_EQ(counts_.pages_read, 0);
}

TEST_F(Scan, PagesOfNullsHaveNoValueThatPasses) {
  std::vector<std::optional<int64_t>> a;
  for (int64_t i = 0; i < 1000; ++i) a.push_back(i >= 200 && i < 400 ? std::optional<int64_t>() : i % 5);
  const auto table = arrow::Table::Make(
      arrow::schema({arrow::field("a", arrow::int64()), arrow::field("id", arrow::int64())}),
      {int64s(a), whole_numbers(0, 1000)});
  write(folder_, "a.parquet", *table, {.page_index = true});
  open("a.parquet");
  EXPECT_EQ(run(call(">=", {column("a"), number(0)}))->num_rows(), 800);
  EXPECT_EQ(counts_.rows_skipped, 200) << "two pages of nothing but NULL";
  EXPECT_EQ(counts_.pages_read, 16);
  EXPECT_EQ(counts_.pages_skipped, 4);
  EXPECT_EQ(run(call("is_null", {column("a")}))->num_rows(), 200);
}

TEST_F(Scan, PagesOfColumnsNeedNotAlign) {
  // 800 bytes are 100 rows of `a` and 200 of `b`.
  std::vector<std::optional<int32_t>> b;
  for (int32_t i = 0; i < 1000; ++i) b.push_back(1000 - i);
  const auto table = arrow::Table::Make(
      arrow::schema({arrow::field("a", arrow::int64()), arrow::field("b", arrow::int32())}),
      {whole_numbers(0, 1000), int32s(b)});
  write(folder_, "a.parquet", *table, {.page_bytes = 800, .page_index = true});
  open("a.parquet");
  const auto of_b = [](int32_t value) { return literal(arrow::MakeScalar(value)); };
  const auto rows = run(both(call("<", {column("a"), number(450)}), call("<", {column("b"), of_b(650)})));
  EXPECT_EQ(rows->num_rows(), 99);
  EXPECT_EQ(places_.front(), 351);
  EXPECT_EQ(places_.back(), 449);
  // `a` has such values in rows 0 … 499, `b` in 200 … 999.
  EXPECT_EQ(counts_.rows_skipped, 700);
  EXPECT_EQ(counts_.pages_read, 3 + 2);
  EXPECT_EQ(counts_.pages_skipped, 7 + 3);
}

TEST_F(Scan, BloomFiltersRuleRowGroupsOut) {
  std::vector<std::optional<std::string>> texts;
  std::vector<std::optional<double>> numbers;
  std::vector<std::optional<int32_t>> small;
  for (int32_t i = 0; i < 3000; ++i) {
    texts.push_back(fmt::format("name {}", i % 3000 * 2));
    numbers.push_back(i == 10 ? -0.0 : i * 2.0 + 1);
    small.push_back(i * 2);
  }
  const auto table = arrow::Table::Make(
      arrow::schema({arrow::field("k", arrow::int64()), arrow::field("s", arrow::utf8()),
                     arrow::field("d", arrow::float64()), arrow::field("i", arrow::int32())}),
      {arrow::compute::Multiply(whole_numbers(0, 3000), arrow::Datum(int64_t{2})).ValueOrDie().make_array(),
       strings(texts), doubles(numbers), int32s(small)});
  write(folder_, "a.parquet", *table, {.row_group_rows = 1000, .bloom_filters = {"k", "s", "d", "i"}});
  open("a.parquet");
  const auto text = [](const char* value) { return literal(arrow::MakeScalar(value)); };
  const auto expect = [&](const char* what, ExprPtr predicate, int64_t rows, int64_t by_bloom,
                          int64_t pruned) {
    SCOPED_TRACE(what);
    EXPECT_EQ(run(std::move(predicate))->num_rows(), rows);
    EXPECT_EQ(counts_.row_groups_pruned_by_bloom, by_bloom);
    EXPECT_EQ(counts_.row_groups_pruned, pruned);
    EXPECT_EQ(counts_.rows_pruned, pruned * 1000);
  };
  expect("of an odd number", call("=", {column("k"), number(2001)}), 0, 1, 3);
  expect("of an even number", call("=", {column("k"), number(2002)}), 1, 0, 2);
  expect("text, one row group has it", call("=", {column("s"), text("name 4000")}), 1, 2, 2);
  expect("text that none has", call("=", {text("name 4001"), column("s")}), 0, 3, 3);
  expect("a list", expr::make_in(column("s"), {text("name 2"), text("name 5000"), text("x")}).ValueOrDie(), 2,
         1, 1);
  expect("a list with NULL",
         expr::make_in(column("s"), {text("x"), literal(arrow::MakeNullScalar(arrow::utf8()))}).ValueOrDie(),
         0, 3, 3);
  expect("either", either(call("=", {column("s"), text("x")}), call("=", {column("s"), text("name 0")})), 1,
         2, 2);
  expect("either of two columns",
         either(call("=", {column("s"), text("x")}), call("<", {column("k"), number(10)})), 5, 0, 0);
  expect("both", both(call("=", {column("s"), text("x")}), call("=", {column("k"), number(10)})), 0, 1, 3);
  expect("a range", both(call(">", {column("k"), number(100)}), call("<", {column("k"), number(102)})), 0, 0,
         2);
  expect("not equal", call("<>", {column("s"), text("x")}), 3000, 0, 0);
  // Statistics give doubles no upper limit: 1 and 2 have greater least values.
  expect("zero of either sign", call("=", {column("d"), literal(arrow::MakeScalar(0.0))}), 1, 0, 2);
  expect("a double that none has", call("=", {column("d"), literal(arrow::MakeScalar(2.0))}), 0, 1, 3);
  expect("a small number", call("=", {column("i"), literal(arrow::MakeScalar(int32_t{3}))}), 0, 1, 3);
}

TEST_F(Scan, BloomFiltersOfANarrowerFile) {
  std::vector<std::optional<int32_t>> small;
  for (int32_t i = 0; i < 100; ++i) small.push_back(i * 2);
  const auto narrow = arrow::Table::Make(arrow::schema({arrow::field("k", arrow::int32())}), {int32s(small)});
  const auto wide =
      arrow::Table::Make(arrow::schema({arrow::field("k", arrow::int64())}), {whole_numbers(0, 100)});
  write(folder_, "d/a.parquet", *narrow, {.bloom_filters = {"k"}});
  write(folder_, "d/b.parquet", *wide, {.bloom_filters = {"k"}});
  open("d/*.parquet");
  EXPECT_EQ(run(call("=", {column("k"), number(3)}))->num_rows(), 1);
  EXPECT_EQ(counts_.row_groups_pruned_by_bloom, 1);
  EXPECT_EQ(run(call("=", {column("k"), number(4)}))->num_rows(), 2);
  EXPECT_EQ(counts_.row_groups_pruned, 0);
}

TEST_F(Scan, ADamagedPageIndexOrBloomFilterPrunesNothing) {
  const auto whole = thousand_rows();
  write(folder_, "a.parquet", *whole, {.page_index = true, .bloom_filters = {"id"}});
  std::string bytes;
  {
    std::ifstream in(folder_.file("a.parquet"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  // Page index and bloom filters lie between the pages and the footer.
  const auto metadata = parquet::ParquetFileReader::OpenFile(folder_.file("a.parquet"))->metadata();
  const auto last = metadata->RowGroup(0)->ColumnChunk(2);
  const int64_t data_end = last->data_page_offset() + last->total_compressed_size();
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + bytes.size() - 8, sizeof length);
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::string damaged = bytes;
    for (int i = 0; i < 1 + round % 40; ++i) {
      const size_t at = static_cast<size_t>(data_end) +
                        random() % (bytes.size() - 8 - length - static_cast<size_t>(data_end));
      damaged[at] = static_cast<char>(random());
    }
    folder_.write_text("b.parquet", damaged);
    open("b.parquet");
    // Rows may be lost (a claim that lies), never invented, never an error.
    const auto rows =
        run(both(call(">=", {column("id"), number(310)}), call("<", {column("id"), number(320)})));
    ASSERT_TRUE(rows);
    EXPECT_LE(rows->num_rows(), 10);
    for (const int64_t place : places_) EXPECT_TRUE(place >= 310 && place < 320);
  }
}

// Every type that we decode ourselves, every encoding and codec that Arrow writes, pages of both versions, with and
// without NULLs: the same rows as Arrow's own reader, read whole and by a filter of every selectivity.
class Decode : public Scan {};

struct Randoms {
  std::mt19937_64 random{11};
  double null_share = 0;
  bool is_null() { return static_cast<double>(random() % 1000) < null_share * 1000; }
  template <class Builder, class F>
  std::shared_ptr<arrow::Array> make(const std::shared_ptr<arrow::DataType>& type, int64_t rows, F&& value) {
    Builder builder(type, arrow::default_memory_pool());
    for (int64_t i = 0; i < rows; ++i)
      EXPECT_OK(is_null() ? builder.AppendNull() : builder.Append(value(random())));
    return builder.Finish().ValueOrDie();
  }
};

std::shared_ptr<arrow::Table> all_types(int64_t rows, double null_share, bool few_values) {
  Randoms r;
  r.null_share = null_share;
  const uint64_t range = few_values ? 50 : ~uint64_t{0};
  arrow::FieldVector fields = {arrow::field("id", arrow::int64(), false)};
  arrow::ArrayVector columns = {whole_numbers(0, rows)};
  const auto add = [&](const char* name, std::shared_ptr<arrow::Array> array) {
    fields.push_back(arrow::field(name, array->type()));
    columns.push_back(std::move(array));
  };
  const auto whole = [&](uint64_t v) { return v % range; };
  using arrow::TimeUnit;
  add("i8", r.make<arrow::Int8Builder>(arrow::int8(), rows,
                                       [&](uint64_t v) { return static_cast<int8_t>(whole(v)); }));
  add("u8", r.make<arrow::UInt8Builder>(arrow::uint8(), rows,
                                        [&](uint64_t v) { return static_cast<uint8_t>(whole(v)); }));
  add("i16", r.make<arrow::Int16Builder>(arrow::int16(), rows,
                                         [&](uint64_t v) { return static_cast<int16_t>(whole(v)); }));
  add("u16", r.make<arrow::UInt16Builder>(arrow::uint16(), rows,
                                          [&](uint64_t v) { return static_cast<uint16_t>(whole(v)); }));
  add("i32", r.make<arrow::Int32Builder>(arrow::int32(), rows,
                                         [&](uint64_t v) { return static_cast<int32_t>(whole(v)); }));
  add("u32", r.make<arrow::UInt32Builder>(arrow::uint32(), rows,
                                          [&](uint64_t v) { return static_cast<uint32_t>(whole(v)); }));
  add("i64", r.make<arrow::Int64Builder>(arrow::int64(), rows,
                                         [&](uint64_t v) { return static_cast<int64_t>(whole(v)); }));
  add("u64", r.make<arrow::UInt64Builder>(arrow::uint64(), rows, [&](uint64_t v) { return whole(v); }));
  add("f32", r.make<arrow::FloatBuilder>(arrow::float32(), rows,
                                         [&](uint64_t v) { return static_cast<float>(whole(v)) / 3; }));
  add("f64", r.make<arrow::DoubleBuilder>(arrow::float64(), rows,
                                          [&](uint64_t v) { return static_cast<double>(whole(v)) / 3; }));
  add("b", r.make<arrow::BooleanBuilder>(arrow::boolean(), rows, [](uint64_t v) { return v % 3 == 0; }));
  add("s", r.make<arrow::StringBuilder>(arrow::utf8(), rows, [&](uint64_t v) {
    return std::string(v % 20, 'x') + std::to_string(whole(v));
  }));
  add("y", r.make<arrow::BinaryBuilder>(arrow::binary(), rows,
                                        [&](uint64_t v) { return std::to_string(whole(v) % 3); }));
  add("ls", r.make<arrow::LargeStringBuilder>(arrow::large_utf8(), rows,
                                              [&](uint64_t v) { return std::to_string(whole(v)); }));
  add("d", r.make<arrow::Date32Builder>(arrow::date32(), rows,
                                        [&](uint64_t v) { return static_cast<int32_t>(v % 40000); }));
  for (const auto unit : {TimeUnit::MILLI, TimeUnit::MICRO, TimeUnit::NANO})
    add(fmt::format("t{}", static_cast<int>(unit)).c_str(),
        r.make<arrow::TimestampBuilder>(arrow::timestamp(unit), rows,
                                        [&](uint64_t v) { return static_cast<int64_t>(v % 4000000000000); }));
  add("tm", r.make<arrow::Time64Builder>(arrow::time64(TimeUnit::MICRO), rows,
                                         [&](uint64_t v) { return static_cast<int64_t>(v % 86400000000); }));
  add("dec", r.make<arrow::Decimal128Builder>(arrow::decimal128(12, 2), rows, [&](uint64_t v) {
    return arrow::Decimal128(static_cast<int64_t>(whole(v) % 1000000));
  }));
  return arrow::Table::Make(arrow::schema(fields), columns);
}

TEST_F(Decode, GivesWhatArrowGives) {
  constexpr int64_t kRows = 67'000;  // a block and a bit
  int file = 0;
  std::vector<WriteOptions> all;
  using parquet::Encoding;
  for (const bool dictionary : {false, true})
    for (const auto version : {parquet::ParquetDataPageVersion::V1, parquet::ParquetDataPageVersion::V2})
      all.push_back({.row_group_rows = 66'500,
                     .page_rows = 7000,
                     .dictionary = dictionary,
                     .crc = dictionary,
                     .version = version});
  for (const auto codec : {arrow::Compression::UNCOMPRESSED, arrow::Compression::SNAPPY,
                           arrow::Compression::GZIP, arrow::Compression::BROTLI, arrow::Compression::LZ4})
    all.push_back({.page_rows = 9000, .codec = codec});
  all.push_back({.page_rows = 5000,
                 .encodings = {{"i32", Encoding::DELTA_BINARY_PACKED},
                               {"i64", Encoding::DELTA_BINARY_PACKED},
                               {"s", Encoding::DELTA_BYTE_ARRAY},
                               {"y", Encoding::DELTA_LENGTH_BYTE_ARRAY},
                               {"b", Encoding::RLE},
                               {"f32", Encoding::BYTE_STREAM_SPLIT},
                               {"f64", Encoding::BYTE_STREAM_SPLIT}}});
  for (const double null_share : {0.0, 0.3, 1.0}) {
    for (const WriteOptions& options : all) {
      if (null_share != 0.3 && options.codec != arrow::Compression::ZSTD) continue;  // codecs know no NULL
      const std::string name = fmt::format("{}.parquet", file++);
      SCOPED_TRACE(fmt::format("{}: nulls {}, dictionary {}, version {}, codec {}", name, null_share,
                               options.dictionary, static_cast<int>(options.version),
                               static_cast<int>(options.codec)));
      const auto table = all_types(kRows, null_share, options.dictionary);
      write(folder_, name, *table, options);
      open(name);
      // Arrow's own reading, in our types.
      auto reader = parquet::arrow::OpenFile(arrow::io::ReadableFile::Open(folder_.file(name)).ValueOrDie(),
                                             arrow::default_memory_pool())
                        .ValueOrDie();
      auto expected = reader->ReadTable().ValueOrDie();
      for (int c = 0; c < expected->num_columns(); ++c) {
        const auto& field = pipeline_.schema->field(c);
        const auto cast = arrow::compute::Cast(expected->column(c), field->type()).ValueOrDie();
        expected = expected->SetColumn(c, field, cast.chunked_array()).ValueOrDie();
      }
      const auto got = run(nullptr);
      ASSERT_TRUE(got);
      EXPECT_TRUE(got->Equals(*expected)) << "whole";
      // One row in 3, 500, 20,000; and a stretch that begins in a block and ends in the next.
      std::vector<std::pair<const char*, ExprPtr>> filters = {
          {"a third", call("=", {call("%", {column("id"), number(3)}), number(1)})},
          {"some", call("=", {call("%", {column("id"), number(500)}), number(499)})},
          {"few", call("=", {call("%", {column("id"), number(20'000)}), number(12'345)})},
          {"a stretch",
           both(call(">", {column("id"), number(65'000)}), call("<", {column("id"), number(66'000)}))}};
      for (auto& [what, filter] : filters) {
        SCOPED_TRACE(what);
        const auto rows = run(std::move(filter));
        ASSERT_TRUE(rows);
        const auto taken =
            arrow::compute::Take(expected, int64s({places_.begin(), places_.end()})).ValueOrDie().table();
        EXPECT_TRUE(rows->Equals(*taken));
        EXPECT_GT(rows->num_rows(), 0);
      }
    }
  }
}

// Text that comes as dictionaries gives the values that text gives: whole, filtered, with NULLs, and where the writer
// gave the dictionary up in the middle of a block.
TEST_F(Decode, ExpressionsOverEntriesOfADictionary) {
  constexpr int64_t kRows = 70'000;
  std::vector<std::optional<std::string>> few, many;
  for (int64_t i = 0; i < kRows; ++i) {
    few.push_back(i % 11 == 3 ? std::optional<std::string>() : fmt::format("Zone {}", i * 7 % 40));
    many.push_back(i < 3000 ? fmt::format("Short {}", i % 5)
                            : fmt::format("A longer text of number {}", i % 20'000));
  }
  const auto table = arrow::Table::Make(
      arrow::schema({arrow::field("id", arrow::int64()), arrow::field("few", arrow::utf8()),
                     arrow::field("many", arrow::utf8())}),
      {whole_numbers(0, kRows), strings(few), strings(many)});
  write(folder_, "plain.parquet", *table, {.page_rows = 4000});
  write(folder_, "coded.parquet", *table, {.page_rows = 4000, .dictionary = true, .dictionary_bytes = 4096});
  const auto text = [](const char* value) { return literal(arrow::MakeScalar(value)); };
  const auto outputs = [&] {
    const std::vector<std::pair<std::string, ExprPtr>> all = {
        {"id", column("id")},
        {"upper", call("upper", {column("few")})},
        {"is", call("=", {column("few"), text("Zone 7")})},
        {"length", call("length", {column("many")})},
        {"few", column("few")},
        {"no", call("is_null", {column("few")})},
        {"case", expr::make_case({call("starts_with", {column("many"), text("Short")}), column("many")},
                                 call("lower", {column("few")}))
                     .ValueOrDie()}};
    arrow::FieldVector fields;
    pipeline_.outputs.clear();
    for (const auto& [name, output] : all) {
      fields.push_back(arrow::field(name, output->type, output->nullable));
      pipeline_.outputs.push_back(output);
    }
    pipeline_.schema = arrow::schema(fields);
  };
  const std::vector<std::pair<const char*, std::function<ExprPtr()>>> filters = {
      {"none", [] { return ExprPtr(); }},
      {"of few",
       [&] {
         return call("=", {column("few"), text("Zone 14")});
       }},
      {"of many",
       [&] {
         return call("=", {call("lower", {column("many")}), text("a longer text of number 4711")});
       }},
      {"not of either",
       [&] {
         return both(call("<>", {column("few"), text("Zone 14")}),
                     call("<>", {column("many"), text("Short 2")}));
       }},
      {"NULL",
       [&] {
         return both(call("is_null", {column("few")}), call("<", {column("id"), number(66'000)}));
       }},
      {"of rows", [&] {
         return call("=", {call("%", {column("id"), number(5000)}), number(2999)});
       }}};
  for (const auto& [what, filter] : filters) {
    SCOPED_TRACE(what);
    std::shared_ptr<arrow::Table> results[2];
    for (const bool coded : {false, true}) {
      open(coded ? "coded.parquet" : "plain.parquet");
      outputs();
      results[coded] = run(filter());
      ASSERT_TRUE(results[coded]);
      EXPECT_GT(results[coded]->num_rows(), 0);
    }
    EXPECT_TRUE(results[1]->Equals(*results[0]));
  }
}

// A column whose pages hold more rows than the row group, or fewer, is an error also where rows are passed over.
TEST_F(Scan, ADamagedPageIsAnErrorThatNamesTheColumn) {
  write(folder_, "a.parquet", *thousand_rows(), {.statistics = false, .crc = true});
  std::string bytes;
  {
    std::ifstream in(folder_.file("a.parquet"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto metadata = parquet::ParquetFileReader::OpenFile(folder_.file("a.parquet"))->metadata();
  const auto chunk = metadata->RowGroup(0)->ColumnChunk(0);
  // The last bytes of the last page of `id`.
  const auto at = static_cast<size_t>(chunk->data_page_offset() + chunk->total_compressed_size() - 3);
  bytes[at] = static_cast<char>(bytes[at] ^ 0x55);
  folder_.write_text("b.parquet", bytes);
  open("b.parquet");
  const BlockSource source(pipeline_);
  auto stream = source.open(0);
  ASSERT_OK(stream);
  const Status status = (*stream)->next().status();
  EXPECT_EQ(error_category(status), ErrorCategory::kData);
  EXPECT_NE(status.message().find("row group 0, column 'id': a page fails its checksum"), std::string::npos)
      << status.message();
}

TEST_F(Scan, HeadersOfPagesEndWithTheirBytes) {
  // Truncated, and random bytes: too few, an error, or a header; never more bytes than there are.
  write(folder_, "a.parquet", *thousand_rows(), {});
  std::string bytes;
  {
    std::ifstream in(folder_.file("a.parquet"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data()) + 4;
  PageHeader header;
  const auto taken = parse_page_header(data, static_cast<int64_t>(bytes.size()) - 4, &header);
  ASSERT_OK(taken);
  ASSERT_GT(*taken, 0);
  EXPECT_EQ(header.num_values, 100);
  EXPECT_EQ(header.encoding, parquet::Encoding::PLAIN);
  for (int64_t size = 0; size < *taken; ++size)
    EXPECT_EQ(parse_page_header(data, size, &header).ValueOrDie(), -1);
  std::mt19937 random(3);
  for (int round = 0; round < 20'000; ++round) {
    std::vector<uint8_t> noise(random() % 64);
    for (uint8_t& byte : noise) byte = static_cast<uint8_t>(random());
    if (round % 2) std::copy_n(data, std::min<size_t>(noise.size(), random() % 32), noise.begin());
    const auto result = parse_page_header(noise.data(), static_cast<int64_t>(noise.size()), &header);
    if (result.ok()) {
      EXPECT_LE(*result, static_cast<int64_t>(noise.size()));
    }
  }
}

}  // namespace
}  // namespace millstream::exec
