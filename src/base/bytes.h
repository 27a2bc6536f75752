#pragma once
// Plain values as bytes and back, lengths first: for the cache, and for ranks of one job, which run the same program.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace millstream {

class ByteWriter {
 public:
  template <class T>
  void value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <class T>
  void values(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    value<uint64_t>(values.size());
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void text(std::string_view text) {
    value<uint64_t>(text.size());
    bytes_ += text;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// After the first value that is not there all others are zeros and empty, and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  T value() {
    static_assert(std::is_trivially_copyable_v<T>);
    T value{};
    const std::string_view bytes = take(sizeof(T));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
  template <class T>
  std::vector<T> values() {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto count = value<uint64_t>();
    if (count > rest_.size() / sizeof(T)) ok_ = false;
    std::vector<T> values(ok_ ? count : 0);
    if (!values.empty()) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
    return values;
  }
  /// Within the bytes that are read.
  std::string_view text() { return take(value<uint64_t>()); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && rest_.empty(); }

 private:
  std::string_view take(uint64_t count) {
    ok_ = ok_ && count <= rest_.size();
    if (!ok_) return {};
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace millstream
