#pragma once
// A table's profile as people and programs read it, and what in it would hurt training.

#include <string>
#include <vector>

#include "loader/profile.h"

namespace millstream::cli {

enum class ProfileWarning : uint8_t {
  kAllNull,       ///< no value at all
  kConstant,      ///< one value
  kId,            ///< about as many values as rows: it names rows
  kCopiesTarget,  ///< correlation 1 or -1 with the target
  kTellsTarget,   ///< each value has one target only
  kMostlyNull,    ///< more than half of the rows
  kNotFinite,     ///< NaN or infinities
  kNotUsable,     ///< of a type that no step takes
};
const char* profile_warning_name(ProfileWarning warning);

struct ColumnWarning {
  int column = 0;
  ProfileWarning warning = ProfileWarning::kConstant;
  std::string text;  ///< "has one value only, 5"
};

/// By column, the worst of a column first.
std::vector<ColumnWarning> profile_warnings(const loader::TableProfile& profile);

/// A value of a column of whole numbers, as SQL writes it: 5, true, 2024-01-31.
std::string whole_text(const arrow::DataType& type, int64_t value);
/// The value of an entry of FrequentValues.
std::string entry_text(const features::ColumnProfile& column, const arrow::DataType& type,
                       const features::FrequentValues::Entry& entry);

std::string profile_text(const loader::TableProfile& profile, double seconds);
std::string profile_json(const loader::TableProfile& profile, double seconds, int64_t peak_rss_bytes);

}  // namespace millstream::cli
