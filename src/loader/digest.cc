#include "loader/digest.h"

#include "base/hash.h"

namespace millstream::loader {

Status digest_batches(comm::Job& job, const comm::Roles& roles, DataLoader& loader,
                      const std::function<void(const DigestLine&)>& on_line) {
  std::vector<int> ranks;
  for (const comm::Trainer& trainer : roles.trainers) ranks.push_back(trainer.rank);
  MILLSTREAM_ASSIGN(const auto trainers, job.make_communicator(ranks));
  if (trainers == nullptr) return Status::OK();
  const auto& segments = loader.layout().segments;
  for (;;) {
    MILLSTREAM_ASSIGN(const auto batch, loader.next());
    if (!batch) return Status::OK();
    // The shares one after the other, segment by segment, are the global batch whatever the number of trainers.
    Digest digest;
    for (const Segment& segment : segments) {
      const std::string_view mine(reinterpret_cast<const char*>(batch->slot + segment.offset),
                                  batch->rows * segment.row_bytes);
      if (trainers->size() == 1) {
        digest.add(mine);
        continue;
      }
      MILLSTREAM_ASSIGN(const auto shares, trainers->allgather_bytes(mine));
      for (const std::string& share : shares) digest.add(share);
    }
    loader.release();
    if (trainers->rank() == 0) on_line({batch->pass, batch->step, batch->global_rows, digest.hex()});
  }
}

}  // namespace millstream::loader
