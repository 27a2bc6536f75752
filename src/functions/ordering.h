#pragma once
// How values of a type are ordered: NaN equals itself and is greater than everything, −0 equals +0, strings
// go by their bytes, intervals by their length with months of 30 days. Comparisons, IN, least and greatest
// share it.

#include <cstring>
#include <string_view>
#include <type_traits>

#include "expr/calendar.h"
#include "expr/kernel.h"

namespace millstream::functions {

inline __int128 interval_length(const expr::Interval& x) {
  return (static_cast<__int128>(x.months) * expr::kDaysPerMonth + x.days) * (expr::kMicrosPerDay * 1000) +
         x.nanos;
}

template <class T>
MILLSTREAM_BODY bool equal_values(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a == b) | ((a != a) & (b != b));
  } else if constexpr (std::is_same_v<T, expr::Decimal>) {
    return a.digits == b.digits;
  } else if constexpr (std::is_same_v<T, expr::Interval>) {
    return interval_length(a) == interval_length(b);
  } else {
    return a == b;
  }
}

template <class T>
MILLSTREAM_BODY bool less_value(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>) {
    // Not (b <= a), which a NaN makes true too; but a NaN on the left is less than nothing.
    return !(b <= a) & (a == a);
  } else if constexpr (std::is_same_v<T, expr::Decimal>) {
    return a.digits < b.digits;
  } else if constexpr (std::is_same_v<T, expr::Interval>) {
    return interval_length(a) < interval_length(b);
  } else {
    return a < b;
  }
}

/// f of the C++ type that orders values of `type` (dates are int32, times and timestamps int64); false where
/// there is no order.
template <class F>
bool with_ordered_type(const arrow::DataType& type, F&& f) {
  using arrow::Type;
  switch (type.id()) {
    case Type::BOOL:
      f(std::type_identity<bool>{});
      return true;
    case Type::INT8:
      f(std::type_identity<int8_t>{});
      return true;
    case Type::INT16:
      f(std::type_identity<int16_t>{});
      return true;
    case Type::INT32:
    case Type::DATE32:
      f(std::type_identity<int32_t>{});
      return true;
    case Type::INT64:
    case Type::TIME64:
    case Type::TIMESTAMP:
      f(std::type_identity<int64_t>{});
      return true;
    case Type::UINT8:
      f(std::type_identity<uint8_t>{});
      return true;
    case Type::UINT16:
      f(std::type_identity<uint16_t>{});
      return true;
    case Type::UINT32:
      f(std::type_identity<uint32_t>{});
      return true;
    case Type::UINT64:
      f(std::type_identity<uint64_t>{});
      return true;
    case Type::FLOAT:
      f(std::type_identity<float>{});
      return true;
    case Type::DOUBLE:
      f(std::type_identity<double>{});
      return true;
    case Type::DECIMAL128:
      f(std::type_identity<expr::Decimal>{});
      return true;
    case Type::INTERVAL_MONTH_DAY_NANO:
      f(std::type_identity<expr::Interval>{});
      return true;
    case Type::STRING:
    case Type::BINARY:
      f(std::type_identity<std::string_view>{});
      return true;
    default:
      return false;
  }
}

}  // namespace millstream::functions
