// IN over constants: NULL where nothing equals the value and either the value or one of the constants is
// NULL.

#include <algorithm>

#include "expr/selection.h"
#include "functions/ordering.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct Same {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return equal_values(a, b);
  }
};

template <class T>
Status in_list(KernelCall& call) {
  std::vector<T> list;
  bool null_listed = false;
  for (const Value& item : call.arguments.subspan(1)) {
    if (has_nulls(*item.data)) {
      null_listed = true;
    } else {
      list.push_back(Column<T>(*item.data)[0]);
    }
  }
  std::sort(list.begin(), list.end(), [](const T& a, const T& b) { return less_value(a, b); });
  list.erase(std::unique(list.begin(), list.end(), [](const T& a, const T& b) { return equal_values(a, b); }),
             list.end());
  const Value& value = call.arguments[0];
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(bitmap_bytes(call.rows)));
  uint8_t* found = call.out.buffers[1]->mutable_data();
  Column<T> in(*value.data);
  constexpr size_t kFew = 8;  // these are compared one after the other, in vector loops
  if (list.size() <= kFew) {
    auto* words = reinterpret_cast<uint64_t*>(found);
    for (int64_t first = 0; first < call.rows; first += 64) {
      alignas(32) uint8_t bytes[64] = {};
      const int64_t count = std::min<int64_t>(64, call.rows - first);
      for (const T& item : list) {
        for (int64_t j = 0; j < count; ++j)
          bytes[j] |= static_cast<uint8_t>(equal_values<T>(in[first + j], item));
      }
      words[first / 64] = pack_bits(bytes);
    }
  } else {
    fill_bits(found, call.rows, [&](int64_t i) -> uint8_t {
      const T x = in[i];
      auto at = std::lower_bound(list.begin(), list.end(), x,
                                 [](const T& a, const T& b) { return less_value(a, b); });
      return at != list.end() && equal_values<T>(*at, x);
    });
  }
  if (!null_listed && !has_nulls(*value.data)) return Status::OK();
  MILLSTREAM_ASSIGN(auto validity, allocate_values(bitmap_bytes(call.rows)));
  auto* out = reinterpret_cast<uint64_t*>(validity->mutable_data());
  auto* yes = reinterpret_cast<const uint64_t*>(found);
  BitReader valid(validity_of(*value.data), value.data->offset, call.rows);
  for (int64_t w = 0; w < (call.rows + 63) / 64; ++w) {
    out[w] = valid.word(w) & (null_listed ? yes[w] : ~uint64_t{0});
  }
  call.out.buffers[0] = std::move(validity);
  call.out.null_count = arrow::kUnknownNullCount;
  return Status::OK();
}

Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() < 2) return std::nullopt;
  Binding binding;
  binding.parameters.assign(arguments.size(), arguments[0]->type);
  binding.result = arrow::boolean();
  binding.nulls = NullPolicy::kOwn;
  if (!with_ordered_type(*arguments[0]->type, [&]<class T>(std::type_identity<T>) {
        binding.kernel = in_list<T>;
        fuse<Same, T, T>(binding, Fusion::kIn);
      })) {
    return query_error("values of type {} can't be compared", sql_type_name(*arguments[0]->type));
  }
  return binding;
}

}  // namespace

MILLSTREAM_FUNCTION(in) {
  Function f;
  f.name = "in";
  f.notation = Notation::kInfix;
  f.symbol = "IN";
  f.doc = "True where the value equals one of the list.";
  f.examples = {{"2 IN (1, 2)", "true"}, {"3 IN (1, NULL)", "NULL"}};
  f.bind = bind;
  f.forms = {"in(ANY, ANY...)"};
  return define(std::move(f));
}

}  // namespace millstream::functions
