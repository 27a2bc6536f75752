#include "exec/parquet_claims.h"

#include <cmath>

#include <arrow/io/file.h>
#include <arrow/io/interfaces.h>
#include <parquet/bloom_filter.h>
#include <parquet/properties.h>
#include <parquet/statistics.h>

#include "exec/parquet_guard.h"
#include "expr/type.h"

namespace millstream::exec {
namespace {

// More than a page index of any column chunk takes; a damaged footer can claim any length.
constexpr int64_t kLargestIndex = int64_t{64} << 20;

// Does the chunk's pair of a least and a greatest value mean what the canonical type means by its values?
bool means_whole_values(const parquet::ColumnDescriptor& descriptor, const arrow::DataType& type) {
  const auto& logical = *descriptor.logical_type();
  if (expr::is_integer_type(type)) {
    if (logical.is_none()) return true;
    return logical.is_int() && static_cast<const parquet::IntLogicalType&>(logical).is_signed() ==
                                   expr::is_signed_integer_type(type);
  }
  if (expr::is_date_type(type)) return logical.is_date();
  if (expr::is_timestamp_type(type)) {
    if (!logical.is_timestamp()) return false;
    const auto stored = static_cast<const parquet::TimestampLogicalType&>(logical).time_unit();
    switch (static_cast<const arrow::TimestampType&>(type).unit()) {
      case arrow::TimeUnit::MILLI:
        return stored == parquet::LogicalType::TimeUnit::MILLIS;
      case arrow::TimeUnit::MICRO:
        return stored == parquet::LogicalType::TimeUnit::MICROS;
      case arrow::TimeUnit::NANO:
        return stored == parquet::LogicalType::TimeUnit::NANOS;
      case arrow::TimeUnit::SECOND:
        return false;
    }
  }
  if (expr::is_decimal_type(type)) {
    return logical.is_decimal() &&
           static_cast<const parquet::DecimalLogicalType&>(logical).scale() == expr::decimal_scale(type);
  }
  return false;
}

// The limits that a least and a greatest value claim, for types whose order everybody agrees on. Not for INT96 and
// strings.
template <class T>
expr::Bounds limits(T low, T high, const parquet::ColumnDescriptor& descriptor, const arrow::DataType& type) {
  constexpr auto kOrigin = expr::BoundOrigin::kClaimed;
  expr::Bounds bounds;
  if constexpr (std::is_floating_point_v<T>) {
    // Statistics skip NaN, which is greater than everything: floating point numbers have no upper limit.
    if (expr::is_floating_type(type) && !std::isnan(low) && !std::isnan(high) && low <= high)
      bounds.real.low = {static_cast<double>(low), kOrigin};
    return bounds;
  } else {
    const auto whole = [&](__int128 least, __int128 greatest) {
      if (least > greatest) return;  // says that it is wrong
      bounds.whole.low = {least, kOrigin};
      bounds.whole.high = {greatest, kOrigin};
    };
    if constexpr (std::is_same_v<T, bool>) {
      if (type.id() == arrow::Type::BOOL) whole(low, high);
    } else if (means_whole_values(descriptor, type)) {
      if (expr::is_integer_type(type) && !expr::is_signed_integer_type(type)) {
        whole(static_cast<std::make_unsigned_t<T>>(low), static_cast<std::make_unsigned_t<T>>(high));
      } else {
        whole(low, high);
      }
    }
    // A value that the type does not have is no claim.
    const expr::Bounds of_type = expr::bounds_of_type(type);
    if (of_type.whole.low && bounds.whole.low &&
        (bounds.whole.low->value < of_type.whole.low->value ||
         bounds.whole.high->value > of_type.whole.high->value))
      bounds = {};
    return bounds;
  }
}

// Calls `with` with the statistics, or the column index, of their type; nothing for types that claim nothing.
template <template <class> class Typed, class Untyped, class F>
void typed(const Untyped& untyped, parquet::Type::type physical, F&& with) {
  switch (physical) {
    case parquet::Type::BOOLEAN:
      return with(static_cast<const Typed<parquet::BooleanType>&>(untyped));
    case parquet::Type::INT32:
      return with(static_cast<const Typed<parquet::Int32Type>&>(untyped));
    case parquet::Type::INT64:
      return with(static_cast<const Typed<parquet::Int64Type>&>(untyped));
    case parquet::Type::FLOAT:
      return with(static_cast<const Typed<parquet::FloatType>&>(untyped));
    case parquet::Type::DOUBLE:
      return with(static_cast<const Typed<parquet::DoubleType>&>(untyped));
    default:
      return;
  }
}

const parquet::ColumnDescriptor& descriptor_of(const ClaimedChunk& chunk) {
  return *chunk.metadata->schema()->Column(chunk.leaf);
}

Result<std::string> read_index(const FileHandle& file, const std::string& path,
                               const std::optional<parquet::IndexLocation>& location) {
  std::string bytes;
  if (!location || location->offset < 0 || location->length <= 0 || location->length > kLargestIndex ||
      location->offset > file.size() - location->length)
    return bytes;
  bytes.resize(static_cast<size_t>(location->length));
  MILLSTREAM_ASSIGN(const int64_t got, file.read_at(path, location->offset, location->length, bytes.data()));
  bytes.resize(static_cast<size_t>(got));
  return bytes;
}

// What a filter would have been given for a value that is stored. Nothing: it cannot be told.
std::optional<std::vector<uint64_t>> hashes_of(const arrow::Scalar& value, const ClaimedChunk& chunk,
                                               const parquet::BloomFilter& filter) {
  const parquet::ColumnDescriptor& descriptor = descriptor_of(chunk);
  const auto zeros = [&](auto number) -> std::optional<std::vector<uint64_t>> {
    if (std::isnan(number)) return std::nullopt;  // of which there are many
    if (number == 0) return std::vector{filter.Hash(decltype(number){0}), filter.Hash(-decltype(number){0})};
    return std::vector{filter.Hash(number)};
  };
  switch (descriptor.physical_type()) {
    case parquet::Type::INT32:
    case parquet::Type::INT64: {
      if (!means_whole_values(descriptor, *chunk.type) || expr::is_decimal_type(*chunk.type))
        return std::nullopt;
      const expr::Bounds bounds = expr::observed_bounds(**arrow::MakeArrayFromScalar(value, 1));
      if (!bounds.whole.low) return std::nullopt;
      if (descriptor.physical_type() == parquet::Type::INT32)
        return std::vector{filter.Hash(static_cast<int32_t>(bounds.whole.low->value))};
      return std::vector{filter.Hash(static_cast<int64_t>(bounds.whole.low->value))};
    }
    case parquet::Type::FLOAT:
      if (chunk.type->id() != arrow::Type::FLOAT) return std::nullopt;
      return zeros(static_cast<const arrow::FloatScalar&>(value).value);
    case parquet::Type::DOUBLE:
      if (chunk.type->id() != arrow::Type::DOUBLE) return std::nullopt;
      return zeros(static_cast<const arrow::DoubleScalar&>(value).value);
    case parquet::Type::BYTE_ARRAY:
      if (chunk.type->id() != arrow::Type::STRING || !descriptor.logical_type()->is_string())
        return std::nullopt;
      return std::vector{filter.Hash(static_cast<const arrow::StringScalar&>(value).view())};
    default:
      return std::nullopt;
  }
}

}  // namespace

bool can_claim(const ClaimedChunk& chunk) {
  const parquet::ColumnDescriptor& descriptor = descriptor_of(chunk);
  // Without a declared order the pair of least and greatest is the legacy one, which writers ordered as they liked.
  return descriptor.max_repetition_level() == 0 &&
         chunk.metadata->schema()->GetColumnRoot(chunk.leaf)->is_primitive() &&
         descriptor.column_order().get_order() == parquet::ColumnOrder::TYPE_DEFINED_ORDER;
}

plan::ColumnClaims statistics_claims(const ClaimedChunk& chunk) {
  plan::ColumnClaims result;
  const auto statistics = chunk.metadata->RowGroup(chunk.row_group)->ColumnChunk(chunk.leaf)->statistics();
  if (!statistics) return result;
  if (statistics->HasNullCount() && statistics->null_count() >= 0 && statistics->null_count() <= chunk.rows)
    result.null_count = statistics->null_count();
  if (statistics->HasMinMax()) {
    typed<parquet::TypedStatistics>(*statistics, statistics->physical_type(), [&](const auto& of_type) {
      result.bounds = limits(of_type.min(), of_type.max(), *statistics->descr(), *chunk.type);
    });
  }
  if (chunk.rows > 0 && result.null_count == chunk.rows && !statistics->HasMinMax())
    result.bounds.none = expr::BoundOrigin::kClaimed;
  return result;
}

Result<std::vector<plan::PageClaims>> page_index_claims(const ClaimedChunk& chunk, const FileHandle& file,
                                                        const std::string& path) {
  std::vector<plan::PageClaims> pages;
  const parquet::ColumnDescriptor& descriptor = descriptor_of(chunk);
  const auto column_chunk = chunk.metadata->RowGroup(chunk.row_group)->ColumnChunk(chunk.leaf);
  MILLSTREAM_ASSIGN(const std::string places, read_index(file, path, column_chunk->GetOffsetIndexLocation()));
  MILLSTREAM_ASSIGN(const std::string values, read_index(file, path, column_chunk->GetColumnIndexLocation()));
  if (places.empty() || values.empty()) return pages;
  const parquet::ReaderProperties properties(GuardedPool::get());
  const auto offsets =
      parquet::OffsetIndex::Make(places.data(), static_cast<int64_t>(places.size()), properties);
  const auto index =
      parquet::ColumnIndex::Make(descriptor, values.data(), static_cast<int64_t>(values.size()), properties);
  const auto& locations = offsets->page_locations();
  const size_t count = locations.size();
  if (count == 0 || index->null_pages().size() != count ||
      (index->has_null_counts() && index->null_counts().size() != count))
    return pages;
  for (size_t p = 0; p < count; ++p) {
    plan::PageClaims& page = pages.emplace_back();
    page.first_row = locations[p].first_row_index;
    const int64_t end = p + 1 < count ? locations[p + 1].first_row_index : chunk.rows;
    // Pages that do not follow one another from the first row to the last say nothing of any row.
    if ((p == 0 && page.first_row != 0) || page.first_row >= end) return std::vector<plan::PageClaims>();
    if (index->null_pages()[p]) {
      page.claims.bounds.none = expr::BoundOrigin::kClaimed;
      page.claims.null_count = end - page.first_row;
    } else if (index->has_null_counts()) {
      page.claims.null_count = index->null_counts()[p];
    }
  }
  typed<parquet::TypedColumnIndex>(*index, descriptor.physical_type(), [&](const auto& of_type) {
    if (of_type.min_values().size() != count || of_type.max_values().size() != count) return;
    for (size_t p = 0; p < count; ++p) {
      if (index->null_pages()[p]) continue;
      pages[p].claims.bounds =
          limits(of_type.min_values()[p], of_type.max_values()[p], descriptor, *chunk.type);
    }
  });
  return pages;
}

Result<bool> bloom_filter_may_hold(const ClaimedChunk& chunk, const std::string& path, int64_t file_bytes,
                                   const std::vector<std::shared_ptr<arrow::Scalar>>& values) {
  const auto column_chunk = chunk.metadata->RowGroup(chunk.row_group)->ColumnChunk(chunk.leaf);
  const auto offset = column_chunk->bloom_filter_offset();
  if (!offset || *offset < 0 || *offset >= file_bytes) return true;
  const auto length = column_chunk->bloom_filter_length();
  if (length && (*length <= 0 || *length > file_bytes - *offset)) return true;
  MILLSTREAM_ASSIGN(std::shared_ptr<arrow::io::RandomAccessFile> file,
                    arrow::io::ReadableFile::Open(path, GuardedPool::get()));
  MILLSTREAM_ASSIGN(const auto stream, arrow::io::RandomAccessFile::GetStream(
                                           file, *offset, length.value_or(file_bytes - *offset)));
  const auto filter = parquet::BlockSplitBloomFilter::Deserialize(
      parquet::ReaderProperties(GuardedPool::get()), stream.get(), length);
  for (const auto& value : values) {
    const auto hashes = hashes_of(*value, chunk, filter);
    if (!hashes) return true;
    for (const uint64_t hash : *hashes)
      if (filter.FindHash(hash)) return true;
  }
  return false;
}

}  // namespace millstream::exec
