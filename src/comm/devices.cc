#include "comm/devices.h"

#include <cstdlib>
#include <cstring>
#include <optional>

#include <dlfcn.h>

#include "base/status.h"

namespace millstream::comm {
namespace {

class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  template <class F>
  bool find(const char* symbol, F*& function) const {
    function = handle_ ? reinterpret_cast<F*>(dlsym(handle_, symbol)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_;
};

// NVML's and the CUDA driver's C interfaces, as far as used here; their headers are not needed.
std::optional<std::vector<Device>> devices_by_nvml() {
  Library nvml("libnvidia-ml.so.1");
  int (*init)();
  int (*shutdown)();
  int (*get_count)(unsigned*);
  int (*get_handle)(unsigned, void**);
  int (*get_uuid)(void*, char*, unsigned);
  int (*get_name)(void*, char*, unsigned);
  if (!nvml.find("nvmlInit_v2", init) || !nvml.find("nvmlShutdown", shutdown) ||
      !nvml.find("nvmlDeviceGetCount_v2", get_count) ||
      !nvml.find("nvmlDeviceGetHandleByIndex_v2", get_handle) || !nvml.find("nvmlDeviceGetUUID", get_uuid) ||
      !nvml.find("nvmlDeviceGetName", get_name) || init() != 0) {
    return std::nullopt;
  }
  std::vector<Device> devices;
  unsigned count = 0;
  if (get_count(&count) != 0) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    void* handle = nullptr;
    char uuid[128] = {}, name[128] = {};
    if (get_handle(i, &handle) != 0 || get_uuid(handle, uuid, sizeof uuid) != 0) continue;
    if (get_name(handle, name, sizeof name) != 0) name[0] = '\0';
    devices.push_back({uuid, static_cast<int>(i), name});
  }
  shutdown();
  return devices;
}

std::optional<std::vector<Device>> devices_by_cuda() {
  Library cuda("libcuda.so.1");
  int (*init)(unsigned);
  int (*get_count)(int*);
  int (*get_uuid)(unsigned char*, int);
  int (*get_name)(char*, int, int);
  if (!cuda.find("cuInit", init) || !cuda.find("cuDeviceGetCount", get_count) ||
      !cuda.find("cuDeviceGetName", get_name) ||
      !(cuda.find("cuDeviceGetUuid_v2", get_uuid) || cuda.find("cuDeviceGetUuid", get_uuid)) ||
      init(0) != 0) {
    return std::nullopt;
  }
  std::vector<Device> devices;
  int count = 0;
  if (get_count(&count) != 0) count = 0;
  for (int i = 0; i < count; ++i) {
    unsigned char bytes[16] = {};
    char name[128] = {};
    if (get_uuid(bytes, i) != 0) continue;
    if (get_name(name, sizeof name, i) != 0) name[0] = '\0';
    std::string uuid = "GPU-";
    for (int b = 0; b < 16; ++b) {
      if (b == 4 || b == 6 || b == 8 || b == 10) uuid += '-';
      uuid += fmt::format("{:02x}", bytes[b]);
    }
    devices.push_back({uuid, i, name});
  }
  return devices;
}

}  // namespace

std::vector<Device> visible_devices(const std::vector<Device>& all, const char* value) {
  if (!value) return all;
  std::vector<Device> visible;
  const std::string list = value;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    std::string item = list.substr(at, end - at);
    at = end + 1;
    while (!item.empty() && item.front() == ' ') item.erase(0, 1);
    while (!item.empty() && item.back() == ' ') item.pop_back();
    const Device* found = nullptr;
    Device mig;
    char* number_end = nullptr;
    const long number = std::strtol(item.c_str(), &number_end, 10);
    if (!item.empty() && *number_end == '\0') {
      for (const Device& device : all) {
        if (device.index == number) found = &device;
      }
    } else if (item.rfind("MIG-", 0) == 0) {
      mig = {item, 0, "MIG"};  // the driver does not list these among the devices
      found = &mig;
    } else if (item.rfind("GPU-", 0) == 0) {
      for (const Device& device : all) {
        if (device.uuid.rfind(item, 0) == 0) found = &device;
      }
    }
    if (!found) break;
    for (const Device& device : visible) {
      if (device.uuid == found->uuid) return {};  // CUDA takes a repeated device for an empty list
    }
    visible.push_back(*found);
    visible.back().index = static_cast<int>(visible.size()) - 1;
  }
  return visible;
}

std::vector<Device> local_devices() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (auto devices = devices_by_nvml()) {
    // NVML counts by bus, CUDA by speed unless told otherwise; the two must mean the same by a number.
    if (!devices->empty()) setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", /*overwrite=*/0);
    return visible_devices(*devices, visible);
  }
  // The CUDA driver applies CUDA_VISIBLE_DEVICES by itself.
  if (auto devices = devices_by_cuda()) return *devices;
  return {};
}

}  // namespace millstream::comm
