#pragma once
// Errors. There is one status type, arrow::Status, and one carrier of a value or an error, arrow::Result.
// What an error *is* (whose fault, which exit code, where in the data) travels in its detail.
//
// The text of an error says what was wrong, where (file, row group, column, row; or line and column of the
// query) and what would have been right. It is one paragraph, without a trailing full stop.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <arrow/result.h>
#include <arrow/status.h>
#include <fmt/format.h>

namespace millstream {

using arrow::Result;
using arrow::Status;

/// Whose fault an error is. It fixes the exit code of the program.
enum class ErrorCategory : uint8_t {
  kFailed,         ///< 1: the work failed: training diverged, no rows
  kUsage,          ///< 2: command line or recipe
  kQuery,          ///< 2: the text of a query
  kData,           ///< 3: a value or a file's content
  kFile,           ///< 3: a file that can't be found, opened, read or written
  kCommunication,  ///< 4: a lost rank, a deadline
  kDevice,         ///< 1: a GPU
  kBug,            ///< 70: ours
  kInterrupted,    ///< 130: a signal
  kPeerFailed,     ///< this rank stopped because another one failed; never the reported error of a job
};

/// Where in the source an error stands, for choosing among errors of several ranks: the lowest wins.
struct SourcePosition {
  int64_t file = 0;  ///< index of the file in the scan's order
  int64_t row = 0;   ///< row in that file
  auto operator<=>(const SourcePosition&) const = default;
};

class ErrorDetail : public arrow::StatusDetail {
 public:
  explicit ErrorDetail(ErrorCategory category, std::optional<SourcePosition> position = {}, int rank = -1)
      : category_(category), position_(position), rank_(rank) {}
  const char* type_id() const override;
  std::string ToString() const override;
  ErrorCategory category() const { return category_; }
  const std::optional<SourcePosition>& position() const { return position_; }
  /// The rank that met the error, -1 where that says nothing.
  int rank() const { return rank_; }

 private:
  ErrorCategory category_;
  std::optional<SourcePosition> position_;
  int rank_;
};

/// An error of `category` with the given text, and optionally the place in the data.
[[nodiscard]] Status make_error(ErrorCategory category, std::string message,
                                std::optional<SourcePosition> position = {}, int rank = -1);

template <class... A>
[[nodiscard]] Status make_error_f(ErrorCategory category, fmt::format_string<A...> format, A&&... args) {
  return make_error(category, fmt::format(format, std::forward<A>(args)...));
}
#define MILLSTREAM_ERROR_MAKER(name, kind)                                  \
  template <class... A>                                                     \
  [[nodiscard]] Status name(fmt::format_string<A...> format, A&&... args) { \
    return make_error(kind, fmt::format(format, std::forward<A>(args)...)); \
  }
MILLSTREAM_ERROR_MAKER(failed_error, ErrorCategory::kFailed)
MILLSTREAM_ERROR_MAKER(usage_error, ErrorCategory::kUsage)
MILLSTREAM_ERROR_MAKER(query_error, ErrorCategory::kQuery)
MILLSTREAM_ERROR_MAKER(data_error, ErrorCategory::kData)
MILLSTREAM_ERROR_MAKER(file_error, ErrorCategory::kFile)
MILLSTREAM_ERROR_MAKER(communication_error, ErrorCategory::kCommunication)
MILLSTREAM_ERROR_MAKER(device_error, ErrorCategory::kDevice)
MILLSTREAM_ERROR_MAKER(bug_error, ErrorCategory::kBug)
#undef MILLSTREAM_ERROR_MAKER

/// The category of a failed status; foreign statuses (Arrow's own) map by their code: IOError is kFile,
/// OutOfMemory kFailed, Invalid and the like kData.
ErrorCategory error_category(const Status& status);
std::optional<SourcePosition> error_position(const Status& status);
/// 0 for OK, else the program's exit code for the category.
int exit_code(const Status& status);
int exit_code(ErrorCategory category);
const char* error_category_name(ErrorCategory category);

/// The same error with `prefix` before its text ("reading trips/a.parquet: …"); the detail is kept.
[[nodiscard]] Status with_context(const Status& status, std::string_view prefix);
/// The same error, its category and position replaced.
[[nodiscard]] Status with_category(const Status& status, ErrorCategory category,
                                   std::optional<SourcePosition> position = {});

/// A status as bytes and back, for agreement over ranks. Round-trips text, category, position and rank.
std::string encode_status(const Status& status);
Status decode_status(std::string_view bytes);

/// True where `a` is to be reported rather than `b` when both failed: real errors before kPeerFailed, lower
/// position before higher or none, then lower rank.
bool reported_before(const Status& a, int rank_a, const Status& b, int rank_b);

}  // namespace millstream

#define MILLSTREAM_CONCAT_(a, b) a##b
#define MILLSTREAM_CONCAT(a, b) MILLSTREAM_CONCAT_(a, b)
/// Returns from the enclosing function when the Status (or Result) is an error.
#define MILLSTREAM_TRY(expr)                                      \
  do {                                                            \
    ::arrow::Status millstream_status_ = ::arrow::ToStatus(expr); \
    if (!millstream_status_.ok()) [[unlikely]]                    \
      return millstream_status_;                                  \
  } while (false)
#define MILLSTREAM_ASSIGN_IMPL_(result, lhs, expr) \
  auto&& result = (expr);                          \
  if (!result.ok()) [[unlikely]]                   \
    return result.status();                        \
  lhs = std::move(result).ValueUnsafe()
/// MILLSTREAM_ASSIGN(auto x, f()): x is the value of the Result, or the error is returned.
#define MILLSTREAM_ASSIGN(lhs, expr) \
  MILLSTREAM_ASSIGN_IMPL_(MILLSTREAM_CONCAT(millstream_result_, __COUNTER__), lhs, expr)
