#include "exec/entry_expressions.h"

#include <algorithm>

#include <arrow/array/concatenate.h>

#include "expr/type.h"

namespace millstream::exec {
namespace {

using expr::ExprPtr;
using expr::Kind;

bool is_part(const expr::Expression& e, const std::shared_ptr<arrow::Schema>& input, int* column) {
  if (e.kind == Kind::kColumn || e.kind == Kind::kLiteral || e.can_fail) return false;
  const std::vector<int> read = expr::columns_read(e);
  if (read.size() != 1) return false;
  *column = read[0];
  return expr::is_string_type(*input->field(read[0])->type());
}

Result<std::shared_ptr<arrow::Array>> take_column(const std::shared_ptr<arrow::Array>& array,
                                                  const std::vector<int32_t>& rows) {
  const auto schema = arrow::schema({arrow::field("", array->type())});
  MILLSTREAM_ASSIGN(const auto taken,
                    expr::take_rows(*arrow::RecordBatch::Make(schema, array->length(), {array}), rows));
  return taken->column(0);
}

// The entries and a NULL.
Result<std::shared_ptr<arrow::Array>> with_null(const std::shared_ptr<arrow::Array>& dictionary) {
  MILLSTREAM_ASSIGN(const auto null, arrow::MakeArrayOfNull(dictionary->type(), 1));
  return arrow::Concatenate({dictionary, null});
}

// `values`: of the entries, and last of NULL.
Result<std::shared_ptr<arrow::Array>> give_to_rows(const std::shared_ptr<arrow::Array>& values,
                                                   const arrow::DictionaryArray& rows) {
  const auto& indices = static_cast<const arrow::Int32Array&>(*rows.indices());
  const auto null = static_cast<int32_t>(values->length() - 1);
  std::vector<int32_t> numbers(static_cast<size_t>(rows.length()));
  if (indices.null_count() == 0) {
    std::copy_n(indices.raw_values(), rows.length(), numbers.data());
  } else {
    for (int64_t i = 0; i < rows.length(); ++i)
      numbers[static_cast<size_t>(i)] = indices.IsNull(i) ? null : indices.Value(i);
  }
  return take_column(values, numbers);
}

}  // namespace

Result<std::shared_ptr<arrow::Array>> take_array(const std::shared_ptr<arrow::Array>& array,
                                                 const std::vector<int32_t>& rows) {
  if (array->type_id() != arrow::Type::DICTIONARY) return take_column(array, rows);
  const auto& dictionary = static_cast<const arrow::DictionaryArray&>(*array);
  MILLSTREAM_ASSIGN(const auto indices, take_column(dictionary.indices(), rows));
  return std::make_shared<arrow::DictionaryArray>(array->type(), indices, dictionary.dictionary());
}

Result<std::shared_ptr<arrow::Array>> without_dictionary(const std::shared_ptr<arrow::Array>& array) {
  if (array->type_id() != arrow::Type::DICTIONARY) return array;
  const auto& dictionary = static_cast<const arrow::DictionaryArray&>(*array);
  MILLSTREAM_ASSIGN(const auto entries, with_null(dictionary.dictionary()));
  return give_to_rows(entries, dictionary);
}

EntryExpressions::EntryExpressions(const std::vector<ExprPtr>& expressions,
                                   const std::shared_ptr<arrow::Schema>& input) {
  for (const ExprPtr& expression : expressions) expressions_.push_back(take_apart(expression, input));
  // Columns that are read by rows too come first, in their order; then the parts.
  const auto columns = static_cast<size_t>(input->num_fields());
  std::vector<bool> by_rows(columns);
  for (const ExprPtr& expression : expressions_)
    for (const int c : expr::columns_read(*expression))
      if (static_cast<size_t>(c) < columns) by_rows[static_cast<size_t>(c)] = true;
  wants_dictionary_.resize(columns);
  for (const Part& part : parts_)
    wants_dictionary_[static_cast<size_t>(part.column)] = !by_rows[static_cast<size_t>(part.column)];
  std::vector<int> places(columns + parts_.size(), -1);
  arrow::FieldVector fields;
  for (size_t c = 0; c < columns; ++c) {
    if (!by_rows[c]) continue;
    places[c] = static_cast<int>(kept_.size());
    kept_.push_back(static_cast<int>(c));
    fields.push_back(input->field(static_cast<int>(c)));
  }
  for (size_t p = 0; p < parts_.size(); ++p) {
    places[columns + p] = static_cast<int>(fields.size());
    fields.push_back(arrow::field("", parts_[p].expression->type, parts_[p].expression->nullable));
  }
  schema_ = arrow::schema(std::move(fields));
  for (ExprPtr& expression : expressions_) expression = expr::remap_columns(expression, places);
}

// Puts a column of its own, behind those of the input, in the place of each part.
ExprPtr EntryExpressions::take_apart(const ExprPtr& expression, const std::shared_ptr<arrow::Schema>& input) {
  int column = -1;
  if (is_part(*expression, input, &column)) {
    std::vector<int> place(static_cast<size_t>(input->num_fields()), -1);
    place[static_cast<size_t>(column)] = 0;
    parts_.push_back({column, expr::remap_columns(expression, place)});
    return expr::make_column(input->num_fields() + static_cast<int>(parts_.size()) - 1,
                             *arrow::field("", expression->type, expression->nullable), expression->position);
  }
  if (expression->arguments.empty()) return expression;
  std::vector<ExprPtr> arguments;
  bool same = true;
  for (const ExprPtr& argument : expression->arguments) {
    arguments.push_back(take_apart(argument, input));
    same = same && arguments.back() == argument;
  }
  if (same) return expression;
  auto copy = std::make_shared<expr::Expression>(*expression);
  copy->arguments = std::move(arguments);
  return copy;
}

Result<std::shared_ptr<arrow::RecordBatch>> EntryExpressions::Values::extend(
    const EntryExpressions& of, const std::shared_ptr<arrow::RecordBatch>& input) {
  if (of.parts_.empty() && of.kept_.size() == static_cast<size_t>(input->num_columns()) &&
      std::ranges::none_of(input->columns(),
                           [](const auto& c) { return c->type_id() == arrow::Type::DICTIONARY; }))
    return input;
  known_.resize(of.parts_.size());
  arrow::ArrayVector columns;
  for (const int c : of.kept_) {
    MILLSTREAM_ASSIGN(auto column, without_dictionary(input->column(c)));
    columns.push_back(std::move(column));
  }
  for (size_t p = 0; p < of.parts_.size(); ++p) {
    const Part& part = of.parts_[p];
    const auto field = arrow::schema({arrow::field("", arrow::utf8())});
    std::shared_ptr<arrow::Array> column = input->column(part.column);
    const auto evaluate = [&](const std::shared_ptr<arrow::Array>& on) {
      return expr::evaluate(*part.expression, *arrow::RecordBatch::Make(field, on->length(), {on}));
    };
    if (column->type_id() == arrow::Type::DICTIONARY) {
      const auto& rows = static_cast<const arrow::DictionaryArray&>(*column);
      Known& known = known_[p];
      // Of a long dictionary for few rows most entries are wanted by nobody.
      if (known.dictionary != rows.dictionary() && rows.dictionary()->length() > 2 * rows.length()) {
        MILLSTREAM_ASSIGN(column, without_dictionary(column));
        MILLSTREAM_ASSIGN(column, evaluate(column));
        columns.push_back(std::move(column));
        continue;
      }
      if (known.dictionary != rows.dictionary()) {
        MILLSTREAM_ASSIGN(const auto entries, with_null(rows.dictionary()));
        MILLSTREAM_ASSIGN(known.values, evaluate(entries));
        known.dictionary = rows.dictionary();
      }
      MILLSTREAM_ASSIGN(column, give_to_rows(known.values, rows));
    } else {
      MILLSTREAM_ASSIGN(column, evaluate(column));
    }
    columns.push_back(std::move(column));
  }
  return arrow::RecordBatch::Make(of.schema_, input->num_rows(), std::move(columns));
}

}  // namespace millstream::exec
