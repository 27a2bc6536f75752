// Event files, read back by a reader of their format that shares nothing with the writer.
#include "train/event_file.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include <gtest/gtest.h>

namespace millstream::train {
namespace {

/// CRC-32C bit by bit.
uint32_t slow_crc(std::string_view bytes) {
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
  }
  return crc ^ 0xFFFFFFFF;
}

/// A message's fields: number -> raw contents, in order.
std::multimap<uint32_t, std::string> fields_of(std::string_view message) {
  std::multimap<uint32_t, std::string> fields;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(0));
      message.remove_prefix(1);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  };
  while (!message.empty()) {
    const uint64_t tag = varint();
    size_t size = 0;
    std::string contents;
    switch (tag & 7) {
      case 0: {
        const uint64_t value = varint();
        contents.assign(reinterpret_cast<const char*>(&value), sizeof value);
        break;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = varint();
        break;
      case 5:
        size = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (tag & 7);
        return fields;
    }
    contents.append(message.substr(0, size));
    message.remove_prefix(size);
    fields.emplace(static_cast<uint32_t>(tag >> 3), std::move(contents));
  }
  return fields;
}

template <class T>
T as(const std::string& bytes) {
  T value{};
  EXPECT_EQ(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

std::vector<std::string> records_of(const std::string& folder) {
  std::vector<std::string> records;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path().filename().string().rfind("events.out.tfevents.", 0), 0u);
    std::ifstream file(entry.path(), std::ios::binary);
    std::string bytes(std::istreambuf_iterator<char>(file), {});
    while (!bytes.empty()) {
      const auto number = [&](size_t at) { return as<uint32_t>(bytes.substr(at, 4)); };
      const auto mask = [](uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U; };
      const auto length = as<uint64_t>(bytes.substr(0, 8));
      EXPECT_EQ(number(8), mask(slow_crc(bytes.substr(0, 8))));
      records.push_back(bytes.substr(12, length));
      EXPECT_EQ(number(12 + length), mask(slow_crc(records.back())));
      bytes.erase(0, 16 + length);
    }
  }
  return records;
}

class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::temp_directory_path() / "millstream_events_XXXXXX").string();
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(EventFile, ChecksumIsThatOfRfc3720) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(EventFile, ScalarsAndTheStartOfARunThatGoesOn) {
  Folder folder;
  {
    EventFile file;
    ASSERT_TRUE(file.open(folder.path() + "/new", 300).ok());
    ASSERT_TRUE(file.write_scalars(301, {{"loss/train", 0.25}, {"learning_rate", 1e-3}}).ok());
    EventFile second;  // in the same second
    ASSERT_TRUE(second.open(folder.path() + "/new/two", 0).ok());
  }
  EXPECT_EQ(records_of(folder.path() + "/new/two").size(), 1u);
  std::filesystem::remove_all(folder.path() + "/new/two");
  const auto records = records_of(folder.path() + "/new");
  ASSERT_EQ(records.size(), 3u);
  EXPECT_EQ(fields_of(records[0]).find(3)->second, "brain.Event:2");
  EXPECT_GT(as<double>(fields_of(records[0]).find(1)->second), 1.7e9);
  auto start = fields_of(records[1]);
  EXPECT_EQ(as<uint64_t>(start.find(2)->second), 300u);
  EXPECT_EQ(as<uint64_t>(fields_of(start.find(7)->second).find(1)->second), 1u);
  auto scalars = fields_of(records[2]);
  EXPECT_EQ(as<uint64_t>(scalars.find(2)->second), 301u);
  const auto summary = fields_of(scalars.find(5)->second);
  ASSERT_EQ(summary.count(1), 2u);
  std::map<std::string, float> values;
  for (const auto& [field, bytes] : summary) {
    const auto value = fields_of(bytes);
    values[value.find(1)->second] = as<float>(value.find(2)->second);
  }
  EXPECT_EQ(values, (std::map<std::string, float>{{"loss/train", 0.25F}, {"learning_rate", 1e-3F}}));
}

TEST(EventFile, HistogramsCountEveryValueOnce) {
  Folder folder;
  Histogram histogram;
  std::vector<double> values{0, 1, -1, 1e-30, -1e-30, 1e25, -1e25, 0.5, 0.5, std::nan("")};
  double sum = 0, squares = 0;
  for (const double value : values) {
    histogram.add(value);
    if (std::isnan(value)) continue;
    sum += value;
    squares += value * value;
  }
  {
    EventFile file;
    ASSERT_TRUE(file.open(folder.path(), 0).ok());
    ASSERT_TRUE(file.write_histograms(7, {{"weights/a", histogram}}).ok());
  }
  const auto records = records_of(folder.path());
  ASSERT_EQ(records.size(), 2u);
  const auto value = fields_of(fields_of(fields_of(records[1]).find(5)->second).find(1)->second);
  EXPECT_EQ(value.find(1)->second, "weights/a");
  const auto fields = fields_of(value.find(5)->second);
  EXPECT_EQ(as<double>(fields.find(1)->second), -1e25);
  EXPECT_EQ(as<double>(fields.find(2)->second), 1e25);
  EXPECT_EQ(as<double>(fields.find(3)->second), 9);
  EXPECT_EQ(as<double>(fields.find(4)->second), sum);
  EXPECT_EQ(as<double>(fields.find(5)->second), squares);
  const auto doubles = [&](uint32_t field) {
    const std::string& bytes = fields.find(field)->second;
    std::vector<double> out(bytes.size() / sizeof(double));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  const auto limits = doubles(6), counts = doubles(7);
  ASSERT_EQ(limits.size(), counts.size());
  double counted = 0;
  for (size_t i = 0; i < limits.size(); ++i) {
    double expected = 0;
    for (const double x : values) expected += x < limits[i] && (i == 0 || x >= limits[i - 1]);
    EXPECT_EQ(counts[i], expected) << limits[i];
    counted += counts[i];
  }
  EXPECT_EQ(counted, 9);
}

}  // namespace
}  // namespace millstream::train
