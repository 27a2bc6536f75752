#include "jit/program.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <set>

#include "base/check.h"
#include "expr/kernel.h"
#include "expr/selection.h"
#include "jit/columns.h"
#include "jit/compiler.h"
#include "jit/variant.h"

namespace millstream::jit {

namespace {

/// Rows that go through a loop at a time where bits become bytes or bytes bits: those stay in the first-level cache,
/// and calls cost nothing.
constexpr int64_t kChunkRows = 2048;

}  // namespace

struct Program::Parts {
  std::shared_ptr<arrow::Schema> schema;
  std::vector<expr::ExprPtr> outputs;
  Destination destination = Destination::kColumn;
  Lowered lowered;
  /// A loop in one form. Without code there is nothing left to do.
  struct Form {
    Variant variant;
    std::shared_ptr<Code> code;
  };
  /// Of each loop the forms, by NullForm.
  std::vector<std::array<Form, 3>> forms;

  static std::shared_ptr<const Parts> make(std::shared_ptr<arrow::Schema> schema,
                                           std::vector<expr::ExprPtr> outputs, Destination destination);
  bool types_fit(const arrow::RecordBatch& batch) const;
  Result<arrow::ArrayVector> interpret(const arrow::RecordBatch& batch) const;
  /// What loop `l` makes of the columns, into `results` by expression. False: it can't, or a row failed.
  Result<bool> run_loop(size_t l, const std::vector<std::shared_ptr<arrow::ArrayData>>& columns, int64_t rows,
                        arrow::ArrayVector& results) const;
  /// The columns that kernels make of the batch; nothing where one fails.
  std::optional<std::vector<std::shared_ptr<arrow::ArrayData>>> run_kernels(const arrow::RecordBatch& batch,
                                                                            bool all) const;
};

namespace {

/// One loop over one batch: its code, the columns that it reads, and memory for chunks of them.
class LoopRun {
 public:
  /// `by_rows`: all NULLs are the loop's. False: there is no code for it yet.
  template <class P>
  Result<bool> prepare(const P& parts, size_t index,
                       const std::vector<std::shared_ptr<arrow::ArrayData>>& columns, int64_t rows,
                       int64_t chunk, bool selected, bool by_rows) {
    const LoweredLoop& lowered = parts.lowered.loops[index];
    bool nulls = false;
    for (size_t i = 0; i < lowered.inputs.size(); ++i) {
      if (!expr::has_nulls(*columns[static_cast<size_t>(lowered.inputs[i])])) continue;
      // NULLs where none were promised are the interpreter's.
      if (!lowered.loop.inputs[i].nullable) return false;
      nulls = true;
    }
    const NullForm which = !nulls ? NullForm::kNone : by_rows ? NullForm::kByRows : NullForm::kByWords;
    const auto& form = parts.forms[index][static_cast<size_t>(which)];
    variant_ = &form.variant;
    parameters_ = lowered.parameters.data();
    if (!form.code) return true;
    MILLSTREAM_ASSIGN(function_, form.code->function(rows));
    if (!function_) return false;
    const Loop& loop = variant_->loop;
    int64_t scratch = 0;
    for (size_t i = 0; i < loop.inputs.size(); ++i) {
      const arrow::ArrayData& data = *columns[static_cast<size_t>(variant_->inputs[i])];
      readers_.emplace_back(data, loop.inputs[i].type, loop.inputs[i].nullable);
      value_at_.push_back(scratch);
      scratch += readers_.back().value_scratch(chunk, selected);
      validity_at_.push_back(loop.inputs[i].nullable ? scratch : -1);
      if (loop.inputs[i].nullable) scratch += chunk;
    }
    needs_chunks_ = scratch > 0;
    memory_.resize(static_cast<size_t>(scratch + 64));
    scratch_ = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
    in_.resize(3 * loop.inputs.size() + 1);
    return true;
  }

  const Variant& variant() const { return *variant_; }
  bool is_empty() const { return !function_; }
  /// Whether columns are turned into something for it; else a chunk may have any length.
  bool needs_chunks() const { return needs_chunks_; }

  /// False: a row failed.
  bool run(int64_t first, const int32_t* selected, int64_t count, void* const* out) {
    for (size_t i = 0; i < readers_.size(); ++i) {
      in_[3 * i] = readers_[i].values(first, selected, count, scratch_ + value_at_[i]);
      in_[3 * i + 1] = validity_at_[i] < 0
                           ? nullptr
                           : readers_[i].validity(first, selected, count, scratch_ + validity_at_[i]);
      in_[3 * i + 2] = readers_[i].text_bytes();
    }
    return function_(in_.data(), out, parameters_, count) == 0;
  }

 private:
  const Variant* variant_ = nullptr;
  const uint8_t* parameters_ = nullptr;
  LoopFunction function_ = nullptr;
  std::vector<ChunkReader> readers_;
  std::vector<int64_t> value_at_, validity_at_;
  bool needs_chunks_ = false;
  std::vector<uint8_t> memory_;
  uint8_t* scratch_ = nullptr;
  std::vector<const void*> in_;
};

/// A result column in the making.
struct OutputColumn {
  Machine machine = Machine::kBool;
  std::shared_ptr<arrow::Buffer> values, validity;
  std::vector<uint8_t> value_bytes;     // of booleans
  std::vector<uint8_t> validity_bytes;  // where the loop says what is NULL
};

/// The inputs of the loop, out of `wanted`, that have NULLs.
std::vector<const arrow::ArrayData*> with_nulls(
    const std::vector<int>& wanted, const Variant& variant,
    const std::vector<std::shared_ptr<arrow::ArrayData>>& columns) {
  std::vector<const arrow::ArrayData*> found;
  for (int input : wanted) {
    const arrow::ArrayData& data = *columns[static_cast<size_t>(variant.inputs[static_cast<size_t>(input)])];
    if (expr::has_nulls(data)) found.push_back(&data);
  }
  return found;
}

/// words &= the validity of `sources`, which have NULLs.
void take_nulls(const std::vector<const arrow::ArrayData*>& sources, int64_t rows, uint64_t* words) {
  for (const arrow::ArrayData* source : sources) {
    const uint8_t* bits = expr::validity_of(*source);
    const expr::BitReader reader(bits, source->offset, rows);
    int64_t w = 0;
    if (source->offset % 8 == 0) {
      for (; w < rows / 64; ++w) {
        uint64_t word;
        std::memcpy(&word, bits + source->offset / 8 + 8 * w, 8);
        words[w] &= word;
      }
    }
    for (; w < (rows + 63) / 64; ++w) words[w] &= reader.word(w);
  }
}

/// The validity of a result: `own` (null: all) without the NULLs of `sources`. Null where nothing is NULL.
Result<std::shared_ptr<arrow::Buffer>> joined_validity(std::shared_ptr<arrow::Buffer> own,
                                                       const std::vector<const arrow::ArrayData*>& sources,
                                                       int64_t rows, int64_t& nulls) {
  nulls = 0;
  if (!own && sources.empty()) return nullptr;
  if (!own && sources.size() == 1 && sources[0]->offset % 8 == 0) {
    nulls = sources[0]->GetNullCount();
    return arrow::SliceBuffer(sources[0]->buffers[0], sources[0]->offset / 8, (rows + 7) / 8);
  }
  if (!own) {
    MILLSTREAM_ASSIGN(own, expr::allocate_values(expr::bitmap_bytes(rows)));
    std::memset(own->mutable_data(), 0xFF, static_cast<size_t>(expr::bitmap_bytes(rows)));
  }
  auto* words = reinterpret_cast<uint64_t*>(own->mutable_data());
  take_nulls(sources, rows, words);
  int64_t valid = 0;
  for (int64_t w = 0; w < (rows + 63) / 64; ++w) valid += std::popcount(words[w]);
  nulls = rows - valid;
  return nulls ? std::move(own) : nullptr;
}

}  // namespace

std::shared_ptr<const Program::Parts> Program::Parts::make(std::shared_ptr<arrow::Schema> schema,
                                                           std::vector<expr::ExprPtr> outputs,
                                                           Destination destination) {
  auto parts = std::make_shared<Parts>();
  parts->schema = std::move(schema);
  parts->outputs = std::move(outputs);
  parts->destination = destination;
  if (engine() == Engine::kInterpreter) return parts;
  parts->lowered = lower(parts->outputs, destination);
  for (const LoweredLoop& lowered : parts->lowered.loops) {
    auto& forms = parts->forms.emplace_back();
    for (const NullForm form : {NullForm::kNone, NullForm::kByWords, NullForm::kByRows}) {
      auto& made = forms[static_cast<size_t>(form)];
      made.variant = make_variant(lowered, form);
      if (!made.variant.loop.outputs.empty()) made.code = Code::of(made.variant.loop);
    }
  }
  return parts;
}

Program Program::columns(std::shared_ptr<arrow::Schema> schema, std::vector<expr::ExprPtr> outputs) {
  return Program(Parts::make(std::move(schema), std::move(outputs), Destination::kColumn));
}
Program Program::filter(std::shared_ptr<arrow::Schema> schema, expr::ExprPtr predicate) {
  MILLSTREAM_CHECK(predicate->type->id() == arrow::Type::BOOL, "a filter is a BOOLEAN");
  return Program(Parts::make(std::move(schema), {std::move(predicate)}, Destination::kFilter));
}
Program Program::rows(std::shared_ptr<arrow::Schema> schema, std::vector<expr::ExprPtr> outputs) {
  return Program(Parts::make(std::move(schema), std::move(outputs), Destination::kFloat32));
}

bool Program::Parts::types_fit(const arrow::RecordBatch& batch) const {
  for (const LoweredInput& input : lowered.inputs) {
    if (input.column < 0) continue;
    if (input.column >= batch.num_columns() ||
        !batch.column_data(input.column)->type->Equals(schema->field(input.column)->type()))
      return false;
  }
  return true;
}

Result<arrow::ArrayVector> Program::Parts::interpret(const arrow::RecordBatch& batch) const {
  // An error without a row is about all of them: it comes before any.
  const auto row_of = [](const Status& status) {
    const auto position = error_position(status);
    return position ? position->row : -1;
  };
  arrow::ArrayVector values;
  Status lowest;
  for (const expr::ExprPtr& output : outputs) {
    auto value = expr::evaluate(*output, batch);
    if (value.ok()) {
      values.push_back(*std::move(value));
    } else if (lowest.ok() || row_of(value.status()) < row_of(lowest)) {
      lowest = value.status();
    }
  }
  MILLSTREAM_TRY(lowest);
  return values;
}

std::optional<std::vector<std::shared_ptr<arrow::ArrayData>>> Program::Parts::run_kernels(
    const arrow::RecordBatch& batch, bool all) const {
  std::vector<std::shared_ptr<arrow::ArrayData>> made(lowered.kernels.size());
  std::vector<bool> wanted(lowered.kernels.size(), all);
  for (const LoweredInput& input : lowered.inputs) {
    if (input.kernel >= 0) wanted[static_cast<size_t>(input.kernel)] = true;
  }
  for (size_t k = 0; k < made.size(); ++k) {
    if (!wanted[k]) continue;
    auto value = expr::evaluate(*lowered.kernels[k].expression, batch);
    if (!value.ok()) return std::nullopt;
    made[k] = (*value)->data();
  }
  return made;
}

namespace {

std::vector<std::shared_ptr<arrow::ArrayData>> inputs_of(
    const Lowered& lowered, const arrow::RecordBatch& batch,
    const std::vector<std::shared_ptr<arrow::ArrayData>>& kernels) {
  std::vector<std::shared_ptr<arrow::ArrayData>> columns;
  for (const LoweredInput& input : lowered.inputs)
    columns.push_back(input.kernel >= 0 ? kernels[static_cast<size_t>(input.kernel)]
                                        : batch.column_data(input.column));
  return columns;
}

}  // namespace

Result<bool> Program::Parts::run_loop(size_t l, const std::vector<std::shared_ptr<arrow::ArrayData>>& columns,
                                      int64_t rows, arrow::ArrayVector& results) const {
  for (const bool by_rows : {false, true}) {
    LoopRun run;
    MILLSTREAM_ASSIGN(bool ready, run.prepare(*this, l, columns, rows, kChunkRows, false, by_rows));
    if (!ready) return false;
    const Variant& variant = run.variant();
    for (const Variant::Handed& handed : variant.handed) {
      const auto e = static_cast<size_t>(handed.expression);
      auto data = columns[static_cast<size_t>(handed.input)]->Copy();
      data->type = outputs[e]->type;
      results[e] = arrow::MakeArray(std::move(data));
    }
    if (run.is_empty()) return true;
    const Loop& loop = variant.loop;
    bool chunks = run.needs_chunks();
    std::vector<OutputColumn> made(loop.outputs.size());
    for (size_t o = 0; o < made.size(); ++o) {
      const Node& node = loop.nodes[static_cast<size_t>(loop.outputs[o].node)];
      OutputColumn& column = made[o];
      column.machine = node.type;
      const bool bits = node.type == Machine::kBool;
      MILLSTREAM_ASSIGN(column.values,
                        expr::allocate_values(bits ? expr::bitmap_bytes(rows) : rows * width_of(node.type)));
      if (bits) column.value_bytes.resize(kChunkRows);
      if (node.nullable) {
        MILLSTREAM_ASSIGN(column.validity, expr::allocate_values(expr::bitmap_bytes(rows)));
        column.validity_bytes.resize(kChunkRows);
      }
      chunks |= bits || node.nullable;
    }
    const int64_t chunk = chunks ? kChunkRows : rows;
    std::vector<void*> out(2 * made.size());
    bool failed = false;
    for (int64_t first = 0; first < rows && !failed; first += chunk) {
      const int64_t count = std::min(chunk, rows - first);
      for (size_t o = 0; o < made.size(); ++o) {
        OutputColumn& column = made[o];
        out[2 * o] = column.machine == Machine::kBool
                         ? column.value_bytes.data()
                         : column.values->mutable_data() + first * width_of(column.machine);
        out[2 * o + 1] = column.validity ? column.validity_bytes.data() : nullptr;
      }
      failed = !run.run(first, nullptr, count, out.data());
      for (const OutputColumn& column : made) {
        const auto words = [&](const std::shared_ptr<arrow::Buffer>& buffer) {
          return reinterpret_cast<uint64_t*>(buffer->mutable_data()) + first / 64;
        };
        if (column.machine == Machine::kBool)
          pack_bytes(column.value_bytes.data(), count, words(column.values));
        if (column.validity) pack_bytes(column.validity_bytes.data(), count, words(column.validity));
      }
    }
    if (failed && !by_rows && variant.may_fail_under_nulls) continue;
    if (failed) {
      count_batch(true);
      return false;
    }
    for (size_t o = 0; o < made.size(); ++o) {
      int64_t nulls = 0;
      MILLSTREAM_ASSIGN(auto validity,
                        joined_validity(std::move(made[o].validity),
                                        with_nulls(variant.null_inputs[o], variant, columns), rows, nulls));
      const auto e = static_cast<size_t>(variant.outputs[o]);
      results[e] = arrow::MakeArray(arrow::ArrayData::Make(
          outputs[e]->type, rows, {std::move(validity), std::move(made[o].values)}, nulls));
    }
    return true;
  }
  return false;
}

Result<arrow::ArrayVector> Program::evaluate(const arrow::RecordBatch& batch) const {
  const Parts& p = *parts_;
  MILLSTREAM_CHECK(p.destination == Destination::kColumn);
  const int64_t rows = batch.num_rows();
  if (rows == 0 || p.lowered.loops.empty() || engine() == Engine::kInterpreter || !p.types_fit(batch))
    return p.interpret(batch);
  const auto kernels = p.run_kernels(batch, true);
  if (!kernels) return p.interpret(batch);
  const auto columns = inputs_of(p.lowered, batch, *kernels);
  arrow::ArrayVector results(p.outputs.size());
  for (size_t l = 0; l < p.lowered.loops.size(); ++l) {
    MILLSTREAM_ASSIGN(bool done, p.run_loop(l, columns, rows, results));
    if (!done) return p.interpret(batch);
  }
  for (size_t e = 0; e < results.size(); ++e) {
    if (results[e]) continue;
    const int kernel = p.lowered.whole_kernel[e];
    if (kernel >= 0) {
      results[e] = arrow::MakeArray((*kernels)[static_cast<size_t>(kernel)]);
    } else {
      auto value = expr::evaluate(*p.outputs[e], batch);
      if (!value.ok()) return p.interpret(batch);
      results[e] = *std::move(value);
    }
  }
  count_batch(false);
  return results;
}

Result<std::vector<int32_t>> Program::select(const arrow::RecordBatch& batch) const {
  const Parts& p = *parts_;
  MILLSTREAM_CHECK(p.destination == Destination::kFilter);
  const int64_t rows = batch.num_rows();
  if (rows == 0 || p.lowered.loops.empty() || engine() == Engine::kInterpreter || !p.types_fit(batch))
    return expr::evaluate_filter(*p.outputs[0], batch);
  const auto kernels = p.run_kernels(batch, false);
  if (!kernels) return expr::evaluate_filter(*p.outputs[0], batch);
  const auto columns = inputs_of(p.lowered, batch, *kernels);
  const int64_t word_count = (rows + 63) / 64;
  std::vector<uint64_t> words(static_cast<size_t>(word_count));
  std::vector<uint8_t> bytes(kChunkRows);
  void* out[2] = {bytes.data(), nullptr};
  for (const bool by_rows : {false, true}) {
    LoopRun run;
    MILLSTREAM_ASSIGN(bool ready, run.prepare(p, 0, columns, rows, kChunkRows, false, by_rows));
    if (!ready) return expr::evaluate_filter(*p.outputs[0], batch);
    bool failed = false;
    for (int64_t first = 0; first < rows && !failed; first += kChunkRows) {
      const int64_t count = std::min(kChunkRows, rows - first);
      failed = !run.run(first, nullptr, count, out);
      pack_bytes(bytes.data(), count, words.data() + first / 64);
    }
    if (failed && !by_rows && run.variant().may_fail_under_nulls) continue;
    if (failed) {
      count_batch(true);
      return expr::evaluate_filter(*p.outputs[0], batch);
    }
    take_nulls(with_nulls(run.variant().null_inputs[0], run.variant(), columns), rows, words.data());
    break;
  }
  int64_t found = 0;
  for (const uint64_t word : words) found += std::popcount(word);
  std::vector<int32_t> selected(static_cast<size_t>(found));
  select_rows(words.data(), word_count, selected.data());
  count_batch(false);
  return selected;
}

Result<bool> Program::pack(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count, int stride,
                           float* out) const {
  const Parts& p = *parts_;
  MILLSTREAM_CHECK(p.destination == Destination::kFloat32);
  if (count == 0) return true;
  if (p.lowered.loops.empty() || engine() == Engine::kInterpreter || !p.types_fit(batch)) return false;
  const bool texts = std::any_of(p.lowered.inputs.begin(), p.lowered.inputs.end(),
                                 [](const LoweredInput& input) { return input.type == Machine::kText; });
  if (rows &&
      (texts || !p.lowered.kernels.empty())) {  // kernels evaluate whole batches, loops read texts in place
    MILLSTREAM_ASSIGN(const auto taken, expr::take_rows(batch, std::vector<int32_t>(rows, rows + count)));
    return pack(*taken, nullptr, count, stride, out);
  }
  const auto kernels = p.run_kernels(batch, false);
  if (!kernels) return false;
  const auto columns = inputs_of(p.lowered, batch, *kernels);
  // Tiles of all results that the first-level cache holds.
  const int64_t chunk =
      std::clamp<int64_t>(4096 / static_cast<int64_t>(p.outputs.size()) / 64 * 64, 64, kChunkRows);
  std::vector<LoopRun> runs(p.lowered.loops.size());
  std::vector<std::vector<void*>> targets(runs.size());
  std::vector<float> tile(p.outputs.size() * static_cast<size_t>(chunk));
  for (size_t l = 0; l < runs.size(); ++l) {
    MILLSTREAM_ASSIGN(bool ready, runs[l].prepare(p, l, columns, count, chunk, rows != nullptr, true));
    if (!ready) return false;
    for (int output : runs[l].variant().outputs) {
      targets[l].push_back(tile.data() + output * chunk);
      targets[l].push_back(nullptr);
    }
  }
  for (int64_t first = 0; first < count; first += chunk) {
    const int64_t n = std::min(chunk, count - first);
    for (size_t l = 0; l < runs.size(); ++l) {
      if (runs[l].run(first, rows ? rows + first : nullptr, n, targets[l].data())) continue;
      count_batch(true);
      return false;
    }
    spread_rows(tile.data(), chunk, static_cast<int64_t>(p.outputs.size()), n, out + first * stride, stride);
  }
  count_batch(false);
  return true;
}

Status Program::compile() const {
  for (const auto& forms : parts_->forms) {
    const auto& form = forms[static_cast<size_t>(NullForm::kByWords)];
    if (form.code) MILLSTREAM_TRY(form.code->compile());
  }
  return Status::OK();
}

Report Program::report() const {
  Report report;
  report.loops = static_cast<int>(parts_->lowered.loops.size());
  for (const KernelUse& kernel : parts_->lowered.kernels) {
    if (!kernel.reason.empty()) report.kernels.push_back({kernel.expression->to_sql(), kernel.reason});
  }
  return report;
}

Result<std::string> Program::ir() const {
  MILLSTREAM_ASSIGN(const Compiler* compiler, open_compiler());
  std::string text;
  for (size_t l = 0; l < parts_->forms.size(); ++l) {
    std::set<const Code*> told;
    for (const auto& form : parts_->forms[l]) {
      if (!form.code || !told.insert(form.code.get()).second) continue;
      MILLSTREAM_ASSIGN(CompiledLoop compiled, compiler->compile(form.variant.loop, true));
      const bool nulls = std::any_of(form.variant.loop.inputs.begin(), form.variant.loop.inputs.end(),
                                     [](const LoopInput& input) { return input.nullable; });
      const char* which = nulls ? ", given which rows are NULL" : "";
      text += fmt::format("; loop {}{}, as generated\n{}\n; loop {}{}, optimised\n{}\n", l, which,
                          compiled.raw_ir, l, which, compiled.ir);
    }
  }
  return text;
}

}  // namespace millstream::jit
