#pragma once
// The edge where torch's exceptions become statuses.

#include <string_view>

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include "base/status.h"

namespace millstream::train {

/// Runs `body`, which returns a Status or a Result; an exception becomes a failed error "<doing>: <its
/// text>".
template <class Body>
auto catch_torch(std::string_view doing, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return failed_error("{}: {}", doing, error.what_without_backtrace());
  } catch (const std::exception& error) {
    return failed_error("{}: {}", doing, error.what());
  }
}

}  // namespace millstream::train
