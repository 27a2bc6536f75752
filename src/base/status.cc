#include "base/status.h"

#include <cstring>

namespace millstream {
namespace {

constexpr char kDetailId[] = "millstream::ErrorDetail";

const ErrorDetail* detail_of(const Status& status) {
  const auto& detail = status.detail();
  if (!detail || std::strcmp(detail->type_id(), kDetailId) != 0) return nullptr;
  return static_cast<const ErrorDetail*>(detail.get());
}

}  // namespace

const char* ErrorDetail::type_id() const {
  return kDetailId;
}

std::string ErrorDetail::ToString() const {
  return error_category_name(category_);
}

Status make_error(ErrorCategory category, std::string message, std::optional<SourcePosition> position,
                  int rank) {
  return Status(arrow::StatusCode::UnknownError, std::move(message),
                std::make_shared<ErrorDetail>(category, position, rank));
}

ErrorCategory error_category(const Status& status) {
  if (const ErrorDetail* detail = detail_of(status)) return detail->category();
  switch (status.code()) {
    case arrow::StatusCode::IOError:
      return ErrorCategory::kFile;
    case arrow::StatusCode::Invalid:
    case arrow::StatusCode::TypeError:
    case arrow::StatusCode::SerializationError:
    case arrow::StatusCode::CapacityError:
      return ErrorCategory::kData;
    case arrow::StatusCode::OutOfMemory:
    case arrow::StatusCode::NotImplemented:
      return ErrorCategory::kFailed;
    case arrow::StatusCode::Cancelled:
      return ErrorCategory::kInterrupted;
    default:
      return ErrorCategory::kBug;
  }
}

std::optional<SourcePosition> error_position(const Status& status) {
  const ErrorDetail* detail = detail_of(status);
  return detail ? detail->position() : std::nullopt;
}

int exit_code(ErrorCategory category) {
  switch (category) {
    case ErrorCategory::kFailed:
    case ErrorCategory::kDevice:
      return 1;
    case ErrorCategory::kUsage:
    case ErrorCategory::kQuery:
      return 2;
    case ErrorCategory::kData:
    case ErrorCategory::kFile:
      return 3;
    case ErrorCategory::kCommunication:
    case ErrorCategory::kPeerFailed:
      return 4;
    case ErrorCategory::kBug:
      return 70;
    case ErrorCategory::kInterrupted:
      return 130;
  }
  return 70;
}

int exit_code(const Status& status) {
  return status.ok() ? 0 : exit_code(error_category(status));
}

const char* error_category_name(ErrorCategory category) {
  static constexpr const char* kNames[] = {"failed",        "usage",  "query", "data",        "file",
                                           "communication", "device", "bug",   "interrupted", "peer failed"};
  return kNames[static_cast<size_t>(category)];
}

Status with_context(const Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return Status(status.code(), fmt::format("{}: {}", prefix, status.message()), status.detail());
}

Status with_category(const Status& status, ErrorCategory category, std::optional<SourcePosition> position) {
  if (status.ok()) return status;
  const ErrorDetail* detail = detail_of(status);
  return make_error(category, status.message(), position ? position : error_position(status),
                    detail ? detail->rank() : -1);
}

std::string encode_status(const Status& status) {
  std::string out;
  auto put = [&out](auto value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(static_cast<uint8_t>(status.ok()));
  if (status.ok()) return out;
  const auto position = error_position(status);
  const ErrorDetail* detail = detail_of(status);
  put(error_category(status));
  put(static_cast<uint8_t>(position.has_value()));
  put(position.value_or(SourcePosition{}));
  put(static_cast<int32_t>(detail ? detail->rank() : -1));
  return out += status.message();
}

Status decode_status(std::string_view bytes) {
  bool complete = true;
  auto take = [&](auto& value) {
    if (bytes.size() < sizeof value) {
      complete = false;
      return;
    }
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes.remove_prefix(sizeof value);
  };
  uint8_t ok = 0, has_position = 0;
  take(ok);
  if (complete && ok) return Status::OK();
  ErrorCategory category{};
  SourcePosition position;
  int32_t rank = -1;
  take(category);
  take(has_position);
  take(position);
  take(rank);
  if (!complete || category > ErrorCategory::kPeerFailed)
    return bug_error("a status came damaged from another rank");
  return make_error(category, std::string(bytes), has_position ? std::optional(position) : std::nullopt,
                    rank);
}

bool reported_before(const Status& a, int rank_a, const Status& b, int rank_b) {
  auto key = [](const Status& status, int rank) {
    const auto category = error_category(status);
    const auto position = error_position(status);
    // Interruptions lose to real errors, and both win over ranks that merely followed.
    const int weight = category == ErrorCategory::kPeerFailed    ? 2
                       : category == ErrorCategory::kInterrupted ? 1
                                                                 : 0;
    return std::tuple(weight, !position.has_value(), position.value_or(SourcePosition{}), rank);
  };
  return key(a, rank_a) < key(b, rank_b);
}

}  // namespace millstream
