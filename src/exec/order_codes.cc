#include "exec/order_codes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "expr/kernel.h"
#include "expr/type.h"
#include "functions/ordering.h"

namespace millstream::exec {
namespace {

constexpr uint64_t kSign = uint64_t{1} << 63;

uint64_t float_order(double x) {
  if (x != x) return UINT64_MAX;
  const auto bits = std::bit_cast<uint64_t>(x == 0 ? 0.0 : x);
  return bits >> 63 != 0 ? ~bits : bits | kSign;
}

uint64_t text_prefix(std::string_view text) {
  unsigned char bytes[8] = {};
  std::memcpy(bytes, text.data(), std::min<size_t>(text.size(), 8));
  uint64_t prefix = 0;
  for (const unsigned char byte : bytes) prefix = prefix << 8 | byte;
  return prefix;
}

}  // namespace

Result<bool> order_codes(const arrow::Array& array, uint64_t* codes) {
  const int64_t rows = array.length();
  const bool nulls = array.null_count() > 0;
  bool exact = false;
  const bool ordered = functions::with_ordered_type(*array.type(), [&]<class T>(std::type_identity<T>) {
    const expr::Column<T> values(*array.data());
    const auto encode = [&](int64_t i) {
      const T value = values[i];
      if constexpr (std::is_floating_point_v<T>) {
        codes[i] = float_order(static_cast<double>(value));
      } else if constexpr (std::is_same_v<T, bool> || std::is_unsigned_v<T>) {
        codes[i] = value;
      } else if constexpr (std::is_integral_v<T>) {
        codes[i] = static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
      } else if constexpr (std::is_same_v<T, std::string_view>) {
        codes[i] = text_prefix(value);
      } else {
        // A decimal, or an interval's length: 128 bits.
        __int128 digits;
        if constexpr (std::is_same_v<T, expr::Decimal>) {
          digits = value.digits;
        } else {
          digits = functions::interval_length(value);
        }
        codes[i] = static_cast<uint64_t>(static_cast<int64_t>(digits >> 64)) ^ kSign;
      }
    };
    if (!nulls) {
      for (int64_t i = 0; i < rows; ++i) encode(i);
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        if (array.IsNull(i)) {
          codes[i] = 0;
        } else {
          encode(i);
        }
      }
    }
    exact = std::is_floating_point_v<T> || std::is_integral_v<T>;
  });
  if (!ordered) return query_error("values of type {} have no order", expr::sql_type_name(*array.type()));
  return exact;
}

}  // namespace millstream::exec
