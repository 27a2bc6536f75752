#pragma once
// One JSON value, built in the order of the calls. Doubles are written so that reading gives the same double
// back, in as few digits as that takes; NaN and the infinities, which JSON has not, as strings.

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace millstream::cli {

std::string json_string(std::string_view text);
std::string json_number(double value);

/// {"rows": 5, "seconds": 0.25}
class JsonObject {
 public:
  JsonObject& add(std::string_view key, std::string_view value) { return add_json(key, json_string(value)); }
  JsonObject& add(std::string_view key, const char* value) { return add_json(key, json_string(value)); }
  JsonObject& add(std::string_view key, const std::string& value) {
    return add_json(key, json_string(value));
  }
  JsonObject& add(std::string_view key, std::same_as<bool> auto value) {
    return add_json(key, value ? "true" : "false");
  }
  JsonObject& add(std::string_view key, double value) { return add_json(key, json_number(value)); }
  template <std::integral T>
  requires(!std::same_as<T, bool>) JsonObject& add(std::string_view key, T value) {
    return add_json(key, std::to_string(value));
  }
  /// `json` is a JSON value already.
  JsonObject& add_json(std::string_view key, std::string_view json);
  std::string str() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

/// [1, 2]
class JsonArray {
 public:
  JsonArray& add_json(std::string_view json);
  std::string str() const { return "[" + body_ + "]"; }

 private:
  std::string body_;
};

}  // namespace millstream::cli
