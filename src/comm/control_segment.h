#pragma once
// The memory that the ranks of one host share from the start to the end of a job: signs of life, the failure
// record, the slots of agree(), and the channels of two groups (the host's own, and the world's part on this
// host). Plain words and bytes: it is mapped at different addresses.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace millstream::comm {

/// Encoded statuses longer than this are cut.
inline constexpr size_t kStatusBytes = 8192;

/// A status at rest, guarded by somebody else's word.
struct StatusText {
  int32_t rank;
  uint32_t size;
  char bytes[kStatusBytes];
  void set(std::string_view encoded, int from_rank) {
    rank = from_rank;
    size = static_cast<uint32_t>(std::min(encoded.size(), kStatusBytes));
    encoded.copy(bytes, size);
  }
  std::string_view view() const { return {bytes, size}; }
};

/// What a rank shows of itself. Its watchdog thread writes it, those of the others read it.
struct alignas(64) RankRecord {
  std::atomic<uint32_t> state;  ///< 0: not there yet, 1: running, 2: left in order
  std::atomic<uint32_t> heartbeat;
  std::atomic<uint64_t> beats;
  std::atomic<uint32_t> waiting;
  std::atomic<int32_t> pid;
  std::array<std::atomic<uint64_t>, 4> phase;  ///< text, zero-filled

  std::atomic<uint32_t> agree_sequence;  ///< how many agreements this rank has brought its status to
  std::atomic<uint32_t> agree_last;      ///< 1: it is in finish()
  StatusText agree_status;
};

struct alignas(64) ControlSegment {
  std::atomic<uint32_t> failed;        ///< 1 once a rank failed
  std::atomic<uint32_t> record_state;  ///< 0: none, 1: being written, 2: there
  StatusText record;

  std::atomic<uint32_t> result_sequence;  ///< how many agreements have a result
  std::atomic<uint32_t> result_last;      ///< 1: it is the job's last
  StatusText result;

  std::atomic<uint32_t> aborted;      ///< 1 once a watchdog ends the job
  std::atomic<uint32_t> engine_used;  ///< 1 once a rank of a host that needs none started its message engine

  RankRecord* ranks() { return reinterpret_cast<RankRecord*>(this + 1); }
  const RankRecord* ranks() const { return reinterpret_cast<const RankRecord*>(this + 1); }
};
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);

}  // namespace millstream::comm
