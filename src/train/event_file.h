#pragma once
// TensorBoard's event files: TFRecords (length and data, each with its masked CRC-32C) of Event messages in protobuf's
// wire format, both written by hand. Fields and numbers: tensorflow/core/util/event.proto, framework/summary.proto.

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace millstream::train {

/// Counts of values in buckets that grow by a tenth from 1e-12 to 1e20 to either side of zero, as TensorBoard's own.
class Histogram {
 public:
  Histogram();
  void add(double value);
  /// HistogramProto; empty buckets at either end are left out.
  std::string encode() const;

 private:
  double least_ = 0, greatest_ = 0, count_ = 0, sum_ = 0, squares_ = 0;
  std::vector<double> buckets_;
};

class EventFile {
 public:
  EventFile() = default;
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;
  /// Makes a file of its own in the folder `folder`, which it makes too. TensorBoard forgets what earlier files there
  /// have for steps from `step` on: a run that goes on repeats none.
  Status open(const std::string& folder, int64_t step);
  bool is_open() const { return file_ != nullptr; }
  /// One event with these values, handed to the system.
  Status write_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);
  Status write_histograms(int64_t step, const std::vector<std::pair<std::string, Histogram>>& values);

 private:
  Status write_event(std::string_view event);
  std::string path_;
  std::FILE* file_ = nullptr;
};

/// CRC-32C (Castagnoli), as RFC 3720 has it.
uint32_t crc32c(std::string_view bytes);

}  // namespace millstream::train
