#pragma once
// Assertions on our own code. They abort with file and line, never because of a user's input.

#include <fmt/format.h>

namespace millstream {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);
}

#define MILLSTREAM_CHECK(condition, ...)                                                         \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::millstream::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
#ifdef NDEBUG
#define MILLSTREAM_DCHECK(...) \
  do {                         \
  } while (false)
#else
#define MILLSTREAM_DCHECK(...) MILLSTREAM_CHECK(__VA_ARGS__)
#endif
