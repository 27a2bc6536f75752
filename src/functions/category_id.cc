// category_id(text, list): the id that categorify gives to a text. Ours, not DuckDB's: the lists are what features fit,
// and are in the bundle (expr/text_table.h).

#include "expr/kernel.h"
#include "expr/text_table.h"

namespace millstream::functions {

using namespace expr;

namespace {

// Ids of what is not in the list, and of NULL.
constexpr double kUnknown = 0, kNull = 1;

Status category_ids(KernelCall& call) {
  const auto table = table_of(*call.expression.arguments[1]);
  if (table == nullptr) return bug_error("category_id without its list");
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(call.rows * static_cast<int64_t>(sizeof(double))));
  auto* const ids = reinterpret_cast<double*>(call.out.buffers[1]->mutable_data());
  const arrow::ArrayData& texts = *call.arguments[0].data;
  if (texts.GetNullCount() == call.rows) {  // there may be no bytes at all
    std::fill(ids, ids + call.rows, kNull);
    return Status::OK();
  }
  const Column<std::string_view> column(texts);
  table->ids(column.bytes, column.offsets, call.rows, ids);
  if (texts.GetNullCount() == 0) return Status::OK();
  for (int64_t i = 0; i < call.rows; ++i) {
    if (texts.IsNull(i)) ids[i] = kNull;
  }
  return Status::OK();
}

// A key becomes the list that it names.
Result<ExprPtr> with_list(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 2 || table_of(*arguments[1]) != nullptr) return ExprPtr();
  const Expression& key = *arguments[1];
  const bool is_text =
      key.kind == Kind::kLiteral && key.literal->is_valid && key.type->id() == arrow::Type::STRING;
  if (!is_text)
    return query_error(
        "category_id takes the key of a list of categories, a text in quotes, as its second argument");
  const std::string name = static_cast<const arrow::StringScalar&>(*key.literal).value->ToString();
  auto table = TextTable::of_key(name);
  if (table == nullptr)
    return query_error(
        "category_id: there is no list of categories '{}'; such lists are made by the step categorify, and "
        "are in its bundle",
        name);
  return make_call("category_id", {arguments[0], make_table_literal(std::move(table))}, position);
}

}  // namespace

MILLSTREAM_FUNCTION(category_id) {
  Function f;
  f.name = "category_id";
  f.doc =
      "The id that the feature step categorify gives to a text: 2 and its place in the list of categories of "
      "that key, "
      "0 where it is not in it, 1 for NULL. Bundles use it; '' is the empty list. DuckDB has no such "
      "function.";
  f.examples = {{"category_id('abc', '')", "0.0"}, {"category_id(NULL, '')", "1.0"}};
  Binding binding;
  binding.parameters = {arrow::utf8(), arrow::utf8()};
  binding.result = arrow::float64();
  binding.nulls = NullPolicy::kOwn;
  binding.never_null = true;
#ifndef MILLSTREAM_BITCODE
  binding.kernel = category_ids;
#endif
  f.overloads = {std::move(binding)};
  f.rewrite = with_list;
  return define(std::move(f));
}

}  // namespace millstream::functions
