#include "comm/group.h"

namespace millstream::comm {

std::string describe_fingerprint(uint64_t packed) {
  static constexpr const char* kOperations[] = {"nothing",    "barrier", "allgather_bytes", "broadcast_bytes",
                                                "all_reduce", "reduce",  "broadcast",       "all_gather"};
  static constexpr const char* kTypes[] = {"float", "double", "half",  "bfloat16", "int8",
                                           "uint8", "int16",  "int32", "int64",    "bool"};
  static constexpr const char* kOps[] = {"sum",         "product",    "min",        "max",
                                         "bitwise and", "bitwise or", "bitwise xor"};
  const auto operation = static_cast<Operation>(packed >> 60);
  const size_t type = (packed >> 56) & 15, op = (packed >> 52) & 15;
  const uint32_t root = (packed >> 32) & 0xFFFFF, count = static_cast<uint32_t>(packed);
  if (packed >> 60 >= std::size(kOperations) || type >= std::size(kTypes) || op >= std::size(kOps))
    return "garbage";
  const char* name = kOperations[packed >> 60];
  switch (operation) {
    case Operation::kAllReduce:
      return fmt::format("{} ({}) of {} {}", name, kOps[op], count, kTypes[type]);
    case Operation::kReduce:
      return fmt::format("{} ({}) of {} {} to {}", name, kOps[op], count, kTypes[type], root);
    case Operation::kBroadcast:
      return fmt::format("{} of {} bytes from {}", name, count, root);
    case Operation::kBroadcastBytes:
      return fmt::format("{} from {}", name, root);
    case Operation::kAllGather:
      return fmt::format("{} of {} bytes", name, count);
    default:
      return name;
  }
}

Status mismatch_error(int mine, uint64_t my_fingerprint, int other, uint64_t other_fingerprint) {
  return bug_error("ranks call different collectives: rank {} {}, rank {} {}", mine,
                   describe_fingerprint(my_fingerprint), other, describe_fingerprint(other_fingerprint));
}

}  // namespace millstream::comm
