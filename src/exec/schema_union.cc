#include "exec/schema_union.h"

#include <algorithm>
#include <cctype>
#include <map>

#include <arrow/compute/cast.h>
#include <arrow/compute/initialize.h>
#include <fmt/ranges.h>

#include "expr/type.h"

namespace millstream::exec {
namespace {

using arrow::Type;
using expr::sql_type_name;
using expr::TypePtr;

std::string lower(const std::string& name) {
  std::string out = name;
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

int integer_bits(const arrow::DataType& type) {
  return arrow::internal::checked_cast<const arrow::FixedWidthType&>(type).bit_width();
}

TypePtr signed_integer(int bits) {
  switch (bits) {
    case 8:
      return arrow::int8();
    case 16:
      return arrow::int16();
    case 32:
      return arrow::int32();
    default:
      return arrow::int64();
  }
}

TypePtr common_integer(const TypePtr& a, const TypePtr& b) {
  const int bits_a = integer_bits(*a), bits_b = integer_bits(*b);
  const bool signed_a = arrow::is_signed_integer(a->id()), signed_b = arrow::is_signed_integer(b->id());
  if (signed_a == signed_b) return bits_a >= bits_b ? a : b;
  // A signed type that holds the unsigned one has twice its bits; nothing but a decimal holds all of uint64.
  const int unsigned_bits = signed_a ? bits_b : bits_a;
  const int signed_bits = signed_a ? bits_a : bits_b;
  if (unsigned_bits == 64) return arrow::decimal128(20, 0);
  return signed_integer(std::max(signed_bits, 2 * unsigned_bits));
}

int integer_digits(const arrow::DataType& type) {
  switch (integer_bits(type)) {
    case 8:
      return 3;
    case 16:
      return 5;
    case 32:
      return 10;
    default:
      return arrow::is_signed_integer(type.id()) ? 19 : 20;
  }
}

TypePtr common_decimal(int whole_a, int scale_a, int whole_b, int scale_b) {
  const int scale = std::max(scale_a, scale_b);
  const int precision = std::max(whole_a, whole_b) + scale;
  if (precision > arrow::Decimal128Type::kMaxPrecision) return nullptr;
  return arrow::decimal128(precision, scale);
}

template <class T>
const T& as(const TypePtr& type) {
  return static_cast<const T&>(*type);
}

TypePtr united_text_type(const TypePtr& a, const TypePtr& b) {
  auto is_time = [](const TypePtr& type) {
    return type->id() == Type::DATE32 || type->id() == Type::TIMESTAMP;
  };
  if (!is_time(a) || !is_time(b)) return arrow::utf8();
  auto is_zoned = [](const TypePtr& type) {
    return type->id() == Type::TIMESTAMP && !as<arrow::TimestampType>(type).timezone().empty();
  };
  return arrow::timestamp(arrow::TimeUnit::MICRO, is_zoned(a) || is_zoned(b) ? "UTC" : "");
}

// Wide tables would make notices of pages.
std::string listed(const std::vector<std::string>& items) {
  constexpr size_t kMost = 12;
  if (items.size() <= kMost) return fmt::format("{}", fmt::join(items, ", "));
  return fmt::format("{} and {} more", fmt::join(items.begin(), items.begin() + kMost, ", "),
                     items.size() - kMost);
}

}  // namespace

TypePtr canonical_or_stored(const TypePtr& stored) {
  auto canonical = expr::canonical_type(stored);
  return canonical.ok() ? *canonical : stored;
}

TypePtr united_type(const TypePtr& a, const TypePtr& b) {
  if (a->Equals(*b)) return a;
  const Type::type ia = a->id(), ib = b->id();
  if (ia == Type::NA) return b;
  if (ib == Type::NA) return a;
  const bool integer_a = arrow::is_integer(ia), integer_b = arrow::is_integer(ib);
  const bool float_a = arrow::is_floating(ia), float_b = arrow::is_floating(ib);
  const bool decimal_a = ia == Type::DECIMAL128, decimal_b = ib == Type::DECIMAL128;
  if (integer_a && integer_b) return common_integer(a, b);
  if ((float_a && (float_b || integer_b || decimal_b)) || (float_b && (integer_a || decimal_a)))
    return arrow::float64();
  if ((decimal_a || integer_a) && (decimal_b || integer_b)) {
    auto digits = [](const TypePtr& type, bool decimal) {
      if (!decimal) return std::pair(integer_digits(*type), 0);
      const auto& d = as<arrow::Decimal128Type>(type);
      return std::pair(d.precision() - d.scale(), d.scale());
    };
    const auto [whole_a, scale_a] = digits(a, decimal_a);
    const auto [whole_b, scale_b] = digits(b, decimal_b);
    return common_decimal(whole_a, scale_a, whole_b, scale_b);
  }
  if (ia == Type::TIMESTAMP && ib == Type::TIMESTAMP) {
    const auto& ta = as<arrow::TimestampType>(a);
    const auto& tb = as<arrow::TimestampType>(b);
    if (ta.timezone().empty() != tb.timezone().empty()) return nullptr;
    return arrow::timestamp(std::max(ta.unit(), tb.unit()),
                            ta.timezone() == tb.timezone() ? ta.timezone() : "UTC");
  }
  if (ia == Type::DURATION && ib == Type::DURATION) {
    return arrow::duration(std::max(as<arrow::DurationType>(a).unit(), as<arrow::DurationType>(b).unit()));
  }
  return nullptr;
}

void make_names_unique(std::vector<FileColumn>& columns) {
  std::map<std::string, int> taken;
  for (const FileColumn& column : columns) taken.emplace(lower(column.name), 0);
  std::map<std::string, int> seen;
  for (FileColumn& column : columns) {
    if (seen.emplace(lower(column.name), 0).second) continue;
    int& number = seen[lower(column.name)];
    std::string name;
    do {
      name = fmt::format("{}_{}", column.name, ++number);
    } while (taken.count(lower(name)));
    taken.emplace(lower(name), 0);
    seen.emplace(lower(name), 0);
    column.name = std::move(name);
  }
}

Result<UnitedSchema> unite_schemas(const std::vector<FileSchema>& files) {
  struct United {
    std::string name;
    TypePtr type;
    bool nullable = false;
    bool text = true;
    int deciding_file = 0;  ///< whose type `type` is, for messages
    size_t files_present = 0;
    std::vector<std::string> types;      ///< distinct, in order of appearance
    std::vector<std::string> spellings;  ///< distinct
    int other_spelling_file = 0;
  };
  std::vector<United> fields;
  std::map<std::string, int> by_name;
  UnitedSchema out;
  out.file_columns.resize(files.size());

  for (size_t f = 0; f < files.size(); ++f) {
    for (size_t c = 0; c < files[f].columns.size(); ++c) {
      const FileColumn& column = files[f].columns[c];
      const auto [at, is_new] = by_name.emplace(lower(column.name), static_cast<int>(fields.size()));
      if (is_new) {
        United& field = fields.emplace_back();
        field.name = column.name;
        field.type = column.type;
        field.deciding_file = static_cast<int>(f);
      }
      United& field = fields[static_cast<size_t>(at->second)];
      auto& columns_of_file = out.file_columns[f];
      columns_of_file.resize(std::max(columns_of_file.size(), fields.size()), -1);
      columns_of_file[static_cast<size_t>(at->second)] = static_cast<int>(c);
      if (!is_new) {
        TypePtr type = united_type(field.type, column.type);
        // Text has no type of its own: numbers in one file and words in another are words.
        if (field.text && column.text && !type) {
          type = united_text_type(field.type, column.type);
        }
        if (!type) {
          return data_error("column '{}' is {} in '{}' and {} in '{}': there is no type that holds both",
                            column.name, sql_type_name(*field.type),
                            files[static_cast<size_t>(field.deciding_file)].path, sql_type_name(*column.type),
                            files[f].path);
        }
        if (!type->Equals(*field.type)) {
          field.type = std::move(type);
          field.deciding_file = static_cast<int>(f);
        }
      }
      field.nullable = field.nullable || column.nullable;
      field.text = field.text && column.text;
      ++field.files_present;
      std::string type = sql_type_name(*column.type);
      if (std::find(field.types.begin(), field.types.end(), type) == field.types.end())
        field.types.push_back(std::move(type));
      if (std::find(field.spellings.begin(), field.spellings.end(), column.name) == field.spellings.end()) {
        field.spellings.push_back(column.name);
        field.other_spelling_file = static_cast<int>(f);
      }
    }
  }

  arrow::FieldVector schema;
  std::vector<std::string> widened, spelled;
  for (United& field : fields) {
    // A column that never holds a value has no type: any other goes with it.
    const bool nullable =
        field.nullable || field.files_present < files.size() || field.type->id() == Type::NA;
    schema.push_back(arrow::field(field.name, field.type, nullable));
    if (field.types.size() > 1) {
      widened.push_back(
          fmt::format("{} ({}) as {}", field.name, fmt::join(field.types, ", "), sql_type_name(*field.type)));
    }
    if (field.spellings.size() > 1) {
      field.spellings.erase(field.spellings.begin());
      spelled.push_back(fmt::format("'{}' of '{}' as '{}'", fmt::join(field.spellings, "', '"),
                                    files[static_cast<size_t>(field.other_spelling_file)].path, field.name));
    }
  }
  if (!widened.empty()) {
    out.notices.push_back(fmt::format("the files differ in types; reading {}", listed(widened)));
  }
  if (!spelled.empty()) {
    out.notices.push_back(fmt::format("column names differ in case; reading {}", listed(spelled)));
  }
  out.schema = arrow::schema(std::move(schema));
  for (auto& columns : out.file_columns) columns.resize(fields.size(), -1);
  return out;
}

ColumnCast::ColumnCast(TypePtr stored, TypePtr target)
    : target_(std::move(target)), identity_(stored->Equals(*target_)) {}

Result<std::shared_ptr<arrow::Array>> ColumnCast::convert(const std::shared_ptr<arrow::Array>& array) const {
  // The kernels register themselves in some milliseconds; files that need no conversion do without.
  static const Status initialized = arrow::compute::Initialize();
  MILLSTREAM_TRY(initialized);
  std::shared_ptr<arrow::Array> value = array;
  while (value->type_id() == Type::EXTENSION)
    value = static_cast<const arrow::ExtensionArray&>(*value).storage();
  arrow::compute::CastOptions options = arrow::compute::CastOptions::Safe();
  options.allow_float_truncate = true;  // integers beyond 2^53 round to the nearest double, as in SQL
  options.allow_invalid_utf8 = true;
  if (value->type_id() == Type::DICTIONARY) {
    const auto& type = static_cast<const arrow::DictionaryType&>(*value->type());
    MILLSTREAM_ASSIGN(value, arrow::compute::Cast(*value, type.value_type(), options));
  }
  if (value->type()->Equals(*target_)) return value;
  // Times of day are known to queries in microseconds.
  options.allow_time_truncate = value->type_id() == Type::TIME64;
  return arrow::compute::Cast(*value, target_, options);
}

Result<std::shared_ptr<arrow::Array>> ColumnCast::apply(std::shared_ptr<arrow::Array> array) const {
  if (identity_ || array->type()->Equals(*target_)) return array;
  auto converted = convert(array);
  if (converted.ok()) return converted;
  // Which row? The kernels do not say, so it is looked for; failing is rare.
  for (int64_t row = 0; row < array->length(); ++row) {
    auto one = convert(array->Slice(row, 1));
    if (one.ok()) continue;
    return make_error(ErrorCategory::kData,
                      fmt::format("a value of {} cannot be read as {}: {}", sql_type_name(*array->type()),
                                  sql_type_name(*target_), one.status().message()),
                      SourcePosition{0, row});
  }
  return make_error(ErrorCategory::kData,
                    fmt::format("{} cannot be read as {}: {}", sql_type_name(*array->type()),
                                sql_type_name(*target_), converted.status().message()));
}

}  // namespace millstream::exec
