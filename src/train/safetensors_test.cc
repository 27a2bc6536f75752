#include "train/safetensors.h"

#include <cstring>

#include <gtest/gtest.h>

namespace millstream::train {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}
std::string error_of(const std::string& bytes) {
  const auto result = decode_safetensors(bytes);
  return result.ok() ? "OK" : result.status().message();
}

TEST(SafeTensors, RoundTrip) {
  SafeTensors content;
  content.metadata["format"] = "pt";
  content.tensors.push_back({"b", TensorType::kFloat32, {2, 3}, std::string(24, '\x01')});
  content.tensors.push_back({"a", TensorType::kFloat64, {}, std::string(8, '\x02')});
  content.tensors.push_back({"empty", TensorType::kInt64, {0, 7}, ""});
  const std::string bytes = encode_safetensors(content);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(header % 8, 0u);
  auto read = decode_safetensors(bytes);
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->metadata, content.metadata);
  ASSERT_EQ(read->tensors.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read->tensors[i].name, content.tensors[i].name);
    EXPECT_EQ(read->tensors[i].type, content.tensors[i].type);
    EXPECT_EQ(read->tensors[i].shape, content.tensors[i].shape);
    EXPECT_EQ(read->tensors[i].bytes, content.tensors[i].bytes);
  }
  EXPECT_EQ(encode_safetensors(*read), bytes);
}

TEST(SafeTensors, MalformedInputsAreDataErrors) {
  EXPECT_EQ(error_of("abc"), "not a safetensors file: 3 bytes are too few");
  EXPECT_NE(error_of(std::string(8, '\xff')).find("cut off"), std::string::npos);
  EXPECT_EQ(error_of(file_of("[1]", "")), "the safetensors header is not valid JSON");
  EXPECT_EQ(error_of(file_of("{", "")), "the safetensors header is not valid JSON");
  EXPECT_EQ(error_of(file_of(R"({"w":1})", "")), "tensor 'w': needs dtype, shape and data_offsets");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F3","shape":[1],"data_offsets":[0,4]}})", "1234")),
            "tensor 'w': type 'F3' is not supported");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234")),
            "tensor 'w': shape has a size that is no count");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})",
                             "1234")),
            "tensor 'w': shape is too large");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234")),
            "tensor 'w': has 4 bytes where its shape needs 8");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "1234")),
            "tensor 'w': data_offsets lie outside the file's 4 bytes of data");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[8,4]}})", "12345678")),
            "tensor 'w': data_offsets lie outside the file's 8 bytes of data");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "12345678")),
            "tensor 'w' begins at byte 4 of the data where 0 was expected");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", "12345678")),
            "4 bytes of data belong to no tensor");
  EXPECT_EQ(error_of(file_of(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                             "1")),
            "tensor 'w' stands twice in the header");
  EXPECT_EQ(error_of(file_of(R"({"__metadata__":{"a":1}})", "")), "__metadata__ 'a' is not a string");
  EXPECT_EQ(error_of(file_of(std::string(100000, '['), "")), "the safetensors header is not valid JSON");
  EXPECT_EQ(exit_code(decode_safetensors("abc").status()), 3);
}

TEST(SafeTensors, EveryTruncationIsAnError) {
  SafeTensors content;
  content.tensors.push_back({"weight", TensorType::kFloat32, {4}, std::string(16, 'x')});
  const std::string bytes = encode_safetensors(content);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decode_safetensors(bytes.substr(0, size)).ok()) << size;
}

}  // namespace
}  // namespace millstream::train
