// Finds and opens libmillstream_train.so. Compiled into the static library millstream_train_opener, so that a
// program links it without linking torch.
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include <dlfcn.h>

#include "base/check.h"
#include "train/training.h"

namespace millstream::train {
namespace {

Result<const TrainLibrary*> open_beside_millstream() {
  // Any symbol of libmillstream.so tells where that library lies.
  Dl_info info{};
  std::filesystem::path folder;
  if (dladdr(reinterpret_cast<const void*>(&check_failed), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code ignored;
    folder = std::filesystem::canonical(info.dli_fname, ignored).parent_path();
  }
  // torch's threads would spin for one another on cores that feeding needs. Read when its OpenMP is loaded.
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  const std::string path = (folder / "libmillstream_train.so").string();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return failed_error("training needs the library {}, which can't be opened: {}", path,
                        why ? why : "no reason given");
  }
  auto* entry = reinterpret_cast<const TrainLibrary* (*)()>(dlsym(handle, "millstream_train_library"));
  if (entry == nullptr)
    return failed_error("{} is not Millstream's training library: it has no entry point", path);
  return entry();
}

}  // namespace

Result<const TrainLibrary*> open_train_library() {
  static const Result<const TrainLibrary*> library = open_beside_millstream();
  return library;
}

}  // namespace millstream::train
