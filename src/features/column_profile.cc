#include "features/column_profile.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/bytes.h"
#include "base/check.h"
#include "expr/expression.h"
#include "features/row_packer.h"

namespace millstream::features {
namespace {

constexpr size_t kMostPairs = 4096;
constexpr uint64_t kNullTarget = 0x6E756C6C;

template <class ArrayType>
void copy_whole(const arrow::Array& array, std::vector<int64_t>* out) {
  const auto* values = static_cast<const ArrayType&>(array).raw_values();
  out->assign(values, values + array.length());
}

bool whole_values(const arrow::Array& array, std::vector<int64_t>* out) {
  switch (array.type_id()) {
    case arrow::Type::BOOL: {
      const auto& values = static_cast<const arrow::BooleanArray&>(array);
      out->resize(array.length());
      for (int64_t i = 0; i < array.length(); ++i) (*out)[i] = values.Value(i);
      return true;
    }
    case arrow::Type::INT8:
      copy_whole<arrow::Int8Array>(array, out);
      return true;
    case arrow::Type::INT16:
      copy_whole<arrow::Int16Array>(array, out);
      return true;
    case arrow::Type::INT32:
      copy_whole<arrow::Int32Array>(array, out);
      return true;
    case arrow::Type::INT64:
      copy_whole<arrow::Int64Array>(array, out);
      return true;
    case arrow::Type::UINT8:
      copy_whole<arrow::UInt8Array>(array, out);
      return true;
    case arrow::Type::UINT16:
      copy_whole<arrow::UInt16Array>(array, out);
      return true;
    case arrow::Type::UINT32:
      copy_whole<arrow::UInt32Array>(array, out);
      return true;
    case arrow::Type::DATE32:
      copy_whole<arrow::Date32Array>(array, out);
      return true;
    case arrow::Type::TIMESTAMP:
      copy_whole<arrow::TimestampArray>(array, out);
      return true;
    default:
      return false;
  }
}

}  // namespace

ProfileKind profile_kind(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::BOOL:
    case arrow::Type::INT8:
    case arrow::Type::INT16:
    case arrow::Type::INT32:
    case arrow::Type::INT64:
    case arrow::Type::UINT8:
    case arrow::Type::UINT16:
    case arrow::Type::UINT32:
    case arrow::Type::DATE32:
    case arrow::Type::TIMESTAMP:
      return ProfileKind::kWhole;
    case arrow::Type::UINT64:
    case arrow::Type::FLOAT:
    case arrow::Type::DOUBLE:
    case arrow::Type::DECIMAL128:
      return ProfileKind::kReal;
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return ProfileKind::kText;
    default:
      return ProfileKind::kOther;
  }
}

uint64_t ColumnValues::key(int64_t row) const {
  switch (kind) {
    case ProfileKind::kWhole:
      return static_cast<uint64_t>(whole[row]);
    case ProfileKind::kReal: {
      const double value = real[row];
      return std::isnan(value) ? 0x7FF8000000000000u : std::bit_cast<uint64_t>(value == 0 ? 0.0 : value);
    }
    case ProfileKind::kText:
      return hash64(text(row));
    case ProfileKind::kOther:
      break;
  }
  return 0;
}

std::string_view ColumnValues::text(int64_t row) const {
  return static_cast<const arrow::BinaryArray&>(*texts).GetView(row);
}

Result<ColumnValues> column_values(const arrow::Array& array) {
  ColumnValues values;
  values.kind = profile_kind(*array.type());
  values.rows = array.length();
  values.nulls = array.type_id() == arrow::Type::NA ? array.length() : array.null_count();
  if (values.nulls > 0) {
    values.valid.resize(array.length());
    for (int64_t i = 0; i < array.length(); ++i) values.valid[i] = array.IsValid(i);
  }
  switch (values.kind) {
    case ProfileKind::kWhole:
      MILLSTREAM_CHECK(whole_values(array, &values.whole));
      values.real.assign(values.whole.begin(), values.whole.end());
      break;
    case ProfileKind::kReal:
      values.real.resize(array.length());
      if (array.type_id() == arrow::Type::DECIMAL128) {
        const auto& decimals = static_cast<const arrow::Decimal128Array&>(array);
        const int scale = static_cast<const arrow::Decimal128Type&>(*array.type()).scale();
        for (int64_t i = 0; i < array.length(); ++i) {
          if (array.IsValid(i)) values.real[i] = arrow::Decimal128(decimals.GetValue(i)).ToDouble(scale);
        }
      } else {
        MILLSTREAM_CHECK(copy_as_double(array, nullptr, array.length(), values.real.data()));
      }
      break;
    case ProfileKind::kText:
      values.texts = &array;
      break;
    case ProfileKind::kOther:
      break;
  }
  return values;
}

void CoMoments::merge(const CoMoments& next) {
  if (next.count == 0) return;
  if (count == 0) {
    *this = next;
    return;
  }
  const double a = static_cast<double>(count), b = static_cast<double>(next.count), n = a + b;
  const double dx = next.mean_x - mean_x, dy = next.mean_y - mean_y;
  m2_x += next.m2_x + dx * dx * (a * b / n);
  m2_y += next.m2_y + dy * dy * (a * b / n);
  c += next.c + dx * dy * (a * b / n);
  mean_x += dx * (b / n);
  mean_y += dy * (b / n);
  count += next.count;
}

std::optional<double> CoMoments::correlation() const {
  const double spread = std::sqrt(m2_x) * std::sqrt(m2_y);
  if (count < 3 || !(spread > 0) || !std::isfinite(spread)) return std::nullopt;
  return std::clamp(c / spread, -1.0, 1.0);
}

double ColumnProfile::number_of(uint64_t key) const {
  return kind_ == ProfileKind::kWhole ? static_cast<double>(static_cast<int64_t>(key))
                                      : std::bit_cast<double>(key);
}

void ColumnProfile::begin_sketch() {
  if (sketching_) return;
  sketching_ = true;
  std::vector<double> run;
  for (const auto& [value, count] : weighted()) {
    run.assign(std::min<int64_t>(count, 4096), value);
    for (int64_t left = count; left > 0; left -= 4096)
      quantiles_.add(run.data(), std::min<int64_t>(left, 4096));
  }
}

void ColumnProfile::add_numbers(const ColumnValues& values) {
  std::vector<double> finite;
  finite.reserve(values.rows);
  for (int64_t row = 0; row < values.rows; ++row) {
    if (values.is_null(row)) continue;
    const double value = values.real[row];
    if (!std::isfinite(value)) {
      ++(std::isnan(value) ? nans_ : infinities_);
    } else {
      finite.push_back(value);
    }
  }
  if (!finite.empty()) {
    merge_moments(moments_, moments_of(finite.data(), static_cast<int64_t>(finite.size())));
    const auto [least, greatest] = std::minmax_element(finite.begin(), finite.end());
    min_ = has_range_ ? std::min(min_, *least) : *least;
    max_ = has_range_ ? std::max(max_, *greatest) : *greatest;
    if (kind_ == ProfileKind::kWhole) {
      int64_t low = has_range_ ? whole_min_ : INT64_MAX, high = has_range_ ? whole_max_ : INT64_MIN;
      for (int64_t row = 0; row < values.rows; ++row) {
        if (values.is_null(row)) continue;
        low = std::min(low, values.whole[row]);
        high = std::max(high, values.whole[row]);
      }
      whole_min_ = low;
      whole_max_ = high;
    }
    has_range_ = true;
  }
  // While all values are counted their counts tell the quantiles; before the first one is lost the sketch takes over.
  const bool was_sketching = sketching_;
  if (sketching_) quantiles_.add(finite.data(), static_cast<int64_t>(finite.size()));
  std::vector<double> beyond;
  for (int64_t row = 0; row < values.rows; ++row) {
    if (values.is_null(row)) continue;
    if (!sketching_ && frequent_.size() == 2 * kKeptValues) begin_sketch();
    if (sketching_ && !was_sketching && std::isfinite(values.real[row])) beyond.push_back(values.real[row]);
    const uint64_t key = values.key(row);
    if (frequent_.add(key)) distinct_.add(mix64(key));
  }
  quantiles_.add(beyond.data(), static_cast<int64_t>(beyond.size()));
}

void ColumnProfile::add_texts(const ColumnValues& values) {
  for (int64_t row = 0; row < values.rows; ++row) {
    if (values.is_null(row)) continue;
    const std::string_view text = values.text(row);
    const uint64_t key = hash64(text);
    if (!frequent_.add(key, text)) continue;
    distinct_.add(mix64(key));
    longest_text_ = std::max(longest_text_, static_cast<int64_t>(text.size()));
    if (!has_range_ || text < text_min_) text_min_ = text;
    if (!has_range_ || text > text_max_) text_max_ = text;
    has_range_ = true;
  }
}

void ColumnProfile::pair(uint64_t key, uint64_t target) {
  const auto [place, added] = target_of_.try_emplace(key, target);
  if (place->second == target && target_of_.size() <= kMostPairs) return;
  pairs_fit_ = false;
  target_of_.clear();
}

void ColumnProfile::add_target(const ColumnValues& values, const ColumnValues& target) {
  if (values.kind != ProfileKind::kOther) {
    for (int64_t row = 0; row < values.rows && pairs_fit_; ++row) {
      if (values.is_null(row)) continue;
      pair(values.key(row), target.is_null(row) ? kNullTarget : mix64(target.key(row)));
    }
  }
  if (values.real.empty() || target.real.empty()) return;
  std::vector<double> x, y;
  for (int64_t row = 0; row < values.rows; ++row) {
    if (values.is_null(row) || target.is_null(row)) continue;
    if (!std::isfinite(values.real[row]) || !std::isfinite(target.real[row])) continue;
    x.push_back(values.real[row]);
    y.push_back(target.real[row]);
  }
  const auto count = static_cast<int64_t>(x.size());
  const Moments of_x = moments_of(x.data(), count), of_y = moments_of(y.data(), count);
  double sums[8] = {};
  for (int64_t i = 0; i < count; ++i) sums[i % 8] += (x[i] - of_x.mean) * (y[i] - of_y.mean);
  const double c = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
  with_target_.merge({count, of_x.mean, of_y.mean, of_x.m2, of_y.m2, c});
}

void ColumnProfile::add(const ColumnValues& values, const ColumnValues* target) {
  MILLSTREAM_CHECK(values.kind == kind_);
  rows_ += values.rows;
  nulls_ += values.nulls;
  if (kind_ == ProfileKind::kText) add_texts(values);
  if (kind_ == ProfileKind::kWhole || kind_ == ProfileKind::kReal) add_numbers(values);
  if (target != nullptr) add_target(values, *target);
}

void ColumnProfile::merge(const ColumnProfile& next) {
  MILLSTREAM_CHECK(next.kind_ == kind_);
  rows_ += next.rows_;
  nulls_ += next.nulls_;
  nans_ += next.nans_;
  infinities_ += next.infinities_;
  if (next.has_range_) {
    whole_min_ = has_range_ ? std::min(whole_min_, next.whole_min_) : next.whole_min_;
    whole_max_ = has_range_ ? std::max(whole_max_, next.whole_max_) : next.whole_max_;
    min_ = has_range_ ? std::min(min_, next.min_) : next.min_;
    max_ = has_range_ ? std::max(max_, next.max_) : next.max_;
    text_min_ = has_range_ ? std::min(text_min_, next.text_min_) : next.text_min_;
    text_max_ = has_range_ ? std::max(text_max_, next.text_max_) : next.text_max_;
    has_range_ = true;
  }
  longest_text_ = std::max(longest_text_, next.longest_text_);
  merge_moments(moments_, next.moments_);
  distinct_.merge(next.distinct_);
  const bool numbers = kind_ == ProfileKind::kWhole || kind_ == ProfileKind::kReal;
  if (numbers &&
      (sketching_ || next.sketching_ || frequent_.size() + next.frequent_.size() > 2 * kKeptValues)) {
    begin_sketch();
    ColumnProfile other = next;
    other.begin_sketch();
    quantiles_.merge(other.quantiles_);
  }
  frequent_.merge(next.frequent_);
  with_target_.merge(next.with_target_);
  pairs_fit_ = pairs_fit_ && next.pairs_fit_;
  for (const auto& [key, target] : next.target_of_) {
    if (pairs_fit_) pair(key, target);
  }
  if (!pairs_fit_) target_of_.clear();
}

int64_t ColumnProfile::distinct() const {
  return frequent_.exact() ? frequent_.size() : std::min(distinct_.estimate(), values());
}

std::vector<std::pair<double, int64_t>> ColumnProfile::weighted() const {
  std::vector<std::pair<double, int64_t>> result;
  for (const FrequentValues::Entry& entry : frequent_.by_count()) {
    const double value = number_of(entry.key);
    if (std::isfinite(value)) result.push_back({value, entry.count});
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::vector<double> ColumnProfile::quantiles(const std::vector<double>& fractions) const {
  if (moments_.count == 0) return {};
  return sketching_ ? quantiles_.quantiles(fractions) : weighted_quantiles(weighted(), fractions);
}

double ColumnProfile::rank_error() const {
  if (!sketching_ || quantiles_.count() == 0) return 0;
  return static_cast<double>(quantiles_.rank_error()) / static_cast<double>(quantiles_.count());
}

std::vector<int64_t> ColumnProfile::histogram(int bins) const {
  std::vector<int64_t> counts(bins, 0);
  if (moments_.count == 0 || !std::isfinite(max_ - min_)) return {};
  const double width = (max_ - min_) / bins;
  for (const auto& [value, count] : sketching_ ? quantiles_.weighted() : weighted()) {
    const double place = width > 0 ? (value - min_) / width : 0;
    counts[std::clamp(static_cast<int>(place), 0, bins - 1)] += count;
  }
  return counts;
}

bool ColumnProfile::determines_target() const {
  return pairs_fit_ && target_of_.size() >= 2 && static_cast<int64_t>(target_of_.size()) * 10 <= values();
}

std::string ColumnProfile::encode() const {
  ByteWriter out;
  for (const int64_t number :
       {static_cast<int64_t>(kind_), rows_, nulls_, nans_, infinities_, whole_min_, whole_max_, longest_text_,
        int64_t{has_range_}, int64_t{sketching_}, int64_t{pairs_fit_}}) {
    out.value(number);
  }
  out.value(moments_);
  out.value(min_);
  out.value(max_);
  out.value(with_target_);
  for (const std::string& text :
       {text_min_, text_max_, distinct_.encode(), frequent_.encode(), quantiles_.encode()}) {
    out.text(text);
  }
  out.value<uint64_t>(target_of_.size());
  for (const auto& [key, target] : target_of_) {
    out.value(key);
    out.value(target);
  }
  return out.take();
}

Result<ColumnProfile> ColumnProfile::decode(std::string_view bytes) {
  ColumnProfile profile;
  ByteReader in(bytes);
  const auto kind = in.value<int64_t>();
  for (int64_t* number : {&profile.rows_, &profile.nulls_, &profile.nans_, &profile.infinities_,
                          &profile.whole_min_, &profile.whole_max_, &profile.longest_text_})
    *number = in.value<int64_t>();
  for (bool* flag : {&profile.has_range_, &profile.sketching_, &profile.pairs_fit_})
    *flag = in.value<int64_t>() != 0;
  profile.moments_ = in.value<decltype(profile.moments_)>();
  profile.min_ = in.value<decltype(profile.min_)>();
  profile.max_ = in.value<decltype(profile.max_)>();
  profile.with_target_ = in.value<decltype(profile.with_target_)>();
  profile.text_min_ = in.text();
  profile.text_max_ = in.text();
  const std::string_view distinct = in.text(), frequent = in.text(), quantiles = in.text();
  const auto targets = in.value<uint64_t>();
  for (uint64_t i = 0; i < targets && in.ok(); ++i) {
    const auto key = in.value<uint64_t>();
    profile.target_of_[key] = in.value<uint64_t>();
  }
  if (!in.done() || kind < 0 || kind > static_cast<int64_t>(ProfileKind::kOther))
    return file_error("a column's profile is not readable");
  profile.kind_ = static_cast<ProfileKind>(kind);
  MILLSTREAM_ASSIGN(profile.distinct_, DistinctSketch::decode(distinct));
  MILLSTREAM_ASSIGN(profile.frequent_, FrequentValues::decode(frequent));
  MILLSTREAM_ASSIGN(profile.quantiles_, QuantileSketch::decode(quantiles));
  return profile;
}

}  // namespace millstream::features
