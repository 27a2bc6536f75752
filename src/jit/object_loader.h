#pragma once
// Loads the object files that the code generator writes (ELF, x86-64, position independent), without LLVM: what
// comes from the cache needs no more than this.

#include <memory>
#include <string_view>

#include "base/status.h"

namespace millstream::jit {

class LoadedObject {
 public:
  /// Maps code and constants and binds them to each other and to functions of this process (the C library's,
  /// libmillstream's). An error where the file is not such an object, or names what nobody has.
  static Result<std::shared_ptr<const LoadedObject>> load(std::string_view object);
  ~LoadedObject();
  LoadedObject(const LoadedObject&) = delete;
  LoadedObject& operator=(const LoadedObject&) = delete;

  /// The address of a global function of the object; null: it has none of that name.
  const void* find(std::string_view name) const;

 private:
  struct Symbols;
  LoadedObject() = default;
  void* memory_ = nullptr;
  size_t bytes_ = 0;
  std::shared_ptr<const Symbols> symbols_;
};

}  // namespace millstream::jit
