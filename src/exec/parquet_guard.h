#pragma once
// The edge to the Parquet library, shared by the files that read Parquet: nothing that a file says may crash, hang
// or fill the memory. No single allocation may be absurd, and every exception becomes a Status.

#include <new>

#include <arrow/memory_pool.h>
#include <parquet/exception.h>

#include "base/cpu_share.h"
#include "base/status.h"

namespace millstream::exec {

/// A block is at most 64 Ki rows: more than this for one array of it means 16 KiB a value, or a damaged file.
inline constexpr int64_t kLargestAllocation = int64_t{1} << 30;

/// Refuses single allocations that only a damaged file asks for. Lives for ever: batches outlive their reader.
class GuardedPool final : public arrow::MemoryPool {
 public:
  static GuardedPool* get() {
    static GuardedPool* pool = new GuardedPool;
    return pool;
  }
  Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    MILLSTREAM_TRY(check(size));
    return inner_->Allocate(size, alignment, out);
  }
  Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** ptr) override {
    MILLSTREAM_TRY(check(new_size));
    return inner_->Reallocate(old_size, new_size, alignment, ptr);
  }
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override {
    inner_->Free(buffer, size, alignment);
  }
  int64_t bytes_allocated() const override { return inner_->bytes_allocated(); }
  int64_t max_memory() const override { return inner_->max_memory(); }
  int64_t total_bytes_allocated() const override { return inner_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return inner_->num_allocations(); }
  std::string backend_name() const override { return inner_->backend_name(); }

 private:
  static Status check(int64_t size) {
    if (size <= kLargestAllocation) return Status::OK();
    return Status::OutOfMemory("decoding asks for ", size, " bytes at once, at most ",
                               format_bytes(kLargestAllocation),
                               " are given: the file is damaged or its values are too large");
  }
  arrow::MemoryPool* inner_ = arrow::default_memory_pool();
};

/// Calls into Parquet, exceptions to Status.
template <class F>
auto without_exceptions(F&& call) -> decltype(call()) {
  try {
    return call();
  } catch (const parquet::ParquetStatusException& e) {
    return e.status();
  } catch (const parquet::ParquetException& e) {
    return Status::Invalid(e.what());
  } catch (const std::bad_alloc&) {
    return Status::OutOfMemory("out of memory");
  } catch (const std::exception& e) {
    return Status::Invalid(e.what());
  }
}

}  // namespace millstream::exec
