#include "plan/catalog.h"

namespace millstream::plan {

std::string CsvOptions::key() const {
  if (*this == CsvOptions{}) return {};
  std::string result = fmt::format("csv {} {} {} {}", static_cast<int>(delimiter), quote, header, all_text);
  for (const auto* texts : {&names, &null_texts, &text_columns}) {
    result += fmt::format(" {}:", texts->size());
    for (const std::string& text : *texts) result += fmt::format("{},{}", text.size(), text);
  }
  return result;
}

// For readers that only know whole blocks.
Result<int64_t> SourceTable::Reader::next_block() {
  MILLSTREAM_ASSIGN(block_, next());
  return block_ ? block_->num_rows() : -1;
}

Result<std::shared_ptr<arrow::RecordBatch>> SourceTable::Reader::read_columns(
    const std::vector<int>& positions, const std::vector<int32_t>* rows) {
  arrow::FieldVector fields;
  arrow::ArrayVector columns;
  for (const int position : positions) {
    fields.push_back(block_->schema()->field(position));
    columns.push_back(block_->column(position));
  }
  auto result =
      arrow::RecordBatch::Make(arrow::schema(std::move(fields)), block_->num_rows(), std::move(columns));
  if (rows == nullptr) return result;
  return expr::take_rows(*result, *rows);
}

}  // namespace millstream::plan
