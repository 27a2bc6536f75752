// The registry, and the texts of messages about values.

#include "expr/function.h"

#include <algorithm>

#include "base/check.h"
#include "expr/kernel.h"
#include "expr/text.h"

namespace millstream::expr {

namespace {
std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}
}  // namespace

const FunctionRegistry& FunctionRegistry::instance() {
  static const FunctionRegistry* registry = [] {
    auto* r = new FunctionRegistry;
    register_all_functions(*r);
    std::sort(r->by_name_.begin(), r->by_name_.end());
    for (size_t i = 1; i < r->by_name_.size(); ++i) {
      MILLSTREAM_CHECK(r->by_name_[i - 1].first != r->by_name_[i].first, "two functions are called '{}'",
                       r->by_name_[i].first);
    }
    return r;
  }();
  return *registry;
}

const Function* FunctionRegistry::find(std::string_view name) const {
  std::string key = lower_case(name);
  auto at = std::lower_bound(by_name_.begin(), by_name_.end(), key,
                             [](const auto& entry, const std::string& k) { return entry.first < k; });
  return at != by_name_.end() && at->first == key ? at->second : nullptr;
}

std::vector<const Function*> FunctionRegistry::all() const {
  std::vector<const Function*> out;
  for (const auto& function : functions_) out.push_back(function.get());
  return out;
}

std::vector<std::string> FunctionRegistry::names() const {
  std::vector<std::string> out;
  for (const auto& [name, function] : by_name_) out.push_back(name);
  return out;
}

void FunctionRegistry::add(Function function) {
  functions_.push_back(std::make_unique<Function>(std::move(function)));
  const Function* stored = functions_.back().get();
  by_name_.emplace_back(lower_case(stored->name), stored);
  for (const std::string& alias : stored->aliases) by_name_.emplace_back(lower_case(alias), stored);
}

std::string value_text(const Value& value, int64_t row) {
  const arrow::ArrayData& data = *value.data;
  if (value.constant) row = 0;
  if (data.type->id() == arrow::Type::NA ||
      !is_set(data.buffers[0] ? data.buffers[0]->data() : nullptr, data.offset + row)) {
    return "NULL";
  }
  std::string out;
  switch (data.type->id()) {
    case arrow::Type::BOOL:
      return Column<bool>(data)[row] ? "true" : "false";
    case arrow::Type::INT8:
      append_integer(out, Column<int8_t>(data)[row]);
      break;
    case arrow::Type::INT16:
      append_integer(out, Column<int16_t>(data)[row]);
      break;
    case arrow::Type::INT32:
      append_integer(out, Column<int32_t>(data)[row]);
      break;
    case arrow::Type::INT64:
      append_integer(out, Column<int64_t>(data)[row]);
      break;
    case arrow::Type::UINT8:
      append_unsigned(out, Column<uint8_t>(data)[row]);
      break;
    case arrow::Type::UINT16:
      append_unsigned(out, Column<uint16_t>(data)[row]);
      break;
    case arrow::Type::UINT32:
      append_unsigned(out, Column<uint32_t>(data)[row]);
      break;
    case arrow::Type::UINT64:
      append_unsigned(out, Column<uint64_t>(data)[row]);
      break;
    case arrow::Type::FLOAT:
      append_float(out, Column<float>(data)[row]);
      break;
    case arrow::Type::DOUBLE:
      append_double(out, Column<double>(data)[row]);
      break;
    case arrow::Type::DECIMAL128:
      append_decimal(out, Column<Decimal>(data)[row].digits, decimal_scale(*data.type));
      break;
    case arrow::Type::DATE32:
      append_date(out, Column<int32_t>(data)[row]);
      break;
    case arrow::Type::TIME64:
      append_time(out, Column<int64_t>(data)[row]);
      break;
    case arrow::Type::TIMESTAMP:
      append_timestamp(out, Column<int64_t>(data)[row],
                       ticks_per_second(static_cast<const arrow::TimestampType&>(*data.type).unit()),
                       is_timestamp_with_zone_type(*data.type));
      break;
    case arrow::Type::INTERVAL_MONTH_DAY_NANO:
      append_interval(out, Column<Interval>(data)[row]);
      break;
    case arrow::Type::STRING: {
      constexpr size_t kShown = 100;
      std::string_view text = Column<std::string_view>(data)[row];
      append_quoted(out, text.substr(0, kShown), '\'');
      if (text.size() > kShown) out += "...";
      return out;
    }
    default:
      return "a value of " + sql_type_name(*data.type);
  }
  return out;
}

Result<std::shared_ptr<arrow::Buffer>> allocate_values(int64_t bytes) {
  MILLSTREAM_ASSIGN(auto buffer, arrow::AllocateBuffer(bytes));
  return std::shared_ptr<arrow::Buffer>(std::move(buffer));
}

Status failure_at(const KernelCall& call, int64_t row, Failure failure) {
  const Expression& e = call.expression;
  auto argument = [&](size_t i) { return value_text(call.arguments[i], row); };
  std::string text;
  if (e.kind == Kind::kCast) {
    text = fmt::format("can't cast {} to {}", argument(0), sql_type_name(*e.type));
    if (failure == Failure::kOutOfRange) text += ": the value is out of range";
    return make_error(ErrorCategory::kData, std::move(text), SourcePosition{0, row});
  }
  const std::string& symbol = e.function->symbol.empty() ? e.function->name : e.function->symbol;
  std::string operation;
  if (e.function->notation == Notation::kInfix && call.arguments.size() == 2) {
    operation = fmt::format("{} {} {}", argument(0), symbol, argument(1));
  } else if (e.function->notation != Notation::kCall && call.arguments.size() == 1) {
    operation = fmt::format("{}({})", symbol, argument(0));
  } else {
    operation = symbol + "(";
    for (size_t i = 0; i < call.arguments.size(); ++i) operation += (i ? ", " : "") + argument(i);
    operation += ")";
  }
  switch (failure) {
    case Failure::kOverflow:
      text = fmt::format("overflow in {} ({})", operation, sql_type_name(*e.type));
      break;
    case Failure::kDivisionByZero:
      text = fmt::format("division by zero in {}", operation);
      break;
    case Failure::kOutOfRange:
      text = fmt::format("the result of {} is out of range for {}", operation, sql_type_name(*e.type));
      break;
    default:
      text = fmt::format("{} has no value", operation);
  }
  return make_error(ErrorCategory::kData, std::move(text), SourcePosition{0, row});
}

Status StringWriter::start(int64_t rows, int64_t bytes_expected) {
  MILLSTREAM_ASSIGN(offsets_buffer_, allocate_values((rows + 1) * static_cast<int64_t>(sizeof(int32_t))));
  offsets_ = reinterpret_cast<int32_t*>(offsets_buffer_->mutable_data());
  offsets_[0] = 0;
  MILLSTREAM_ASSIGN(buffer_, arrow::AllocateResizableBuffer(bytes_expected));
  data_ = reinterpret_cast<char*>(buffer_->mutable_data());
  capacity_ = bytes_expected;
  return Status::OK();
}

void StringWriter::grow(size_t bytes) {
  int64_t needed = size_ + static_cast<int64_t>(bytes);
  if (failed_ || needed > INT32_MAX) {
    failed_ = true;
    capacity_ = INT64_MAX;  // nothing is written any more; finish() tells
    return;
  }
  int64_t capacity = std::max<int64_t>(needed, 2 * capacity_);
  if (!buffer_->Resize(capacity, false).ok()) {
    failed_ = true;
    capacity_ = INT64_MAX;
    return;
  }
  data_ = reinterpret_cast<char*>(buffer_->mutable_data());
  capacity_ = capacity;
}

Status StringWriter::finish(arrow::ArrayData& out) {
  if (failed_) return data_error("the text made of one block of rows is larger than 2 GiB");
  MILLSTREAM_TRY(buffer_->Resize(size_, false));
  out.buffers.resize(3);
  out.buffers[1] = std::move(offsets_buffer_);
  out.buffers[2] = std::move(buffer_);
  return Status::OK();
}

}  // namespace millstream::expr
