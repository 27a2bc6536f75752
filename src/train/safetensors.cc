#include "train/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include <nlohmann/json.hpp>

#include "base/check.h"

namespace millstream::train {
namespace {

static_assert(std::endian::native == std::endian::little);
using Json = nlohmann::ordered_json;

constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as in the reference implementation

struct TypeName {
  TensorType type;
  const char* name;
  int64_t bytes;
};
constexpr TypeName kTypes[] = {{TensorType::kFloat32, "F32", 4}, {TensorType::kFloat64, "F64", 8},
                               {TensorType::kInt64, "I64", 8},   {TensorType::kInt32, "I32", 4},
                               {TensorType::kUInt8, "U8", 1},    {TensorType::kBool, "BOOL", 1}};

/// A non-negative integer of the header; -1 where it is none.
int64_t count_of(const Json& value) {
  if (!value.is_number_unsigned()) return -1;
  const auto number = value.get<uint64_t>();
  return number <= static_cast<uint64_t>(INT64_MAX) ? static_cast<int64_t>(number) : -1;
}

Result<StoredTensor> decode_entry(const std::string& name, const Json& entry, std::string_view data,
                                  std::pair<int64_t, int64_t>& range) {
  auto bad = [&](std::string_view what) { return data_error("tensor '{}': {}", name, what); };
  if (!entry.is_object() || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    return bad("needs dtype, shape and data_offsets");
  StoredTensor tensor;
  tensor.name = name;
  const Json &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
  if (!dtype.is_string()) return bad("dtype is not a string");
  const TypeName* type = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeName& t) {
    return dtype.get_ref<const std::string&>() == t.name;
  });
  if (type == std::end(kTypes))
    return bad(fmt::format("type '{}' is not supported", dtype.get<std::string>()));
  tensor.type = type->type;
  if (!shape.is_array() || shape.size() > 16) return bad("shape is not a list of sizes");
  int64_t bytes = type->bytes;
  for (const Json& size : shape) {
    const int64_t n = count_of(size);
    if (n < 0) return bad("shape has a size that is no count");
    if (__builtin_mul_overflow(bytes, n, &bytes)) return bad("shape is too large");
    tensor.shape.push_back(n);
  }
  if (!offsets.is_array() || offsets.size() != 2) return bad("data_offsets is not [begin, end]");
  const int64_t begin = count_of(offsets[0]), end = count_of(offsets[1]);
  if (begin < 0 || end < begin || end > static_cast<int64_t>(data.size()))
    return bad(fmt::format("data_offsets lie outside the file's {} bytes of data", data.size()));
  if (end - begin != bytes)
    return bad(fmt::format("has {} bytes where its shape needs {}", end - begin, bytes));
  range = {begin, end};
  tensor.bytes.assign(data.substr(static_cast<size_t>(begin), static_cast<size_t>(bytes)));
  return tensor;
}

}  // namespace

int64_t bytes_of(TensorType type) {
  for (const TypeName& t : kTypes)
    if (t.type == type) return t.bytes;
  return 0;
}

std::string encode_safetensors(const SafeTensors& content) {
  Json header = Json::object();
  if (!content.metadata.empty()) header["__metadata__"] = content.metadata;
  int64_t offset = 0;
  for (const StoredTensor& tensor : content.tensors) {
    int64_t bytes = bytes_of(tensor.type);
    for (int64_t size : tensor.shape) bytes *= size;
    MILLSTREAM_CHECK(bytes == static_cast<int64_t>(tensor.bytes.size()), "tensor {} has {} bytes, not {}",
                     tensor.name, tensor.bytes.size(), bytes);
    const auto* type = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](const TypeName& t) { return t.type == tensor.type; });
    header[tensor.name] = {
        {"dtype", type->name}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // the data begins aligned
  uint64_t length = text.size();
  std::string out(reinterpret_cast<const char*>(&length), sizeof length);
  out.reserve(out.size() + text.size() + static_cast<size_t>(offset));
  out += text;
  for (const StoredTensor& tensor : content.tensors) out += tensor.bytes;
  return out;
}

Result<SafeTensors> decode_safetensors(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    return data_error("not a safetensors file: {} bytes are too few", bytes.size());
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > bytes.size() - sizeof length || length > static_cast<uint64_t>(kMaxHeaderBytes))
    return data_error(
        "not a safetensors file, or cut off: its header should be {} bytes long and the file has {}", length,
        bytes.size());
  const std::string_view text = bytes.substr(sizeof length, length),
                         data = bytes.substr(sizeof length + length);
  // Duplicate names would silently replace each other in the parsed object.
  std::set<std::string> names;
  std::string duplicate;
  bool deep = false;
  const auto callback = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !names.insert(parsed.get<std::string>()).second)
      duplicate = parsed.get<std::string>();
    if (depth > 4) deep = true;
    return !deep;
  };
  const Json header = Json::parse(text, callback, /*allow_exceptions=*/false);
  if (header.is_discarded() || deep || !header.is_object())
    return data_error("the safetensors header is not valid JSON");
  if (!duplicate.empty()) return data_error("tensor '{}' stands twice in the header", duplicate);

  SafeTensors content;
  std::vector<std::pair<std::pair<int64_t, int64_t>, StoredTensor>> found;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") {
      if (!entry.is_object()) return data_error("__metadata__ is not an object");
      for (const auto& [key, value] : entry.items()) {
        if (!value.is_string()) return data_error("__metadata__ '{}' is not a string", key);
        content.metadata[key] = value.get<std::string>();
      }
      continue;
    }
    std::pair<int64_t, int64_t> range;
    MILLSTREAM_ASSIGN(auto tensor, decode_entry(name, entry, data, range));
    found.emplace_back(range, std::move(tensor));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t expected = 0;
  for (auto& [range, tensor] : found) {
    if (range.first != expected)
      return data_error("tensor '{}' begins at byte {} of the data where {} was expected", tensor.name,
                        range.first, expected);
    expected = range.second;
    content.tensors.push_back(std::move(tensor));
  }
  if (expected != static_cast<int64_t>(data.size()))
    return data_error("{} bytes of data belong to no tensor", static_cast<int64_t>(data.size()) - expected);
  return content;
}

}  // namespace millstream::train
