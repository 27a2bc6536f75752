// Finds and opens libmillstream_jit.so.

#include "jit/compiler.h"

#include <filesystem>

#include <dlfcn.h>

#include "base/check.h"

namespace millstream::jit {
namespace {

Result<const Compiler*> open_beside_millstream() {
#ifndef MILLSTREAM_JIT
  return failed_error("this build has no code generator (MILLSTREAM_JIT=OFF)");
#else
  // Any symbol of libmillstream.so tells where that library lies.
  Dl_info info{};
  std::filesystem::path folder;
  if (dladdr(reinterpret_cast<const void*>(&check_failed), &info) != 0 && info.dli_fname != nullptr) {
    std::error_code ignored;
    folder = std::filesystem::canonical(info.dli_fname, ignored).parent_path();
  }
  const std::string path = (folder / "libmillstream_jit.so").string();
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return failed_error("the code generator {} can't be opened: {}", path, why ? why : "no reason given");
  }
  auto* entry = reinterpret_cast<const Compiler* (*)()>(dlsym(handle, "millstream_jit_compiler"));
  if (entry == nullptr)
    return failed_error("{} is not Millstream's code generator: it has no entry point", path);
  return entry();
#endif
}

}  // namespace

Result<const Compiler*> open_compiler() {
  static const Result<const Compiler*> compiler = open_beside_millstream();
  return compiler;
}

}  // namespace millstream::jit
