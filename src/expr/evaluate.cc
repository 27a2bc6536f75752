// The interpreter: evaluates expressions a column at a time.
//
// Constants stay one row. AND, OR, CASE and COALESCE evaluate an argument only for the rows that need it
// where it could fail or where few rows are left: those rows' columns are gathered, the argument is evaluated
// densely, and its values are put back.

#include <bit>
#include <mutex>

#include <arrow/compute/api.h>
#include <arrow/util/bitmap_ops.h>

#include "base/check.h"
#include "expr/expression.h"
#include "expr/function.h"
#include "expr/kernel.h"
#include "expr/selection.h"

namespace millstream::expr {

namespace {

using Words = std::vector<uint64_t>;

/// An argument that cannot fail is evaluated for all rows unless fewer than one in so many needs it.
constexpr int64_t kGatherBelow = 8;

/// Which rows of a boolean column are true, and which false; the others are NULL.
struct Truth {
  Words yes;
  Words no;
};

/// Row k of a sub-evaluation is row rows[k] here.
Status at_rows(const Status& status, const Rows& rows) {
  auto position = error_position(status);
  if (!position) return status;
  position->row = rows[static_cast<size_t>(position->row)];
  return with_category(status, error_category(status), position);
}

/// The values of expressions for one set of rows: all rows of the input, or a selection of another's.
class Evaluation {
 public:
  explicit Evaluation(const arrow::RecordBatch& input) : input_(&input), rows_(input.num_rows()) {}
  Evaluation(Evaluation& parent, const Rows& rows)
      : parent_(&parent), selection_(&rows), rows_(static_cast<int64_t>(rows.size())) {}

  Result<Value> evaluate(const Expression& e) {
    switch (e.kind) {
      case Kind::kLiteral: {
        MILLSTREAM_ASSIGN(auto one, arrow::MakeArrayFromScalar(*e.literal, 1));
        return Value{one->data(), true};
      }
      case Kind::kColumn: {
        MILLSTREAM_ASSIGN(auto data, column(e.column));
        if (data->type->id() != e.type->id()) {
          return bug_error("column {} is {} where the expression was bound to {}", e.name,
                           data->type->ToString(), e.type->ToString());
        }
        return Value{std::move(data), false};
      }
      case Kind::kCall:
      case Kind::kCast:
      case Kind::kIn:
        return call(e);
      case Kind::kAnd:
      case Kind::kOr:
        return connective(e);
      case Kind::kCase:
        return case_of(e);
      case Kind::kCoalesce:
        return coalesce(e);
    }
    return bug_error("unknown kind of expression");
  }

  int64_t rows() const { return rows_; }

  /// True and false rows of a boolean value.
  Truth truth_of(const Value& value) const {
    const auto words = static_cast<size_t>((rows_ + 63) / 64);
    Truth truth{Words(words), Words(words)};
    const arrow::ArrayData& data = *value.data;
    if (value.constant) {
      if (has_nulls(data)) return truth;
      BitReader ones(nullptr, 0, rows_);
      Words& set = Column<bool>(data)[0] ? truth.yes : truth.no;
      for (size_t w = 0; w < words; ++w) set[w] = ones.word(static_cast<int64_t>(w));
      return truth;
    }
    BitReader bits(data.buffers[1]->data(), data.offset, rows_);
    BitReader valid(validity_of(data), data.offset, rows_);
    for (size_t w = 0; w < words; ++w) {
      uint64_t b = bits.word(static_cast<int64_t>(w)), v = valid.word(static_cast<int64_t>(w));
      truth.yes[w] = b & v;
      truth.no[w] = ~b & v;
    }
    return truth;
  }

  /// The rows where a filter is true. Arguments of AND are asked only about rows for which all before them are
  /// true, not merely not false: what an inner WHERE removes, NULLs included, the outer one never sees.
  Result<Words> filter(const Expression& e) {
    if (e.kind != Kind::kAnd) {
      MILLSTREAM_ASSIGN(Value value, evaluate(e));
      return truth_of(value).yes;
    }
    Words wanted = all_rows();
    int64_t left = rows_;
    for (const ExprPtr& condition : e.arguments) {
      if (left == 0) break;
      MILLSTREAM_ASSIGN(Truth truth, truth_where(*condition, wanted, left));
      for (size_t w = 0; w < wanted.size(); ++w) wanted[w] &= truth.yes[w];
      left = count_ones(wanted);
    }
    return wanted;
  }

 private:
  Result<std::shared_ptr<arrow::ArrayData>> column(int index) {
    if (input_) return input_->column_data(index);
    auto i = static_cast<size_t>(index);
    if (gathered_.size() <= i) gathered_.resize(i + 1);
    if (!gathered_[i]) {
      MILLSTREAM_ASSIGN(auto whole, parent_->column(index));
      MILLSTREAM_ASSIGN(gathered_[i], gather(whole, selection_->data(), rows_));
    }
    return gathered_[i];
  }

  Result<Value> call(const Expression& e) {
    const Binding& binding = *e.binding;
    constexpr size_t kFew = 4;
    Value few[kFew];
    std::vector<Value> many;
    const size_t count = e.arguments.size();
    Value* arguments = few;
    if (count > kFew) {
      many.resize(count);
      arguments = many.data();
    }
    bool constant = true;
    for (size_t i = 0; i < count; ++i) {
      MILLSTREAM_ASSIGN(arguments[i], evaluate(*e.arguments[i]));
      constant = constant && arguments[i].constant;
    }
    const int64_t rows = constant ? 1 : rows_;
    if (!binding.kernel) {  // the same bytes under another type
      auto data = arguments[0].data->Copy();
      data->type = e.type;
      return Value{std::move(data), constant};
    }
    std::shared_ptr<arrow::Buffer> validity;
    if (binding.nulls == NullPolicy::kPropagate) {
      for (size_t i = 0; i < count; ++i) {
        const arrow::ArrayData& data = *arguments[i].data;
        if (!has_nulls(data)) continue;
        if (arguments[i].constant) {
          MILLSTREAM_ASSIGN(auto null, arrow::MakeArrayOfNull(e.type, 1));
          return Value{null->data(), true};
        }
        MILLSTREAM_ASSIGN(validity, combine(validity, data, rows));
      }
    }
    auto out = arrow::ArrayData::Make(e.type, rows, {nullptr, nullptr}, 0);
    KernelCall kernel{e, {arguments, count}, rows, validity ? validity->data() : nullptr, *out};
    MILLSTREAM_TRY(binding.kernel(kernel));
    if (validity) {
      if (out->buffers[0]) {
        MILLSTREAM_ASSIGN(out->buffers[0], combine(validity, *out, rows));
      } else {
        out->buffers[0] = std::move(validity);
      }
      out->null_count = arrow::kUnknownNullCount;
    }
    return Value{std::move(out), constant};
  }

  /// The validity of `data` and, where there is one, of `validity`.
  static Result<std::shared_ptr<arrow::Buffer>> combine(const std::shared_ptr<arrow::Buffer>& validity,
                                                        const arrow::ArrayData& data, int64_t rows) {
    if (!validity && data.offset == 0) return data.buffers[0];
    MILLSTREAM_ASSIGN(auto out, allocate_values(bitmap_bytes(rows)));
    if (validity) {
      arrow::internal::BitmapAnd(validity->data(), 0, data.buffers[0]->data(), data.offset, rows, 0,
                                 out->mutable_data());
    } else {
      arrow::internal::CopyBitmap(data.buffers[0]->data(), data.offset, rows, out->mutable_data(), 0);
    }
    return out;
  }

  /// A boolean argument for the rows in `wanted`; others say neither yes nor no.
  Result<Truth> truth_where(const Expression& e, const Words& wanted, int64_t wanted_count) {
    if (wanted_count == rows_ || (!e.can_fail && wanted_count * kGatherBelow >= rows_)) {
      MILLSTREAM_ASSIGN(Value value, evaluate(e));
      return truth_of(value);
    }
    Rows rows = rows_of(wanted, rows_);
    Evaluation part(*this, rows);
    auto value = part.evaluate(e);
    if (!value.ok()) return at_rows(value.status(), rows);
    Truth dense = part.truth_of(*value);
    Truth truth{Words(wanted.size()), Words(wanted.size())};
    for (size_t k = 0; k < rows.size(); ++k) {
      auto row = static_cast<size_t>(rows[k]);
      truth.yes[row / 64] |= (dense.yes[k / 64] >> (k % 64) & 1) << (row % 64);
      truth.no[row / 64] |= (dense.no[k / 64] >> (k % 64) & 1) << (row % 64);
    }
    return truth;
  }

  static int64_t count_ones(const Words& words) {
    int64_t count = 0;
    for (uint64_t word : words) count += std::popcount(word);
    return count;
  }

  Words all_rows() const {
    Words words(static_cast<size_t>((rows_ + 63) / 64));
    BitReader ones(nullptr, 0, rows_);
    for (size_t w = 0; w < words.size(); ++w) words[w] = ones.word(static_cast<int64_t>(w));
    return words;
  }

  Result<Value> boolean_value(const Truth& truth) {
    MILLSTREAM_ASSIGN(auto values, allocate_values(bitmap_bytes(rows_)));
    MILLSTREAM_ASSIGN(auto validity, allocate_values(bitmap_bytes(rows_)));
    auto* yes = reinterpret_cast<uint64_t*>(values->mutable_data());
    auto* valid = reinterpret_cast<uint64_t*>(validity->mutable_data());
    int64_t known = 0;
    for (size_t w = 0; w < truth.yes.size(); ++w) {
      yes[w] = truth.yes[w];
      valid[w] = truth.yes[w] | truth.no[w];
      known += std::popcount(valid[w]);
    }
    return Value{arrow::ArrayData::Make(arrow::boolean(), rows_,
                                        {known == rows_ ? nullptr : validity, values}, rows_ - known),
                 false};
  }

  Result<Value> connective(const Expression& e) {
    const bool is_and = e.kind == Kind::kAnd;
    Words undecided = all_rows();
    int64_t left = rows_;
    Truth result;
    for (size_t i = 0; i < e.arguments.size() && left > 0; ++i) {
      MILLSTREAM_ASSIGN(Truth truth, truth_where(*e.arguments[i], undecided, left));
      if (i == 0) {
        result = std::move(truth);
      } else {
        // One that decides is enough; the other answer needs all.
        Words& all = is_and ? result.yes : result.no;
        Words& any = is_and ? result.no : result.yes;
        const Words& all_here = is_and ? truth.yes : truth.no;
        const Words& any_here = is_and ? truth.no : truth.yes;
        for (size_t w = 0; w < all.size(); ++w) {
          all[w] &= all_here[w];
          any[w] |= any_here[w];
        }
      }
      const Words& decided = is_and ? result.no : result.yes;
      Words everything = all_rows();
      for (size_t w = 0; w < undecided.size(); ++w) undecided[w] = everything[w] & ~decided[w];
      left = count_ones(undecided);
    }
    return boolean_value(result);
  }

  /// Evaluates `e` for the rows in `wanted` and puts the values there.
  Status place(Assembler& out, const Expression& e, const Words& wanted, int64_t wanted_count) {
    if (e.kind == Kind::kLiteral || wanted_count == rows_ ||
        (!e.can_fail && wanted_count * kGatherBelow >= rows_)) {
      MILLSTREAM_ASSIGN(Value value, evaluate(e));
      return wanted_count == rows_ ? out.place_all(value) : out.place_where(value, wanted);
    }
    Rows rows = rows_of(wanted, rows_);
    Evaluation part(*this, rows);
    auto value = part.evaluate(e);
    if (!value.ok()) return at_rows(value.status(), rows);
    return out.place(*value, rows, true);
  }

  Result<Value> case_of(const Expression& e) {
    Assembler out(e.type, rows_);
    MILLSTREAM_TRY(out.start());
    Words undecided = all_rows();
    int64_t left = rows_;
    const size_t arms = e.arguments.size() / 2;
    for (size_t a = 0; a < arms && left > 0; ++a) {
      MILLSTREAM_ASSIGN(Truth truth, truth_where(*e.arguments[2 * a], undecided, left));
      for (size_t w = 0; w < undecided.size(); ++w) {
        truth.yes[w] &= undecided[w];
        undecided[w] &= ~truth.yes[w];
      }
      const int64_t count = count_ones(truth.yes);
      if (count == 0) continue;
      left -= count;
      MILLSTREAM_TRY(place(out, *e.arguments[2 * a + 1], truth.yes, count));
    }
    if (left > 0) MILLSTREAM_TRY(place(out, *e.arguments.back(), undecided, left));
    MILLSTREAM_ASSIGN(auto data, out.finish());
    return Value{std::move(data), false};
  }

  Result<Value> coalesce(const Expression& e) {
    MILLSTREAM_ASSIGN(Value first, evaluate(*e.arguments[0]));
    if (!has_nulls(*first.data)) return first;
    Assembler out(e.type, rows_);
    MILLSTREAM_TRY(out.start());
    MILLSTREAM_TRY(out.place_all(first));
    Words undecided = null_rows(first);
    for (size_t i = 1; i < e.arguments.size(); ++i) {
      Rows rows = rows_of(undecided, rows_);
      if (rows.empty()) break;
      const Expression& argument = *e.arguments[i];
      auto wanted = static_cast<int64_t>(rows.size());
      if (argument.kind == Kind::kLiteral || wanted == rows_ ||
          (!argument.can_fail && wanted * kGatherBelow >= rows_)) {
        MILLSTREAM_ASSIGN(Value value, evaluate(argument));
        MILLSTREAM_TRY(out.place(value, rows, false));
        Words nulls = null_rows(value);
        for (size_t w = 0; w < undecided.size(); ++w) undecided[w] &= nulls[w];
        continue;
      }
      Evaluation part(*this, rows);
      auto value = part.evaluate(argument);
      if (!value.ok()) return at_rows(value.status(), rows);
      MILLSTREAM_TRY(out.place(*value, rows, true));
      Words nulls = part.null_rows(*value);
      for (size_t k = 0; k < rows.size(); ++k) {
        auto row = static_cast<size_t>(rows[k]);
        if (!(nulls[k / 64] >> (k % 64) & 1)) undecided[row / 64] &= ~(uint64_t{1} << (row % 64));
      }
    }
    MILLSTREAM_ASSIGN(auto data, out.finish());
    return Value{std::move(data), false};
  }

  Words null_rows(const Value& value) const {
    const arrow::ArrayData& data = *value.data;
    Words words = all_rows();
    if (!has_nulls(data)) return Words(words.size());
    if (value.constant || data.type->id() == arrow::Type::NA) return words;
    BitReader valid(data.buffers[0]->data(), data.offset, rows_);
    for (size_t w = 0; w < words.size(); ++w) words[w] &= ~valid.word(static_cast<int64_t>(w));
    return words;
  }

  const arrow::RecordBatch* input_ = nullptr;
  Evaluation* parent_ = nullptr;
  const Rows* selection_ = nullptr;
  int64_t rows_;
  std::vector<std::shared_ptr<arrow::ArrayData>> gathered_;
};

Status initialize_compute() {
  static std::once_flag once;
  static Status status;
  std::call_once(once, [] { status = arrow::compute::Initialize(); });
  return status;
}

/// A row failed: the error that is reported, which does not depend on how rows were grouped into batches. It
/// is that of the lowest failing row, evaluated alone.
template <class Evaluate>
Status lowest_error(const Evaluate& evaluate, const arrow::RecordBatch& input, const Status& found) {
  auto position = error_position(found);
  if (!position) return found;
  int64_t row = position->row;
  while (row > 0) {
    const Status before = evaluate(*input.Slice(0, row));
    if (before.ok()) break;
    auto earlier = error_position(before);
    if (!earlier) return before;
    if (earlier->row >= row) break;
    row = earlier->row;
  }
  const Status alone = evaluate(*input.Slice(row, 1));
  if (alone.ok()) return found;
  return with_category(alone, error_category(alone), SourcePosition{0, row});
}

Result<Value> evaluate_value(const Expression& expression, const arrow::RecordBatch& input) {
  MILLSTREAM_TRY(initialize_compute());
  Evaluation evaluation(input);
  auto value = evaluation.evaluate(expression);
  if (value.ok()) return value;
  return lowest_error(
      [&](const arrow::RecordBatch& rows) { return Evaluation(rows).evaluate(expression).status(); }, input,
      value.status());
}

}  // namespace

Result<std::shared_ptr<arrow::Array>> evaluate(const Expression& expression,
                                               const arrow::RecordBatch& input) {
  if (input.num_rows() == 0) return arrow::MakeEmptyArray(expression.type);
  MILLSTREAM_ASSIGN(Value value, evaluate_value(expression, input));
  auto array = arrow::MakeArray(value.data);
  if (!value.constant || input.num_rows() == 1) return array;
  MILLSTREAM_ASSIGN(auto scalar, array->GetScalar(0));
  return arrow::MakeArrayFromScalar(*scalar, input.num_rows());
}

Result<std::vector<int32_t>> evaluate_filter(const Expression& predicate, const arrow::RecordBatch& input) {
  MILLSTREAM_CHECK(predicate.type->id() == arrow::Type::BOOL, "a filter is a BOOLEAN");
  if (input.num_rows() == 0) return std::vector<int32_t>();
  MILLSTREAM_TRY(initialize_compute());
  auto wanted = Evaluation(input).filter(predicate);
  if (wanted.ok()) return rows_of(*wanted, input.num_rows());
  return lowest_error(
      [&](const arrow::RecordBatch& rows) { return Evaluation(rows).filter(predicate).status(); }, input,
      wanted.status());
}

Result<std::shared_ptr<arrow::RecordBatch>> take_rows(const arrow::RecordBatch& input,
                                                      const std::vector<int32_t>& rows) {
  MILLSTREAM_TRY(initialize_compute());
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return input.Slice(0, 0);
  // A run of rows, all of them for one, is a slice of the input.
  if (rows.back() - rows.front() == count - 1) {
    bool run = true;
    for (size_t i = 1; i < rows.size() && run; ++i) run = rows[i] == rows[i - 1] + 1;
    if (run) return input.Slice(rows.front(), count);
  }
  std::vector<std::shared_ptr<arrow::ArrayData>> columns;
  for (int c = 0; c < input.num_columns(); ++c) {
    MILLSTREAM_ASSIGN(auto column, gather(input.column_data(c), rows.data(), count));
    columns.push_back(std::move(column));
  }
  return arrow::RecordBatch::Make(input.schema(), count, std::move(columns));
}

}  // namespace millstream::expr
