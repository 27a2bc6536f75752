#include "train/event_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include <unistd.h>

namespace millstream::train {
namespace {

static_assert(std::endian::native == std::endian::little,
              "records and protobuf's fixed fields are little-endian");

// Protobuf's wire types.
enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

void add_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}
void add_tag(std::string& out, uint32_t field, Wire wire) {
  add_varint(out, field << 3 | wire);
}
template <class T>
void add_raw(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}
void add_double(std::string& out, uint32_t field, double value) {
  add_tag(out, field, kFixed64);
  add_raw(out, value);
}
void add_integer(std::string& out, uint32_t field, int64_t value) {
  add_tag(out, field, kVarint);
  add_varint(out, static_cast<uint64_t>(value));
}
void add_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  add_tag(out, field, kLength);
  add_varint(out, bytes.size());
  out += bytes;
}
void add_doubles(std::string& out, uint32_t field, const double* values, size_t count) {
  add_bytes(out, field, {reinterpret_cast<const char*>(values), count * sizeof(double)});
}

/// The masked checksum of a TFRecord.
uint32_t masked(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

std::string event_at(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  add_double(event, 1, std::chrono::duration<double>(now).count());  // wall_time
  add_integer(event, 2, step);
  return event;
}

/// Upper ends of the buckets, ascending.
const std::vector<double>& bucket_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    std::vector<double> all;
    for (auto limit = positive.rbegin(); limit != positive.rend(); ++limit) all.push_back(-*limit);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    all.push_back(std::numeric_limits<double>::max());
    return all;
  }();
  return limits;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0x82F63B78U : value >> 1;
      made[i] = value;
    }
    return made;
  }();
  uint32_t crc = ~0U;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

Histogram::Histogram() : buckets_(bucket_limits().size(), 0) {}

void Histogram::add(double value) {
  if (!std::isfinite(value)) return;
  least_ = count_ == 0 ? value : std::min(least_, value);
  greatest_ = count_ == 0 ? value : std::max(greatest_, value);
  ++count_;
  sum_ += value;
  squares_ += value * value;
  const auto& limits = bucket_limits();
  // A bucket has what lies below its end and not below that of the one before.
  const auto bucket = std::upper_bound(limits.begin(), limits.end() - 1, value);
  ++buckets_[static_cast<size_t>(bucket - limits.begin())];
}

std::string Histogram::encode() const {
  size_t begin = 0, end = buckets_.size();
  while (begin < end && buckets_[begin] == 0) ++begin;
  while (begin < end && buckets_[end - 1] == 0) --end;
  if (begin > 0) --begin;  // where the first one begins
  std::string out;
  add_double(out, 1, least_);
  add_double(out, 2, greatest_);
  add_double(out, 3, count_);
  add_double(out, 4, sum_);
  add_double(out, 5, squares_);
  add_doubles(out, 6, bucket_limits().data() + begin, end - begin);
  add_doubles(out, 7, buckets_.data() + begin, end - begin);
  return out;
}

EventFile::~EventFile() {
  if (file_ != nullptr) std::fclose(file_);
}

Status EventFile::open(const std::string& folder, int64_t step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return file_error("making the folder {}: {}", folder, error.message());
  char host[256] = "host";
  (void)gethostname(host, sizeof host - 1);
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch());
  // TensorBoard reads the files of a folder in the order of their names.
  for (int number = 0; file_ == nullptr; ++number) {
    path_ = fmt::format("{}/events.out.tfevents.{:010}.{}.{}.{}", folder, seconds.count(), host, getpid(),
                        number);
    file_ = std::fopen(path_.c_str(), "wxe");
    if (file_ == nullptr && errno != EEXIST) return file_error("writing {}: {}", path_, std::strerror(errno));
  }
  std::string version = event_at(0);
  add_bytes(version, 3, "brain.Event:2");
  MILLSTREAM_TRY(write_event(version));
  if (step == 0) return Status::OK();
  std::string session, start = event_at(step);
  add_integer(session, 1, 1);  // SessionLog.START
  add_bytes(start, 7, session);
  return write_event(start);
}

Status EventFile::write_scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary;
  for (const auto& [tag, number] : values) {
    std::string value;
    add_bytes(value, 1, tag);
    add_tag(value, 2, kFixed32);  // simple_value
    add_raw(value, static_cast<float>(number));
    add_bytes(summary, 1, value);
  }
  std::string event = event_at(step);
  add_bytes(event, 5, summary);
  return write_event(event);
}

Status EventFile::write_histograms(int64_t step,
                                   const std::vector<std::pair<std::string, Histogram>>& values) {
  std::string summary;
  for (const auto& [tag, histogram] : values) {
    std::string value;
    add_bytes(value, 1, tag);
    add_bytes(value, 5, histogram.encode());
    add_bytes(summary, 1, value);
  }
  std::string event = event_at(step);
  add_bytes(event, 5, summary);
  return write_event(event);
}

Status EventFile::write_event(std::string_view event) {
  if (file_ == nullptr) return Status::OK();
  std::string record;
  add_raw(record, static_cast<uint64_t>(event.size()));
  add_raw(record, masked(record));
  record += event;
  add_raw(record, masked(event));
  if (std::fwrite(record.data(), 1, record.size(), file_) != record.size() || std::fflush(file_) != 0)
    return file_error("writing {}: {}", path_, std::strerror(errno));
  return Status::OK();
}

}  // namespace millstream::train
