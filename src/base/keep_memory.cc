#include "base/keep_memory.h"

#include <cstdlib>

#include <malloc.h>

namespace millstream {

void keep_freed_memory() {
  mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the largest that glibc takes
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  mallopt(M_TOP_PAD, 16 << 20);
}

void use_malloc_for_arrow() {
  ::setenv("ARROW_DEFAULT_MEMORY_POOL", "system", /*overwrite=*/0);
}

}  // namespace millstream
