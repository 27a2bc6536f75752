// AT TIME ZONE: what the clocks of a zone show at an instant, and the instant at which they show a time.

#include "expr/calendar.h"
#include "expr/kernel.h"
#include "expr/time_zone.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// kToUtc: the times are local.
template <bool kToUtc>
Status convert(KernelCall& call) {
  const Strided<std::string_view> names(call.arguments[0]);
  const Strided<int64_t> times(call.arguments[1]);
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(call.rows * 8));
  auto* out = reinterpret_cast<int64_t*>(call.out.buffers[1]->mutable_data());
  std::shared_ptr<const TimeZone> zone;
  std::string_view known;
  for (int64_t i = 0; i < call.rows; ++i) {
    out[i] = 0;
    if (!is_set(call.validity, i)) continue;
    if (!zone || names[i] != known) {
      known = names[i];
      auto found = TimeZone::find(known);
      if (!found.ok())
        return make_error(ErrorCategory::kData, found.status().message(), SourcePosition{0, i});
      zone = *found;
    }
    out[i] = times[i];
    if (!is_finite_timestamp(times[i])) continue;
    const int64_t seconds = floor_div(times[i], kMicrosPerSecond);
    const int64_t ahead =
        (kToUtc ? zone->offset_at_local(seconds) : zone->offset_at(seconds)) * kMicrosPerSecond;
    const bool overflow = __builtin_add_overflow(times[i], kToUtc ? -ahead : ahead, &out[i]);
    if (overflow || out[i] < kTimestampMin || out[i] > kTimestampMax)
      return failure_at(call, i, Failure::kOutOfRange);
  }
  return Status::OK();
}

Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return std::nullopt;
  const Expression& zone = *arguments[0];
  const arrow::DataType& time = *arguments[1]->type;
  if (!is_string_type(*zone.type) && !is_null_type(*zone.type)) return std::nullopt;
  if (!is_timestamp_type(time) && !is_date_type(time)) return std::nullopt;
  if (zone.kind == Kind::kLiteral && is_string_type(*zone.type) && zone.literal->is_valid) {
    MILLSTREAM_TRY(TimeZone::find(static_cast<const arrow::StringScalar&>(*zone.literal).view()).status());
  }
  const bool instant = is_timestamp_with_zone_type(time);
  Binding binding;
  binding.parameters = {arrow::utf8(), instant ? timestamp_with_zone_type() : timestamp_type()};
  binding.result = instant ? timestamp_type() : timestamp_with_zone_type();
  binding.kernel = instant ? convert<false> : convert<true>;
  binding.can_fail = true;
  return binding;
}

}  // namespace

MILLSTREAM_FUNCTION(timezone) {
  Function f;
  f.name = "timezone";
  f.doc =
      "Also time AT TIME ZONE zone. Of a timestamp: the instant at which clocks of the zone show it; of an "
      "instant "
      "(TIMESTAMPTZ): what they show then. Zones are the system's (package tzdata), or UTC+3.";
  f.examples = {{"TIMESTAMP '2024-07-01 12:00:00' AT TIME ZONE 'America/New_York'", "2024-07-01 16:00:00+00"},
                {"TIMESTAMPTZ '2024-07-01 12:00:00+00' AT TIME ZONE 'Asia/Kolkata'", "2024-07-01 17:30:00"}};
  f.bind = bind;
  f.forms = {"timezone(VARCHAR, TIMESTAMP)", "timezone(VARCHAR, TIMESTAMP WITH TIME ZONE)"};
  return define(std::move(f));
}

}  // namespace millstream::functions
