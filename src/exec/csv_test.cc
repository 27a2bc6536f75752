#include <cmath>
#include <set>

#include "exec/csv_text.h"
#include "exec/test_files.h"

namespace millstream::exec {
namespace {

std::string error_of(const Result<std::shared_ptr<const plan::SourceTable>>& table) {
  return table.ok() ? "no error" : table.status().message();
}

// The whole table as "name TYPE, … | value, … | …".
std::string content(const std::string& path) {
  auto table = open_table({path});
  if (!table.ok()) return "error: " + table.status().message();
  std::string out;
  for (const auto& field : (*table)->schema()->fields()) {
    out += (out.empty() ? "" : ", ") + field->name() + " " + field->type()->ToString() +
           (field->nullable() ? "?" : "");
  }
  auto all = read_all(**table);
  if (!all.ok()) return "error: " + all.status().message();
  for (int64_t row = 0; row < (*all)->num_rows(); ++row) {
    out += " | ";
    for (int c = 0; c < (*all)->num_columns(); ++c) {
      out += (c ? ", " : "") + (*all)->column(c)->GetScalar(row).ValueOrDie()->ToString();
    }
  }
  return out;
}

struct Case {
  std::string text, content;
};

TEST(Csv, ReadsWhatPeopleWrite) {
  const std::vector<Case> cases = {
      {"a,b\n1,x\n2,y\n", "a int64, b string | 1, x | 2, y"},
      {"a,b\r\n1,x\r\n2,y\r\n", "a int64, b string | 1, x | 2, y"},
      {"a,b\r1,x\r2,y", "a int64, b string | 1, x | 2, y"},
      {"\xEF\xBB\xBF"
       "a,b\n1,x",
       "a int64, b string | 1, x"},
      {"a;b\n1,5;x\n2,5;y\n", "a string, b string | 1,5, x | 2,5, y"},
      {"a\tb\n1\tx\n", "a int64, b string | 1, x"},
      {"a|b\n1|x\n", "a int64, b string | 1, x"},
      {"a,b\n\"x, \"\"y\"\"\",2\n\"two\nlines\",3\n", "a string, b int64 | x, \"y\", 2 | two\nlines, 3"},
      {"a,b\n\"\",2\n,\n", "a null?, b int64? | null, 2 | null, null"},
      {"a,b\n1,x\n\n2,y\n\n", "a int64, b string | 1, x | 2, y"},
      {"a\n1\n\n2\n", "a int64? | 1 | null | 2"},
      {"a,b\n1,2.5\n-3,1e3\n", "a int64, b double | 1, 2.5 | -3, 1000"},
      {"a\n9223372036854775807\n-9223372036854775808\n",
       "a int64 | 9223372036854775807 | -9223372036854775808"},
      {"a\n9223372036854775808\n", "a double | 9.223372036854776e+18"},
      {"a,b\ntrue,1\nFalse,2\n", "a bool, b int64 | true, 1 | false, 2"},
      {"d,t\n2024-02-29,2024-02-29 12:34:56.5\n1969-12-31,2024-03-01T00:00\n",
       "d date32[day], t timestamp[us] | 2024-02-29, 2024-02-29 12:34:56.500000 | 1969-12-31, 2024-03-01 "
       "00:00:00.000000"},
      {"d\n2024-02-29\n2024-02-29 01:00:00\n",
       "d timestamp[us] | 2024-02-29 00:00:00.000000 | 2024-02-29 01:00:00.000000"},
      {"d\n2023-02-29\n", "d string | 2023-02-29"},
      {"d\n2024/1/5\n", "d date32[day] | 2024-01-05"},
      {"t\n2024-01-01 10:00:00+02:30\n2024-01-01T10:00:00Z\n2024-01-01 10:00\n",
       "t timestamp[us, tz=UTC] | 2024-01-01 07:30:00.000000Z | 2024-01-01 10:00:00.000000Z | 2024-01-01 "
       "10:00:00.000000Z"},
      {"a,b,c\nyes,t,y\nNo,F,n\n", "a bool, b bool, c string | true, true, y | false, false, n"},
      {"a,b\n1,\nx,\n", "a string, b null? | 1, null | x, null"},
      {"a, b \n 1 ,+2\n", "a int64,  b  int64 | 1, 2"},
      {"a,A,\n1,2,3\n", "a int64, A_1 int64, column2 int64 | 1, 2, 3"},
      {"a,b\n", "a null?, b null?"},
      {"name,note\nx,say \"hi\"\n", "name string, note string | x, say \"hi\""},
  };
  TemporaryFolder folder;
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    EXPECT_EQ(content(folder.write_text("t.csv", one.text)), one.content);
  }
}

TEST(Csv, SaysWhatIsWrongAndWhere) {
  TemporaryFolder folder;
  const std::string path = folder.file("t.csv");
  const std::vector<Case> cases = {
      {"", "'" + path + "' is empty (0 bytes): a CSV file begins with a line of column names"},
      {"\n\n", "'" + path + "' has only empty lines: a CSV file begins with a line of column names"},
      {"a,b\n1,2\n3\n", path + ", line 3: 1 fields, but the header has 2 (the delimiter is ',')"},
      {"a,b\n1,2\n\"x\ny\",2,3\n", path + ", line 3: 3 fields, but the header has 2 (the delimiter is ',')"},
      {"a,b\n1,2\n\"x,3\n", path + ", line 3, field 1: the quote that opens the field is never closed"},
      {"a,b\n1,\"x\"y\n",
       path + ", line 2, field 2: text after the closing quote; a quote within a field is written twice"},
      {"1,2\n3,4\n", path + ", line 1: '1' and the other fields are numbers, not column names; a CSV file "
                            "begins with a header"},
      {"a,b\nx,\xFF\xFE\n", path + ", line 2, column 'b': the text is not valid UTF-8"},
      {std::string("\xFF\xFE") + "a", "'" + path + "' is text in UTF-16; CSV files have to be in UTF-8"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    folder.write_text("t.csv", one.text);
    auto table = open_table({path});
    EXPECT_EQ(error_of(table), one.content);
    EXPECT_EQ(exit_code(table.status()), 3);
  }
}

TEST(Csv, TypesUniteOverFiles) {
  TemporaryFolder folder;
  folder.write_text("a.csv", "x,y,z,d\n1,007,,2024-01-01\n");
  folder.write_text("b.csv", "y;x;z;d\nseven;2.5;4;2024-01-01 10:00\n");
  EXPECT_EQ(content(folder.path() + "/*.csv"),
            "x double, y string, z int64?, d timestamp[us] | 1, 007, null, 2024-01-01 00:00:00.000000 | "
            "2.5, seven, 4, 2024-01-01 10:00:00.000000");
  // With Parquet beside them.
  write_parquet(folder, "c.parquet", {arrow::field("x", arrow::int32())}, {int32s({7})});
  auto table = open_table({"a.csv", "c.parquet"}, folder.path());
  ASSERT_OK(table);
  auto all = read_all(**table, {0});
  ASSERT_OK(all);
  EXPECT_EQ((*all)->column(0)->GetScalar(1).ValueOrDie()->ToString(), "7");
}

TEST(Csv, EntryPointsBeginAtRecordsAndCoverTheFile) {
  // Some 40 MB with newlines within quotes, so that strides fall into records.
  std::string text = "n,word\n";
  int64_t rows = 0;
  while (text.size() < (size_t{40} << 20)) {
    text += std::to_string(rows++);
    text += ",\"first line, of a text that is long enough to matter\nsecond \"\"line\"\" of the text\"\n";
  }
  TemporaryFolder folder;
  auto table = open_table({folder.write_text("t.csv", text)});
  ASSERT_OK(table);
  ASSERT_EQ((*table)->entry_points().size(), 3u);
  int64_t counted = 0;
  for (const auto& entry : (*table)->entry_points()) {
    EXPECT_EQ(entry.first_row, counted);
    counted += entry.rows;
  }
  EXPECT_EQ(counted, rows);
  auto all = read_all(**table, {0});
  ASSERT_OK(all);
  int64_t expected = 0;
  for (const auto& chunk : (*all)->column(0)->chunks()) {
    for (int64_t i = 0; i < chunk->length(); ++i)
      ASSERT_EQ(static_cast<const arrow::Int64Array&>(*chunk).Value(i), expected++);
  }
  EXPECT_EQ(expected, rows);
}

TEST(Csv, AFileThatChangedIsAnError) {
  TemporaryFolder folder;
  auto table = open_table({folder.write_text("t.csv", "a\n1\n")});
  ASSERT_OK(table);
  folder.write_text("t.csv", "a\n1\n2\n");
  EXPECT_NE((*table)->read(0, {0}).status().message().find("changed"), std::string::npos);
}

TEST(Csv, FingerprintIsOfTheContent) {
  TemporaryFolder folder;
  const auto path = folder.write_text("t.csv", "a\n1\n");
  const std::string before = table_fingerprint(**open_table({path}));
  folder.write_text("t.csv", "a\n2\n");
  EXPECT_NE(table_fingerprint(**open_table({path})), before);
}

TEST(Csv, RealFiles) {
  if (data_folder().empty()) GTEST_SKIP() << "no data folder";
  auto trips = open_table({data_folder() + "/hvfhv/*.csv"});
  ASSERT_OK(trips);
  EXPECT_EQ((*trips)->files()[0].rows, 1000);
  auto type = [](const plan::SourceTable& table, const char* name) {
    return table.schema()->GetFieldByName(name)->type()->ToString();
  };
  EXPECT_EQ(type(**trips, "pickup_datetime"), "timestamp[us]");
  EXPECT_EQ(type(**trips, "PULocationID"), "int64");
  EXPECT_EQ(type(**trips, "trip_miles"), "double");
  EXPECT_EQ(type(**trips, "hvfhs_license_num"), "string");
  EXPECT_TRUE((*trips)->schema()->GetFieldByName("on_scene_datetime")->nullable());
  EXPECT_FALSE((*trips)->schema()->GetFieldByName("trip_miles")->nullable());
  EXPECT_OK(read_all(**trips));

  auto titanic = open_table({data_folder() + "/tabular/titanic.csv"});
  ASSERT_OK(titanic);
  EXPECT_EQ((*titanic)->files()[0].rows, 891);
  EXPECT_EQ(type(**titanic, "adult_male"), "bool");
  EXPECT_EQ(type(**titanic, "alive"), "bool");
  EXPECT_EQ(type(**titanic, "age"), "double");
  EXPECT_EQ(type(**titanic, "deck"), "string");
  auto houses = open_table({data_folder() + "/tabular/california_housing.csv"});
  ASSERT_OK(houses);
  EXPECT_EQ((*houses)->files()[0].rows, 20640);
  auto all = read_all(**houses);
  ASSERT_OK(all);
  EXPECT_EQ((*all)->GetColumnByName("total_bedrooms")->null_count(), 207);
}

TEST(CsvText, ValuesAreWhollyParsed) {
  int64_t integer = 0;
  double real = 0;
  EXPECT_FALSE(parse_csv_integer("12x", &integer));
  EXPECT_FALSE(parse_csv_integer("", &integer));
  EXPECT_FALSE(parse_csv_integer("+-1", &integer));
  EXPECT_FALSE(parse_csv_double("1.5.2", &real));
  EXPECT_FALSE(parse_csv_double("0x10", &real));
  EXPECT_TRUE(parse_csv_double("1e999", &real));
  EXPECT_TRUE(std::isinf(real));
  EXPECT_TRUE(parse_csv_double("1e-999", &real));
  EXPECT_EQ(real, 0);
  EXPECT_TRUE(parse_csv_double("NaN", &real));
  int64_t time = 0;
  EXPECT_TRUE(parse_csv_timestamp("1970-01-02 00:00:00.1234567", &time));
  EXPECT_EQ(time, 86400'123456);
  EXPECT_FALSE(parse_csv_timestamp("1970-01-02 24:00:00", &time));
  EXPECT_FALSE(parse_csv_timestamp("1970-01-02 10", &time));
  EXPECT_EQ(csv_types_of("12", kCsvAll), kCsvInteger | kCsvDouble);
  EXPECT_EQ(csv_types_of("2024-01-01", kCsvAll), kCsvDate | kCsvTimestamp | kCsvZoned);
  EXPECT_FALSE(parse_csv_zoned("2024-01-01 10:00:00+2", &time));
  EXPECT_FALSE(parse_csv_timestamp("2024-01/01", &time));
}

}  // namespace
}  // namespace millstream::exec
