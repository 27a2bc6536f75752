#include "expr/text_table.h"

#include <gtest/gtest.h>

namespace millstream::expr {
namespace {

std::shared_ptr<TextList> list_of(const std::vector<std::string>& texts) {
  auto list = std::make_shared<TextList>();
  for (const std::string& text : texts) {
    list->bytes += text;
    list->ends.push_back(static_cast<uint32_t>(list->bytes.size()));
  }
  return list;
}

std::vector<double> ids_of(const Expression& expression, const std::shared_ptr<arrow::Array>& texts) {
  const auto batch = arrow::RecordBatch::Make(arrow::schema({arrow::field("x", arrow::utf8())}),
                                              texts->length(), arrow::ArrayVector{texts});
  const auto ids = evaluate(expression, *batch).ValueOrDie();
  std::vector<double> values;
  for (int64_t i = 0; i < ids->length(); ++i)
    values.push_back(static_cast<const arrow::DoubleArray&>(*ids).Value(i));
  EXPECT_EQ(ids->null_count(), 0);
  return values;
}

TEST(TextTableTest, FindsEveryTextAndNoOther) {
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i) texts.push_back(std::to_string(i * i));
  texts.push_back("");
  const auto table = TextTable::make(list_of(texts)).ValueOrDie();
  arrow::StringBuilder builder;
  std::vector<double> expected;
  for (int i = 0; i < 5000; ++i) {
    ASSERT_TRUE(builder.Append(texts[static_cast<size_t>(i)]).ok());
    expected.push_back(i + 2);
    ASSERT_TRUE(builder.Append(texts[static_cast<size_t>(i)] + "x").ok());
    expected.push_back(0);
  }
  ASSERT_TRUE(builder.AppendNull().ok());
  expected.push_back(1);
  ASSERT_TRUE(builder.Append("").ok());
  expected.push_back(5002);
  const auto array = builder.Finish().ValueOrDie();
  const auto column = make_column(0, *arrow::field("x", arrow::utf8()));
  const auto ids = make_call("category_id", {column, make_table_literal(table)}).ValueOrDie();
  EXPECT_EQ(ids_of(*ids, array), expected);
  EXPECT_EQ(ids_of(*ids, array->Slice(77, 300)),
            std::vector<double>(expected.begin() + 77, expected.begin() + 377));
  EXPECT_EQ(ids_of(*ids, arrow::MakeArrayOfNull(arrow::utf8(), 3).ValueOrDie()),
            (std::vector<double>{1, 1, 1}));

  // What the bundle writes names the list by its key, as long as somebody has it.
  EXPECT_EQ(ids->to_sql(), "category_id(\"x\", '" + table->key() + "')");
  const auto key = make_literal(std::make_shared<arrow::StringScalar>(table->key()));
  EXPECT_EQ(ids_of(**make_call("category_id", {column, key}), array), expected);
  std::vector<std::shared_ptr<const TextTable>> tables;
  collect_tables(*ids, tables);
  collect_tables(*ids, tables);
  EXPECT_EQ(tables, std::vector{table});
}

TEST(TextTableTest, AListThatNobodyHasIsAnError) {
  const auto column = make_column(0, *arrow::field("x", arrow::utf8()));
  const auto of = [&](std::shared_ptr<arrow::Scalar> second) {
    return make_call("category_id", {column, make_literal(std::move(second))}).status().message();
  };
  std::string key;
  {
    const auto table = TextTable::make(list_of({"a", "b"})).ValueOrDie();
    key = table->key();
    EXPECT_EQ(TextTable::make(list_of({"a", "b"})).ValueOrDie(), table);
    EXPECT_NE(TextTable::make(list_of({"ab"})).ValueOrDie()->key(), key);
  }
  EXPECT_EQ(of(std::make_shared<arrow::StringScalar>(key)),
            "category_id: there is no list of categories '" + key +
                "'; such lists are made by the step categorify, and are in its bundle");
  EXPECT_EQ(of(std::make_shared<arrow::Int32Scalar>(3)),
            "category_id takes the key of a list of categories, a text in quotes, as its second argument");
}

TEST(TextTableTest, DamagedListsAreErrors) {
  EXPECT_EQ(TextTable::make(list_of({"a", "b", "a"})).status().message(),
            "a list of categories is damaged: 'a' is in it twice");
  auto list = list_of({"a", "b"});
  list->ends[0] = 7;
  EXPECT_EQ(TextTable::make(list).status().message(), "a list of categories is damaged: its texts overlap");
  list = list_of({"a", "b"});
  list->bytes += "c";
  EXPECT_EQ(TextTable::make(list).status().message(),
            "a list of categories is damaged: its texts have not the length that it says");
}

}  // namespace
}  // namespace millstream::expr
