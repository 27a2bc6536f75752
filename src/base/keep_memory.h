#pragma once
// Memory that comes and goes with every block and step stays with the process.

namespace millstream {

/// Left to itself malloc gives large pieces back to the system, and takes a page fault and the zeroing of a page for
/// each 4 KiB when they return: a fifth of a query's time, half of a training step's with a large batch. Any time.
void keep_freed_memory();

/// Arrow's buffers come from malloc too, unless ARROW_DEFAULT_MEMORY_POOL says otherwise: Arrow's own allocator gives
/// memory back sooner. Before the first use of Arrow, before there are threads.
void use_malloc_for_arrow();

}  // namespace millstream
