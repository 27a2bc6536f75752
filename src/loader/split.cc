#include "loader/split.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "base/hash.h"
#include "base/nearest_name.h"
#include "plan/planner.h"
#include "sql/binder.h"
#include "sql/lexer.h"

namespace millstream::loader {
namespace {

constexpr uint64_t kNullKey = 0x9A3F11D25C0E7B64u;
// 2^64 / the golden ratio: multiples of it, modulo 2^64, fill the circle as evenly as multiples can.
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

uint64_t place_of(double fraction) {
  return fraction >= 1 ? UINT64_MAX : static_cast<uint64_t>(std::ldexp(fraction, 64));
}

}  // namespace

bool is_query_text(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n(");
  if (first == std::string_view::npos) return false;
  const size_t end = text.find_first_of(" \t\n", first);
  if (end == std::string_view::npos) return false;
  const std::string_view word = text.substr(first, end - first);
  for (const char* keyword : {"select", "with", "from"})
    if (sql::equals_ignoring_case(word, keyword)) return true;
  return false;
}

Split Split::of_fraction(double valid) {
  Split split;
  split.any_ = valid > 0;
  split.valid_end_ = place_of(valid);
  split.normal_form_ = fmt::format("{:a}", valid);
  return split;
}

Status Split::find_key(const arrow::Schema& query, const std::string& name, const char* role,
                       expr::ExprPtr* key) {
  const int index = plan::find_output(query, name);
  if (index < 0)
    return usage_error("{} is '{}', which is not an output of the training query{}", role, name,
                       name_hint(name, query.field_names()));
  auto text = expr::make_cast(expr::make_column(index, *query.field(index)), arrow::utf8());
  if (!text.ok()) return with_context(text.status(), role);
  *key = std::move(text).ValueUnsafe();
  return Status::OK();
}

Result<Split> Split::make(const DataConfig& data, const std::shared_ptr<arrow::Schema>& query) {
  const bool hashed = data.valid_fraction > 0 || data.test_fraction > 0 || data.folds > 0;
  if (data.folds > 0 && (data.valid_fraction > 0 || data.valid || data.valid_if))
    return usage_error("data.folds says which rows validate, and so does data.valid: give one of them");
  if (data.folds > 0 && data.fold >= data.folds)
    return usage_error("data.fold is {}; of {} folds it is one from 0 to {}", data.fold, data.folds,
                       data.folds - 1);
  if (data.folds == 0 && data.fold > 0)
    return usage_error("data.fold is {}, one of data.folds, which are not given", data.fold);
  if (!data.split_by.empty() && !data.stratify_by.empty())
    return usage_error(
        "data.split_by keeps the rows of a value together and data.stratify_by parts them: give one of them");
  for (const auto& [name, column] :
       {std::pair("split_by", &data.split_by), std::pair("stratify_by", &data.stratify_by)}) {
    if (!column->empty() && !hashed)
      return usage_error(
          "data.{} says how rows are chosen, but no fraction of them is: give data.valid or data.test a "
          "fraction, or data.folds",
          name);
  }
  if (data.valid_fraction + data.test_fraction >= 1)
    return usage_error("data.valid and data.test are {} and {}: together they leave nothing to train on",
                       data.valid_fraction, data.test_fraction);

  Split split;
  split.query_ = query;
  split.test_fraction_ = data.test_fraction;
  const double rest = 1 - data.test_fraction;
  split.test_begin_ = place_of(rest);
  split.valid_end_ = place_of(data.valid_fraction);
  if (data.folds > 0) {
    const auto end_of = [&](int fold) { return place_of(rest * fold / static_cast<double>(data.folds)); };
    split.valid_begin_ = end_of(data.fold);
    split.valid_end_ = data.fold + 1 == data.folds ? split.test_begin_ : end_of(data.fold + 1);
  }
  const auto predicate = [&](const std::optional<std::string>& text, const char* name,
                             expr::ExprPtr* out) -> Status {
    if (!text) return Status::OK();
    MILLSTREAM_ASSIGN(*out, sql::bind_text(*text, query, name));
    if ((*out)->type->id() == arrow::Type::BOOL) return Status::OK();
    return usage_error(
        "{}: '{}' is {}; it must be a condition, as in \"day >= DATE '2024-12-01'\", a query or a "
        "fraction",
        name, *text, (*out)->type->ToString());
  };
  MILLSTREAM_TRY(predicate(data.valid_if, "data.valid", &split.valid_if_));
  MILLSTREAM_TRY(predicate(data.test_if, "data.test", &split.test_if_));
  if (!data.split_by.empty())
    MILLSTREAM_TRY(split.find_key(*query, data.split_by, "data.split_by", &split.key_));
  if (!data.stratify_by.empty())
    MILLSTREAM_TRY(split.find_key(*query, data.stratify_by, "data.stratify_by", &split.stratum_));
  split.any_ = hashed || split.valid_if_ != nullptr || split.test_if_ != nullptr;
  split.normal_form_ = fmt::format("{:a}", data.valid_fraction);
  if (data.test_fraction > 0 || data.folds > 0)
    split.normal_form_ += fmt::format("|test {:a}|fold {} of {}", data.test_fraction, data.fold, data.folds);
  std::vector<bool> read(static_cast<size_t>(query->num_fields()), false);
  for (const auto& [name, expression] :
       {std::pair("valid", split.valid_if_), std::pair("test", split.test_if_), std::pair("by", split.key_),
        std::pair("strata", split.stratum_)}) {
    if (expression == nullptr) continue;
    split.normal_form_ += fmt::format("|{} {}", name, expression->to_sql());
    for (const int column : expr::columns_read(*expression)) read[static_cast<size_t>(column)] = true;
  }
  for (int i = 0; i < query->num_fields(); ++i)
    if (read[static_cast<size_t>(i)]) split.columns_.push_back(query->field(i)->name());
  return split;
}

Status Split::bind(const arrow::Schema& input) {
  if (query_ == nullptr) return Status::OK();
  std::vector<int> mapping(static_cast<size_t>(query_->num_fields()), -1);
  for (const std::string& name : columns_) {
    const int to = input.GetFieldIndex(name);
    if (to < 0) return bug_error("the split's column '{}' is not among the inputs", name);
    mapping[static_cast<size_t>(query_->GetFieldIndex(name))] = to;
  }
  for (expr::ExprPtr* expression : {&valid_if_, &test_if_, &key_, &stratum_})
    if (*expression != nullptr) *expression = expr::remap_columns(*expression, mapping);
  query_ = nullptr;
  return Status::OK();
}

void Split::places(uint64_t file_hash, const exec::BlockRows& block, const arrow::Array* keys,
                   const arrow::Array* strata, int64_t rows, std::vector<uint64_t>* places) const {
  places->resize(static_cast<size_t>(rows));
  uint64_t* const out = places->data();
  if (keys != nullptr) {
    const auto& texts = static_cast<const arrow::StringArray&>(*keys);
    for (int64_t row = 0; row < rows; ++row)
      out[row] = texts.IsNull(row) ? kNullKey : mix64(hash64(texts.GetView(row)));
  } else if (strata != nullptr) {
    const auto& texts = static_cast<const arrow::StringArray&>(*strata);
    std::unordered_map<uint64_t, uint64_t> next;  // place of the stratum's next row
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t stratum = texts.IsNull(row) ? kNullKey : hash64(texts.GetView(row));
      const auto [place, added] = next.try_emplace(stratum, 0);
      if (added)
        place->second = mix64(file_hash ^ mix64(static_cast<uint64_t>(block.first_row) ^ mix64(stratum)));
      out[row] = place->second;
      place->second += kGolden;
    }
  } else {
    for (int64_t row = 0; row < rows; ++row)
      out[row] = mix64(file_hash ^ mix64(static_cast<uint64_t>(block.row_in_file(row))));
  }
}

Status Split::parts(uint64_t file_hash, const exec::BlockRows& block, int64_t rows,
                    std::vector<Part>* parts) const {
  parts->assign(static_cast<size_t>(rows), Part::kTrain);
  Part* const out = parts->data();
  const auto evaluated = [&](const expr::ExprPtr& expression) -> Result<std::shared_ptr<arrow::Array>> {
    if (expression == nullptr) return std::shared_ptr<arrow::Array>();
    return expr::evaluate(*expression, *block.rows);
  };
  if (valid_end_ > valid_begin_ || test_fraction_ > 0) {
    MILLSTREAM_ASSIGN(const auto keys, evaluated(key_));
    MILLSTREAM_ASSIGN(const auto strata, evaluated(stratum_));
    thread_local std::vector<uint64_t> scratch;
    places(file_hash, block, keys.get(), strata.get(), rows, &scratch);
    const uint64_t width = valid_end_ - valid_begin_;
    for (int64_t row = 0; row < rows; ++row) {
      const uint64_t place = scratch[static_cast<size_t>(row)];
      out[row] = place - valid_begin_ < width                 ? Part::kValid
                 : test_fraction_ > 0 && place >= test_begin_ ? Part::kTest
                                                              : Part::kTrain;
    }
  }
  const auto apply = [&](const expr::ExprPtr& predicate, Part part) -> Status {
    MILLSTREAM_ASSIGN(const auto array, evaluated(predicate));
    if (array == nullptr) return Status::OK();
    const auto& flags = static_cast<const arrow::BooleanArray&>(*array);
    for (int64_t row = 0; row < rows; ++row)
      if (flags.IsValid(row) && flags.Value(row)) out[row] = part;
    return Status::OK();
  };
  // A test row stays one whatever the validation's predicate says.
  thread_local std::vector<Part> chosen;
  if (valid_if_ != nullptr && test_fraction_ > 0) chosen.assign(out, out + rows);
  MILLSTREAM_TRY(apply(valid_if_, Part::kValid));
  if (valid_if_ != nullptr && test_fraction_ > 0) {
    for (int64_t row = 0; row < rows; ++row)
      if (chosen[static_cast<size_t>(row)] == Part::kTest) out[row] = Part::kTest;
  }
  return apply(test_if_, Part::kTest);
}

}  // namespace millstream::loader
