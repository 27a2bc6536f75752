#pragma once
// The safetensors format (github.com/huggingface/safetensors): an 8-byte little-endian length, a JSON header
// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, …}, and the bytes. Reading checks
// every size and offset against the file, so that a file from a stranger is safe to open: nothing is run,
// nothing is read outside the file, nothing is allocated beyond its size.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace millstream::train {

enum class TensorType : uint8_t { kFloat32, kFloat64, kInt64, kInt32, kUInt8, kBool };
int64_t bytes_of(TensorType type);

struct StoredTensor {
  std::string name;
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape;
  std::string bytes;  ///< little-endian, row-major
};

struct SafeTensors {
  std::vector<StoredTensor> tensors;  ///< in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// The file's bytes. Tensors are laid out in the order given.
std::string encode_safetensors(const SafeTensors& content);
/// Data errors say what is wrong with the bytes; the caller adds the file's name.
Result<SafeTensors> decode_safetensors(std::string_view bytes);

}  // namespace millstream::train
