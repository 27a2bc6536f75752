// NOT, IS NULL and IS NOT NULL, a word of rows at a time.

#include "expr/bound_rules.h"
#include "expr/kernel.h"
#include "expr/selection.h"

namespace millstream::functions {

using namespace expr;

namespace {

Status negate(KernelCall& call) {
  const arrow::ArrayData& in = *call.arguments[0].data;
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(bitmap_bytes(call.rows)));
  auto* out = reinterpret_cast<uint64_t*>(call.out.buffers[1]->mutable_data());
  BitReader bits(in.buffers[1]->data(), in.offset, call.rows);
  for (int64_t w = 0; w < (call.rows + 63) / 64; ++w) out[w] = ~bits.word(w);
  return Status::OK();
}

template <bool kNull>
Status null_test(KernelCall& call) {
  const arrow::ArrayData& in = *call.arguments[0].data;
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(bitmap_bytes(call.rows)));
  auto* out = reinterpret_cast<uint64_t*>(call.out.buffers[1]->mutable_data());
  const bool all_null = in.type->id() == arrow::Type::NA;
  BitReader valid(validity_of(in), in.offset, call.rows);
  for (int64_t w = 0; w < (call.rows + 63) / 64; ++w) {
    uint64_t known = all_null ? 0 : valid.word(w);
    out[w] = kNull ? ~known : known;
  }
  return Status::OK();
}

template <bool kNull>
Result<std::optional<Binding>> bind_null_test(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1) return std::nullopt;
  Binding binding;
  binding.parameters = {arguments[0]->type};
  binding.result = arrow::boolean();
  binding.kernel = null_test<kNull>;
  binding.fusion = kNull ? Fusion::kIsNull : Fusion::kIsNotNull;
  binding.nulls = NullPolicy::kOwn;
  binding.never_null = true;
  return binding;
}

Result<std::optional<Binding>> bind_not(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 1) return std::nullopt;
  const arrow::DataType& type = *arguments[0]->type;
  bool text = is_string_type(type) && arguments[0]->kind == Kind::kLiteral;
  if (type.id() != arrow::Type::BOOL && !is_null_type(type) && !is_numeric_type(type) && !text)
    return std::nullopt;
  Binding binding;
  binding.parameters = {arrow::boolean()};
  binding.result = arrow::boolean();
  binding.kernel = negate;
  binding.fusion = Fusion::kNot;
  return binding;
}

Bounds not_bounds(const Expression&, std::span<const Bounds> arguments) {
  Bounds result;
  const Range<__int128>& range = arguments[0].whole;
  if (range.high) result.whole.low = {1 - range.high->value, range.high->origin};
  if (range.low) result.whole.high = {1 - range.low->value, range.low->origin};
  return result;
}

}  // namespace

MILLSTREAM_FUNCTION(boolean) {
  Function negation;
  negation.name = "not";
  negation.notation = Notation::kPrefix;
  negation.symbol = "NOT";
  negation.doc = "True where the argument is false.";
  negation.examples = {{"NOT true", "false"}, {"NOT NULL::BOOLEAN", "NULL"}};
  negation.bind = bind_not;
  negation.bound = not_bounds;
  negation.forms = {"not(BOOLEAN)"};

  Function is_null;
  is_null.name = "is_null";
  is_null.notation = Notation::kPostfix;
  is_null.symbol = "IS NULL";
  is_null.doc = "True for NULL, false for everything else.";
  is_null.examples = {{"NULL IS NULL", "true"}, {"0 IS NULL", "false"}};
  is_null.bind = bind_null_test<true>;
  is_null.forms = {"is_null(ANY)"};

  Function is_not_null;
  is_not_null.name = "is_not_null";
  is_not_null.notation = Notation::kPostfix;
  is_not_null.symbol = "IS NOT NULL";
  is_not_null.doc = "False for NULL, true for everything else.";
  is_not_null.examples = {{"0 IS NOT NULL", "true"}};
  is_not_null.bind = bind_null_test<false>;
  is_not_null.forms = {"is_not_null(ANY)"};

  return define(std::move(negation), std::move(is_null), std::move(is_not_null));
}

}  // namespace millstream::functions
