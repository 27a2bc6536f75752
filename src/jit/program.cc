#include "jit/program.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "expr/kernel.h"
#include "expr/selection.h"
#include "jit/columns.h"
#include "jit/compiler.h"
#include "jit/lowering.h"

namespace millstream::jit {

namespace {

/// Rows that go through all loops before the next: what is made of them stays in the first-level cache, and calls
/// cost nothing.
constexpr int64_t kChunkRows = 1024;

}  // namespace

struct Program::Parts {
  std::shared_ptr<arrow::Schema> schema;
  std::vector<expr::ExprPtr> outputs;
  Destination destination = Destination::kColumn;
  Lowered lowered;
  /// A loop's code for batches that have NULLs where they may, and for those that have none.
  struct Variants {
    std::shared_ptr<Code> general, dense;
  };
  std::vector<Variants> code;

  static std::shared_ptr<const Parts> make(std::shared_ptr<arrow::Schema> schema,
                                           std::vector<expr::ExprPtr> outputs, Destination destination);
  bool types_fit(const arrow::RecordBatch& batch) const;
  Result<arrow::ArrayVector> interpret(const arrow::RecordBatch& batch) const;
  /// The columns that kernels make of the batch; nothing where one fails.
  std::optional<std::vector<std::shared_ptr<arrow::ArrayData>>> run_kernels(const arrow::RecordBatch& batch,
                                                                            bool all) const;
};

namespace {

/// One loop over one batch: its code, the columns that it reads, and memory for chunks of them.
class LoopRun {
 public:
  /// False: there is no code for it yet.
  template <class P>
  Result<bool> prepare(const P& parts, size_t index,
                       const std::vector<std::shared_ptr<arrow::ArrayData>>& columns, int64_t rows,
                       int64_t chunk, bool selected) {
    lowered_ = &parts.lowered.loops[index];
    bool nulls = false;
    for (size_t i = 0; i < lowered_->inputs.size(); ++i) {
      const arrow::ArrayData& data = *columns[static_cast<size_t>(lowered_->inputs[i])];
      if (!expr::has_nulls(data)) continue;
      // NULLs where none were promised are the interpreter's.
      if (!lowered_->loop.inputs[i].nullable) return false;
      nulls = true;
    }
    code_ = nulls ? parts.code[index].general : parts.code[index].dense;
    MILLSTREAM_ASSIGN(function_, code_->function(rows));
    if (!function_) return false;
    const Loop& loop = code_->loop();
    int64_t scratch = 0;
    for (size_t i = 0; i < lowered_->inputs.size(); ++i) {
      readers_.emplace_back(*columns[static_cast<size_t>(lowered_->inputs[i])], loop.inputs[i].type,
                            loop.inputs[i].nullable);
      value_at_.push_back(scratch);
      scratch += readers_.back().value_scratch(chunk, selected);
      validity_at_.push_back(loop.inputs[i].nullable ? scratch : -1);
      if (loop.inputs[i].nullable) scratch += chunk;
    }
    memory_.resize(static_cast<size_t>(scratch + 64));
    scratch_ = memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64) % 64;
    in_.resize(2 * lowered_->inputs.size() + 1);
    return true;
  }

  const Loop& loop() const { return code_->loop(); }
  const std::vector<int>& outputs() const { return lowered_->outputs; }

  /// False: a row failed.
  bool run(int64_t first, const int32_t* selected, int64_t count, void* const* out) {
    for (size_t i = 0; i < readers_.size(); ++i) {
      in_[2 * i] = readers_[i].values(first, selected, count, scratch_ + value_at_[i]);
      in_[2 * i + 1] = validity_at_[i] < 0
                           ? nullptr
                           : readers_[i].validity(first, selected, count, scratch_ + validity_at_[i]);
    }
    return function_(in_.data(), out, lowered_->parameters.data(), count) == 0;
  }

 private:
  const LoweredLoop* lowered_ = nullptr;
  std::shared_ptr<Code> code_;
  LoopFunction function_ = nullptr;
  std::vector<ChunkReader> readers_;
  std::vector<int64_t> value_at_, validity_at_;
  std::vector<uint8_t> memory_;
  uint8_t* scratch_ = nullptr;
  std::vector<const void*> in_;
};

/// A result column in the making.
struct OutputColumn {
  Machine machine = Machine::kBool;
  int expression = 0;
  std::shared_ptr<arrow::Buffer> values, validity;
  uint8_t value_bytes[kChunkRows];     // of booleans
  uint8_t validity_bytes[kChunkRows];  // where NULL is possible
  int64_t valid = 0;
};

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
    Variants variants;
    variants.general = Code::of(lowered.loop);
    Loop dense = lowered.loop;
    for (LoopInput& input : dense.inputs) input.nullable = false;
    dense.infer_nullable();
    variants.dense = Code::of(dense);
    parts->code.push_back(std::move(variants));
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

Result<arrow::ArrayVector> Program::evaluate(const arrow::RecordBatch& batch) const {
  const Parts& p = *parts_;
  MILLSTREAM_CHECK(p.destination == Destination::kColumn);
  const int64_t rows = batch.num_rows();
  if (rows == 0 || p.lowered.loops.empty() || engine() == Engine::kInterpreter || !p.types_fit(batch))
    return p.interpret(batch);
  // Is there code? Asked before kernels are run for it.
  const auto kernels = p.run_kernels(batch, true);
  if (!kernels) return p.interpret(batch);
  const auto columns = inputs_of(p.lowered, batch, *kernels);
  arrow::ArrayVector results(p.outputs.size());
  for (size_t l = 0; l < p.lowered.loops.size(); ++l) {
    LoopRun run;
    MILLSTREAM_ASSIGN(bool ready, run.prepare(p, l, columns, rows, kChunkRows, false));
    if (!ready) return p.interpret(batch);
    const Loop& loop = run.loop();
    std::vector<std::unique_ptr<OutputColumn>> made;
    for (size_t o = 0; o < loop.outputs.size(); ++o) {
      const Node& node = loop.nodes[static_cast<size_t>(loop.outputs[o].node)];
      auto column = std::make_unique<OutputColumn>();
      column->machine = node.type;
      column->expression = run.outputs()[o];
      const int64_t bytes =
          node.type == Machine::kBool ? expr::bitmap_bytes(rows) : rows * width_of(node.type);
      MILLSTREAM_ASSIGN(column->values, expr::allocate_values(bytes));
      if (node.nullable) {
        MILLSTREAM_ASSIGN(column->validity, expr::allocate_values(expr::bitmap_bytes(rows)));
      }
      made.push_back(std::move(column));
    }
    std::vector<void*> out(2 * made.size());
    for (int64_t first = 0; first < rows; first += kChunkRows) {
      const int64_t count = std::min(kChunkRows, rows - first);
      for (size_t o = 0; o < made.size(); ++o) {
        OutputColumn& column = *made[o];
        out[2 * o] = column.machine == Machine::kBool
                         ? column.value_bytes
                         : column.values->mutable_data() + first * width_of(column.machine);
        out[2 * o + 1] = column.validity ? column.validity_bytes : nullptr;
      }
      if (!run.run(first, nullptr, count, out.data())) {
        count_batch(true);
        return p.interpret(batch);
      }
      for (const auto& column : made) {
        if (column->machine == Machine::kBool)
          pack_bytes(column->value_bytes, count,
                     reinterpret_cast<uint64_t*>(column->values->mutable_data()) + first / 64);
        if (!column->validity) continue;
        pack_bytes(column->validity_bytes, count,
                   reinterpret_cast<uint64_t*>(column->validity->mutable_data()) + first / 64);
        column->valid += count_bytes(column->validity_bytes, count);
      }
    }
    for (const auto& column : made) {
      const int64_t nulls = column->validity ? rows - column->valid : 0;
      const auto e = static_cast<size_t>(column->expression);
      results[e] = arrow::MakeArray(arrow::ArrayData::Make(
          p.outputs[e]->type, rows,
          {nulls ? std::move(column->validity) : nullptr, std::move(column->values)}, nulls));
    }
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
  LoopRun run;
  MILLSTREAM_ASSIGN(bool ready, run.prepare(p, 0, columns, rows, kChunkRows, false));
  if (!ready) return expr::evaluate_filter(*p.outputs[0], batch);
  std::vector<int32_t> selected(static_cast<size_t>(rows + 1));
  int64_t found = 0;
  uint8_t bytes[kChunkRows];
  void* out[2] = {bytes, nullptr};
  for (int64_t first = 0; first < rows; first += kChunkRows) {
    const int64_t count = std::min(kChunkRows, rows - first);
    if (!run.run(first, nullptr, count, out)) {
      count_batch(true);
      return expr::evaluate_filter(*p.outputs[0], batch);
    }
    found += select_rows(bytes, count, static_cast<int32_t>(first), selected.data() + found);
  }
  count_batch(false);
  selected.resize(static_cast<size_t>(found));
  return selected;
}

Result<bool> Program::pack(const arrow::RecordBatch& batch, const int32_t* rows, int64_t count, int stride,
                           float* out) const {
  const Parts& p = *parts_;
  MILLSTREAM_CHECK(p.destination == Destination::kFloat32);
  if (count == 0) return true;
  if (p.lowered.loops.empty() || engine() == Engine::kInterpreter || !p.types_fit(batch)) return false;
  if (rows && !p.lowered.kernels.empty()) {  // these evaluate whole batches
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
    MILLSTREAM_ASSIGN(bool ready, runs[l].prepare(p, l, columns, count, chunk, rows != nullptr));
    if (!ready) return false;
    for (int output : runs[l].outputs()) {
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
  for (const auto& variants : parts_->code) MILLSTREAM_TRY(variants.general->compile());
  return Status::OK();
}

Report Program::report() const {
  Report report;
  report.loops = static_cast<int>(parts_->lowered.loops.size());
  for (const KernelUse& kernel : parts_->lowered.kernels)
    report.kernels.push_back({kernel.expression->to_sql(), kernel.reason});
  return report;
}

Result<std::string> Program::ir() const {
  MILLSTREAM_ASSIGN(const Compiler* compiler, open_compiler());
  std::string text;
  for (size_t l = 0; l < parts_->code.size(); ++l) {
    MILLSTREAM_ASSIGN(CompiledLoop compiled, compiler->compile(parts_->code[l].general->loop(), true));
    text += fmt::format("; loop {} as generated\n{}\n; loop {} optimised\n{}\n", l, compiled.raw_ir, l,
                        compiled.ir);
  }
  return text;
}

}  // namespace millstream::jit
