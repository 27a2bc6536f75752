#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace millstream {

void check_failed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "millstream: a bug: %s:%d: %s is not true%s%s\n", file, line, condition,
               message.empty() ? "" : ": ", message.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace millstream
