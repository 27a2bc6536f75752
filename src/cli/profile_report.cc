#include "cli/profile_report.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "cli/json_output.h"
#include "cli/progress_display.h"
#include "exec/value_text.h"
#include "expr/type.h"

namespace millstream::cli {
namespace {

using features::ColumnProfile;
using features::ProfileKind;

constexpr int kBins = 16;
constexpr size_t kTopValues = 5;
const std::vector<double>& shown_fractions() {
  static const std::vector<double> fractions = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};
  return fractions;
}

bool is_time(const arrow::DataType& type) {
  return type.id() == arrow::Type::DATE32 || type.id() == arrow::Type::TIMESTAMP;
}
bool is_number(const ColumnProfile& column) {
  return column.kind() == ProfileKind::kWhole || column.kind() == ProfileKind::kReal;
}

// A mean or quantile of the column's numbers: of times a time.
std::string number_text(const arrow::DataType& type, double value) {
  return is_time(type) ? whole_text(type, std::llround(value)) : fmt::format("{:.6g}", value);
}
std::string number_json(const arrow::DataType& type, double value) {
  return is_time(type) ? json_string(whole_text(type, std::llround(value))) : json_number(value);
}

std::string shortened(std::string_view text) {
  std::string out;
  size_t characters = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 && ++characters > 40) return out + "…";
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  }
  return out;
}

std::string percent(int64_t part, int64_t whole) {
  const double share = whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  return part > 0 && share < 0.1 ? "below 0.1 %" : fmt::format("{:.1f} %", share);
}

double sample_deviation(const features::Moments& moments) {
  return std::sqrt(moments.m2 / static_cast<double>(moments.count - 1));
}

std::string bars(const std::vector<int64_t>& counts) {
  static const char* const kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const int64_t most = std::max<int64_t>(*std::max_element(counts.begin(), counts.end()), 1);
  std::string text;
  for (const int64_t count : counts) {
    const double part = static_cast<double>(count) / static_cast<double>(most);
    text += count == 0 ? " " : kBlocks[std::clamp(static_cast<int>(part * 8), 0, 7)];
  }
  return text;
}

std::string min_text(const ColumnProfile& column, const arrow::DataType& type, bool greatest) {
  switch (column.kind()) {
    case ProfileKind::kWhole:
      return whole_text(type, greatest ? column.whole_max() : column.whole_min());
    case ProfileKind::kReal:
      return fmt::format("{}", greatest ? column.max() : column.min());
    default:
      return greatest ? column.text_max() : column.text_min();
  }
}

}  // namespace

const char* profile_warning_name(ProfileWarning warning) {
  switch (warning) {
    case ProfileWarning::kAllNull:
      return "all_null";
    case ProfileWarning::kConstant:
      return "constant";
    case ProfileWarning::kId:
      return "id";
    case ProfileWarning::kCopiesTarget:
      return "copies_target";
    case ProfileWarning::kTellsTarget:
      return "tells_target";
    case ProfileWarning::kMostlyNull:
      return "mostly_null";
    case ProfileWarning::kNotFinite:
      return "not_finite";
    case ProfileWarning::kNotUsable:
      return "not_usable";
  }
  return "";
}

std::string whole_text(const arrow::DataType& type, int64_t value) {
  if (type.id() == arrow::Type::BOOL) return value != 0 ? "true" : "false";
  if (!is_time(type)) return fmt::format("{}", value);
  std::shared_ptr<arrow::Array> array;
  if (type.id() == arrow::Type::DATE32) {
    arrow::Date32Builder builder;
    if (!builder.Append(static_cast<int32_t>(value)).ok() || !builder.Finish(&array).ok()) return "";
  } else {
    const auto& timestamp = static_cast<const arrow::TimestampType&>(type);
    arrow::TimestampBuilder builder(arrow::timestamp(timestamp.unit(), timestamp.timezone()),
                                    arrow::default_memory_pool());
    if (!builder.Append(value).ok() || !builder.Finish(&array).ok()) return "";
  }
  std::string text;
  exec::append_value_text(text, *array, 0);
  return text;
}

std::string entry_text(const ColumnProfile& column, const arrow::DataType& type,
                       const features::FrequentValues::Entry& entry) {
  if (column.kind() == ProfileKind::kText) return entry.text;
  if (column.kind() == ProfileKind::kReal) return fmt::format("{}", std::bit_cast<double>(entry.key));
  return whole_text(type, static_cast<int64_t>(entry.key));
}

std::vector<ColumnWarning> profile_warnings(const loader::TableProfile& profile) {
  std::vector<ColumnWarning> warnings;
  const int num_columns = static_cast<int>(profile.columns.size());
  for (int i = 0; i < num_columns; ++i) {
    const ColumnProfile& column = profile.columns[i];
    const arrow::DataType& type = *profile.schema->field(i)->type();
    const auto warn = [&](ProfileWarning warning, std::string text) {
      warnings.push_back({i, warning, std::move(text)});
    };
    if (column.rows() == 0) continue;
    if (column.values() == 0) {
      warn(ProfileWarning::kAllNull, "has nothing but nulls");
      continue;
    }
    if (column.kind() == ProfileKind::kOther) {
      warn(ProfileWarning::kNotUsable,
           fmt::format("is {}, of which no step makes a number", expr::sql_type_name(type)));
      continue;
    }
    const int64_t distinct = column.distinct();
    if (distinct == 1) {
      const std::string value = shortened(entry_text(column, type, column.frequent().by_count()[0]));
      warn(ProfileWarning::kConstant, column.nulls() == 0
                                          ? fmt::format("has one value only, {}", value)
                                          : fmt::format("has one value only, {}, and nulls", value));
    }
    const auto values = static_cast<double>(column.values());
    if (column.values() >= 100 && static_cast<double>(distinct) >= 0.95 * values) {
      const bool whole = column.kind() == ProfileKind::kWhole && !is_time(type);
      const double range = static_cast<double>(column.whole_max()) - static_cast<double>(column.whole_min());
      if (column.kind() == ProfileKind::kText || (whole && (range < 2 * values || range > 1e12)))
        warn(ProfileWarning::kId, "has another value in every row, or nearly so: it names rows");
    }
    if (profile.target >= 0 && i != profile.target) {
      const std::string& target = profile.schema->field(profile.target)->name();
      const auto correlation = column.correlation();
      if (correlation && std::abs(*correlation) > 1 - 1e-9) {
        warn(ProfileWarning::kCopiesTarget,
             fmt::format("has correlation {} with {}: it gives the answer away", *correlation > 0 ? 1 : -1,
                         target));
      } else if (column.determines_target() && profile.columns[profile.target].distinct() > 1) {
        warn(ProfileWarning::kTellsTarget,
             fmt::format("has one {} for each of its values: it gives the answer away", target));
      }
    }
    if (column.nulls() * 2 > column.rows())
      warn(ProfileWarning::kMostlyNull,
           fmt::format("is null in {} of the rows", percent(column.nulls(), column.rows())));
    if (column.nans() + column.infinities() > 0)
      warn(ProfileWarning::kNotFinite,
           fmt::format("is NaN in {} and infinite in {} rows", format_count(column.nans()),
                       format_count(column.infinities())));
  }
  return warnings;
}

std::string profile_text(const loader::TableProfile& profile, double seconds) {
  const auto warnings = profile_warnings(profile);
  std::string out = fmt::format("{} rows, {} columns, in {:.2f} s\n", format_count(profile.rows),
                                profile.columns.size(), seconds);
  for (size_t i = 0; i < profile.columns.size(); ++i) {
    const ColumnProfile& column = profile.columns[i];
    const arrow::Field& field = *profile.schema->field(static_cast<int>(i));
    const arrow::DataType& type = *field.type();
    out += fmt::format("\n{}  {}{}\n", shortened(field.name()), expr::sql_type_name(type),
                       static_cast<int>(i) == profile.target ? ", the target" : "");
    std::string line = column.nulls() == 0 ? "no nulls"
                                           : fmt::format("{} nulls ({})", format_count(column.nulls()),
                                                         percent(column.nulls(), column.rows()));
    if (column.kind() != ProfileKind::kOther) {
      line += fmt::format(", {}{} different value{}", column.distinct_exact() ? "" : "about ",
                          format_count(column.distinct()), column.distinct() == 1 ? "" : "s");
    }
    if (const auto correlation = column.correlation(); correlation && static_cast<int>(i) != profile.target)
      line += fmt::format(", correlation {:.3f} with the target", *correlation);
    out += "  " + line + "\n";
    if (column.has_range() && is_number(column) && type.id() != arrow::Type::BOOL) {
      const auto q = column.quantiles(shown_fractions());
      out += fmt::format("  min {}   5 % {}   25 % {}   median {}   75 % {}   95 % {}   max {}\n",
                         min_text(column, type, false), number_text(type, q[1]), number_text(type, q[2]),
                         number_text(type, q[3]), number_text(type, q[4]), number_text(type, q[5]),
                         min_text(column, type, true));
      out += "  mean " + number_text(type, column.moments().mean);
      if (column.moments().count > 1 && !is_time(type))
        out += fmt::format("   std {:.6g}", sample_deviation(column.moments()));
      const auto counts = column.histogram(kBins);
      if (!counts.empty() && column.distinct() > 1) out += "   |" + bars(counts) + "|";
      out += "\n";
    }
    if (column.has_range() && column.kind() == ProfileKind::kText)
      out += fmt::format("  from {} to {}, longest {} bytes\n", shortened(column.text_min()),
                         shortened(column.text_max()), column.longest_text());
    const auto top = column.frequent().by_count();
    std::string most;
    for (size_t k = 0; k < std::min(top.size(), kTopValues); ++k) {
      if (top[k].count < 2) break;
      most += fmt::format("{}{} ({})", most.empty() ? "" : ", ", shortened(entry_text(column, type, top[k])),
                          percent(top[k].count, column.rows()));
    }
    if (!most.empty()) out += "  most often " + most + "\n";
    for (const ColumnWarning& warning : warnings)
      if (warning.column == static_cast<int>(i)) out += "  ! " + warning.text + "\n";
  }
  if (!warnings.empty()) {
    out += "\nWhat would hurt training:\n";
    for (const ColumnWarning& warning : warnings)
      out += fmt::format("  {} {}\n", shortened(profile.schema->field(warning.column)->name()), warning.text);
  }
  return out;
}

std::string profile_json(const loader::TableProfile& profile, double seconds, int64_t peak_rss_bytes) {
  const auto warnings = profile_warnings(profile);
  JsonArray columns;
  for (size_t i = 0; i < profile.columns.size(); ++i) {
    const ColumnProfile& column = profile.columns[i];
    const arrow::Field& field = *profile.schema->field(static_cast<int>(i));
    const arrow::DataType& type = *field.type();
    JsonObject object;
    object.add("name", field.name()).add("type", expr::sql_type_name(type));
    object.add("rows", column.rows()).add("nulls", column.nulls());
    if (column.kind() == ProfileKind::kReal)
      object.add("nans", column.nans()).add("infinities", column.infinities());
    if (column.kind() != ProfileKind::kOther)
      object.add("distinct", column.distinct()).add("distinct_exact", column.distinct_exact());
    if (column.has_range()) {
      for (const bool greatest : {false, true}) {
        const std::string text = min_text(column, type, greatest);
        const bool plain = column.kind() == ProfileKind::kWhole && !is_time(type);
        object.add_json(greatest ? "max" : "min", column.kind() == ProfileKind::kReal
                                                      ? json_number(greatest ? column.max() : column.min())
                                                  : plain ? text
                                                          : json_string(text));
      }
    }
    if (column.has_range() && column.kind() == ProfileKind::kText)
      object.add("longest", column.longest_text());
    if (column.has_range() && is_number(column)) {
      object.add_json("mean", number_json(type, column.moments().mean));
      if (column.moments().count > 1 && !is_time(type)) object.add("std", sample_deviation(column.moments()));
      const auto values = column.quantiles(shown_fractions());
      JsonObject quantiles;
      for (size_t k = 0; k < values.size(); ++k)
        quantiles.add_json(fmt::format("{}", shown_fractions()[k]), number_json(type, values[k]));
      object.add_json("quantiles", quantiles.str()).add("rank_error", column.rank_error());
      const auto counts = column.histogram(kBins);
      if (!counts.empty()) {
        JsonArray edges, heights;
        for (int k = 0; k <= kBins; ++k) {
          const double edge =
              k == kBins ? column.max() : column.min() + (column.max() - column.min()) / kBins * k;
          edges.add_json(number_json(type, edge));
        }
        for (const int64_t count : counts) heights.add_json(std::to_string(count));
        object.add_json("histogram",
                        JsonObject().add_json("edges", edges.str()).add_json("counts", heights.str()).str());
      }
    }
    if (column.kind() != ProfileKind::kOther) {
      JsonArray top;
      const auto entries = column.frequent().by_count();
      for (size_t k = 0; k < std::min(entries.size(), kTopValues); ++k) {
        const std::string text = entry_text(column, type, entries[k]);
        const bool plain = column.kind() == ProfileKind::kWhole && !is_time(type);
        JsonObject value;
        value.add_json("value", column.kind() == ProfileKind::kReal
                                    ? json_number(std::bit_cast<double>(entries[k].key))
                                : plain ? text
                                        : json_string(text));
        top.add_json(value.add("count", entries[k].count).str());
      }
      object.add_json("top", top.str()).add("top_counts_low_by_at_most", column.frequent().lost());
    }
    if (const auto correlation = column.correlation(); correlation && static_cast<int>(i) != profile.target)
      object.add("target_correlation", *correlation);
    JsonArray here;
    for (const ColumnWarning& warning : warnings) {
      if (warning.column != static_cast<int>(i)) continue;
      here.add_json(JsonObject()
                        .add("kind", profile_warning_name(warning.warning))
                        .add("text", field.name() + " " + warning.text)
                        .str());
    }
    columns.add_json(object.add_json("warnings", here.str()).str());
  }
  JsonObject object;
  object.add("rows", profile.rows).add("seconds", seconds).add("peak_rss_bytes", peak_rss_bytes);
  if (profile.target >= 0) object.add("target", profile.schema->field(profile.target)->name());
  return object.add_json("columns", columns.str()).str();
}

}  // namespace millstream::cli
