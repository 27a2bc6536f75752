#include "loader/survey.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

#include "base/bytes.h"
#include "base/check.h"
#include "base/cpu_share.h"
#include "base/hash.h"
#include "base/kill_point.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/trace.h"
#include "features/row_packer.h"
#include "loader/count_values.h"
#include "loader/survey_cache.h"

namespace millstream::loader {
namespace {

constexpr int kFewEntryPoints = 16;
constexpr uint32_t kFormat = 5;
// Of the memory for counting a column's values each thread has at least so much.
constexpr int64_t kLeastCountingBytes = int64_t{64} << 10;

void encode_pieces(ByteWriter& out, const std::vector<Piece>& pieces) {
  out.value<uint64_t>(pieces.size());
  for (const Piece& piece : pieces) {
    out.value(piece.entry_point);
    out.value(piece.block);
    out.value(piece.file);
    out.value(piece.rows);
    out.value<uint64_t>(piece.batches.size());
    for (const PieceBatch& batch : piece.batches) {
      out.value(batch.rows);
      out.value(batch.bytes);
      out.value(batch.offset);
      out.text(batch.types);
    }
  }
}

std::vector<Piece> decode_pieces(ByteReader& in) {
  std::vector<Piece> pieces;
  const auto count = in.value<uint64_t>();
  for (uint64_t i = 0; i < count && in.ok(); ++i) {
    Piece piece;
    piece.entry_point = in.value<int32_t>();
    piece.block = in.value<int32_t>();
    piece.file = in.value<int32_t>();
    piece.rows = in.value<int64_t>();
    const auto batches = in.value<uint64_t>();
    for (uint64_t k = 0; k < batches && in.ok(); ++k) {
      PieceBatch batch;
      batch.rows = in.value<int32_t>();
      batch.bytes = in.value<int32_t>();
      batch.offset = in.value<int64_t>();
      batch.types = in.text();
      piece.batches.push_back(std::move(batch));
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

// What a block gave to one pass, on its way between ranks.
struct BlockFits {
  int32_t entry_point = 0;
  int32_t block = 0;
  std::vector<features::Moments> moments;
};

// What an entry point gave to the fits of one pass that are no moments: its blocks' states merged in their order.
struct EntryFits {
  int32_t entry_point = 0;
  int32_t block = 0;  // of the first block; for sort_by_block
  std::vector<features::FitState> states;
};

// What one rank found in one pass.
struct PassFindings {
  std::vector<BlockCounts> counts;
  std::vector<BlockFits> fits;
  std::vector<EntryFits> entry_fits;
  std::vector<Piece> train_pieces, valid_pieces;
  std::vector<LedgerEntry> ledger;
  uint8_t no_room = 0;  // for all the rows

  void append(PassFindings&& other) {
    const auto append_to = [](auto& into, auto& from) {
      into.insert(into.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    append_to(counts, other.counts);
    append_to(fits, other.fits);
    append_to(entry_fits, other.entry_fits);
    append_to(train_pieces, other.train_pieces);
    append_to(valid_pieces, other.valid_pieces);
    append_to(ledger, other.ledger);
    no_room |= other.no_room;
  }

  std::string encode() const {
    ByteWriter out;
    out.values(counts);
    out.value<uint64_t>(fits.size());
    for (const BlockFits& fit : fits) {
      out.value(fit.entry_point);
      out.value(fit.block);
      out.values(fit.moments);
    }
    out.value<uint64_t>(entry_fits.size());
    for (const EntryFits& fit : entry_fits) {
      out.value(fit.entry_point);
      out.value<uint64_t>(fit.states.size());
      for (const features::FitState& state : fit.states) out.text(state.encode());
    }
    encode_pieces(out, train_pieces);
    encode_pieces(out, valid_pieces);
    out.values(ledger);
    out.value(no_room);
    return out.take();
  }
  static Result<PassFindings> decode(std::string_view bytes) {
    ByteReader in(bytes);
    PassFindings found;
    found.counts = in.values<BlockCounts>();
    const auto fits = in.value<uint64_t>();
    for (uint64_t i = 0; i < fits && in.ok(); ++i) {
      BlockFits fit;
      fit.entry_point = in.value<int32_t>();
      fit.block = in.value<int32_t>();
      fit.moments = in.values<features::Moments>();
      found.fits.push_back(std::move(fit));
    }
    const auto entries = in.value<uint64_t>();
    for (uint64_t i = 0; i < entries && in.ok(); ++i) {
      EntryFits fit;
      fit.entry_point = in.value<int32_t>();
      const auto states = in.value<uint64_t>();
      for (uint64_t k = 0; k < states && in.ok(); ++k) {
        MILLSTREAM_ASSIGN(auto state, features::FitState::decode(in.text()));
        fit.states.push_back(std::move(state));
      }
      found.entry_fits.push_back(std::move(fit));
    }
    found.train_pieces = decode_pieces(in);
    found.valid_pieces = decode_pieces(in);
    found.ledger = in.values<LedgerEntry>();
    found.no_room = in.value<uint8_t>();
    if (!in.done()) return bug_error("the survey's findings of another rank are not readable");
    return found;
  }
};

template <class T>
void sort_by_block(std::vector<T>& items) {
  std::sort(items.begin(), items.end(), [](const T& a, const T& b) {
    return std::pair(a.entry_point, a.block) < std::pair(b.entry_point, b.block);
  });
}

// The first `limit` rows of a table end within this block; everything before it is used whole.
struct RowLimit {
  int entry_point = INT32_MAX;
  int block = 0;
  int64_t rows = 0;
  int64_t of(int entry, int index) const {
    if (entry != entry_point) return entry < entry_point ? INT64_MAX : 0;
    return index != block ? (index < block ? INT64_MAX : 0) : rows;
  }
};

// The entry points that each rank reads: the largest first, each to the rank with the fewest bytes so far.
std::vector<int> deal_entry_points(const exec::BlockSource& source, int end, int rank, int size) {
  std::vector<std::pair<int64_t, int>> by_bytes;
  for (int i = 0; i < end; ++i) {
    by_bytes.push_back({source.table().column_bytes(i, source.pipeline().columns), i});
  }
  std::sort(by_bytes.begin(), by_bytes.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  std::vector<int64_t> load(size, 0);
  std::vector<int> mine;
  for (const auto& [bytes, entry_point] : by_bytes) {
    const auto least = std::min_element(load.begin(), load.end()) - load.begin();
    load[least] += bytes + 1;
    if (least == rank) mine.push_back(entry_point);
  }
  std::sort(mine.begin(), mine.end());
  return mine;
}

// Where counted values go: to the rank's counter or, as long as it is not known whether the entry point can be read
// whole, to a table of its own.
struct CountSink {
  features::ValueCounter* counter = nullptr;
  int thread = 0;
  features::CountTable* table = nullptr;

  Status add(const arrow::StringArray& texts) const {
    return table != nullptr ? table->add(texts) : counter->add(thread, texts);
  }
  Status add(const double* values, int64_t count) const {
    return table != nullptr ? table->add(values, count) : counter->add(thread, values, count);
  }
};

// Adds what the training rows say to `state` or, of counts, to `sink`; nulls are left out. `scratch` is reused from
// block to block.
Status add_to_fit(const features::FitRequest& fit, const arrow::RecordBatch& batch,
                  const SelectedRows& selected, std::vector<double>* scratch, features::FitState* state,
                  const CountSink& sink) {
  const expr::Expression& expression = *fit.expression;
  const std::string& column = fit.column;
  std::vector<double>* out = scratch;
  const auto add = [&](int64_t count) {
    const Status added = fit.kind == features::FitKind::kCounts ? sink.add(out->data(), count)
                                                                : state->add(fit.kind, out->data(), count);
    return added.ok() ? added : with_context(added, fmt::format("{} of column '{}'", fit.step, column));
  };
  if (fit.kind == features::FitKind::kTargets) {
    const auto input = selected.all_train ? batch.Slice(0) : nullptr;
    std::shared_ptr<arrow::RecordBatch> taken = input;
    if (taken == nullptr) {
      MILLSTREAM_ASSIGN(taken, expr::take_rows(batch, selected.train));
    }
    const auto located = [&](const Status& status) {
      const auto position = error_position(status);
      if (!position || selected.all_train) return status;
      return with_category(status, error_category(status),
                           SourcePosition{0, selected.train[static_cast<size_t>(position->row)]});
    };
    std::shared_ptr<arrow::Array> arrays[3];
    const expr::ExprPtr expressions[3] = {fit.expression, fit.target, fit.fold};
    for (int i = 0; i < 3; ++i) {
      auto evaluated = expr::evaluate(*expressions[i], *taken);
      if (!evaluated.ok())
        return located(with_context(evaluated.status(), fmt::format("feature '{}'", column)));
      arrays[i] = std::move(*evaluated);
    }
    const Status added = state->add_targets(*arrays[0], *arrays[1], *arrays[2], fit.num_folds);
    return added.ok() ? added : with_context(added, fmt::format("{} of column '{}'", fit.step, column));
  }
  out->resize(selected.train_rows);
  const int32_t* rows = selected.all_train ? nullptr : selected.train.data();
  const expr::Expression* plain = &expression;
  if (plain->kind == expr::Kind::kCast && !plain->try_cast) plain = plain->arguments[0].get();
  // Of texts made of numbers (one_hot) it is the texts that count.
  // Doubles that all count are taken where they are.
  if (rows == nullptr && fit.kind == features::FitKind::kMoments && plain->kind == expr::Kind::kColumn &&
      batch.column(plain->column)->type_id() == arrow::Type::DOUBLE &&
      batch.column(plain->column)->null_count() == 0) {
    const auto& values = static_cast<const arrow::DoubleArray&>(*batch.column(plain->column));
    return state->add(fit.kind, values.raw_values(), selected.train_rows);
  }
  if (expression.type->id() == arrow::Type::DOUBLE && plain->kind == expr::Kind::kColumn &&
      batch.column(plain->column)->null_count() == 0 &&
      features::copy_as_double(*batch.column(plain->column), rows, selected.train_rows, out->data())) {
    return add(selected.train_rows);
  }
  std::shared_ptr<arrow::RecordBatch> taken;
  const arrow::RecordBatch* input = &batch;
  if (rows != nullptr) {
    MILLSTREAM_ASSIGN(taken, expr::take_rows(batch, selected.train));
    input = taken.get();
  }
  const auto row_of = [&](int64_t i) { return SourcePosition{0, rows ? rows[i] : i}; };
  auto evaluated = expr::evaluate(expression, *input);
  if (!evaluated.ok()) {
    const Status status = with_context(evaluated.status(), fmt::format("feature '{}'", column));
    const auto position = error_position(status);
    return position ? with_category(status, error_category(status), row_of(position->row)) : status;
  }
  if ((*evaluated)->type_id() == arrow::Type::STRING) {
    const Status added = sink.add(static_cast<const arrow::StringArray&>(**evaluated));
    return added.ok() ? added : with_context(added, fmt::format("{} of column '{}'", fit.step, column));
  }
  const auto& values = static_cast<const arrow::DoubleArray&>(**evaluated);
  int64_t count = 0;
  for (int64_t i = 0; i < values.length(); ++i) {
    (*out)[count] = values.Value(i);
    count += !values.IsNull(i);
  }
  if (features::first_not_finite(out->data(), count) >= 0) {
    for (int64_t i = 0; i < values.length(); ++i) {
      if (values.IsNull(i) || std::isfinite(values.Value(i))) continue;
      return make_error(
          ErrorCategory::kData,
          fmt::format("feature '{}' is {} before its fit; leave such rows out in the WHERE, or change its "
                      "steps",
                      column, std::isnan(values.Value(i)) ? "NaN" : "infinite"),
          row_of(i));
    }
  }
  return add(count);
}

// One pass over one table by this rank's threads.
struct TablePass {
  const exec::BlockSource* source = nullptr;
  RowRules rules;
  RowLimit limit;
  std::vector<int> entry_points;
  bool count = false;  // the first pass
  bool skip_corrupt = false;
  std::vector<features::FitRequest> fits;
  std::vector<std::unique_ptr<features::ValueCounter>> counters;  // of those that count values; else null
  int64_t sketch_capacity = 0;
  PieceWriter* writer = nullptr;
  int rank = 0;

  // A row group that can't be decoded leaves nothing behind but its place in the ledger, where that is wanted.
  Status read_entry_point(int entry_point, int thread, PassFindings* found) const {
    PassFindings here;
    bool read_failed = false;
    // By fit; used where the entry point may yet be skipped.
    std::vector<features::CountTable> tables(skip_corrupt ? fits.size() : 0);
    Status status = read_blocks(entry_point, thread, &here, &tables, &read_failed);
    if (!status.ok() && skip_corrupt && read_failed) {
      const plan::EntryPoint& entry = source->table().entry_points()[static_cast<size_t>(entry_point)];
      notice_f("left out, as on_corrupt = \"skip\" says: {}", status.message());
      if (count)
        found->ledger.push_back({entry.file, -1, static_cast<int32_t>(DropReason::kCorrupt), 1,
                                 std::max<int64_t>(entry.rows, 0)});
      return Status::OK();
    }
    found->append(std::move(here));
    for (size_t i = 0; i < tables.size() && status.ok(); ++i) {
      if (counters[i] == nullptr) continue;
      status = counters[i]->add(thread, tables[i]);
      if (!status.ok())
        status = with_context(status, fmt::format("{} of column '{}'", fits[i].step, fits[i].column));
    }
    return status;
  }

  Status read_blocks(int entry_point, int thread, PassFindings* found,
                     std::vector<features::CountTable>* tables, bool* read_failed) const {
    auto opened = source->open(entry_point);
    *read_failed = !opened.ok();
    MILLSTREAM_ASSIGN(const auto stream, std::move(opened));
    SelectedRows selected;
    std::vector<double> values;
    EntryFits entry_fits{entry_point, 0, std::vector<features::FitState>(fits.size())};
    bool any_state = false;
    for (size_t i = 0; i < fits.size(); ++i) {
      entry_fits.states[i].quantiles = features::QuantileSketch(sketch_capacity);
      any_state = any_state ||
                  (fits[i].kind != features::FitKind::kMoments && fits[i].kind != features::FitKind::kCounts);
    }
    const auto finish = [&] {
      if (!any_state) return;
      for (features::FitState& state : entry_fits.states) {
        state.moments = {};
        state.quantiles.shrink();
      }
      found->entry_fits.push_back(std::move(entry_fits));
    };
    for (int index = 0;; ++index) {
      TraceSpan span("survey block", entry_point);
      auto next = stream->next();
      *read_failed = !next.ok() && stream->read_failed();
      MILLSTREAM_ASSIGN(auto block, std::move(next));
      beat();
      const int64_t limit_here = block ? limit.of(entry_point, index) : 0;
      if (limit_here == 0) {
        finish();
        return Status::OK();
      }
      kill_point("survey.block");
      MILLSTREAM_TRY(rules.select(entry_point, *block, limit_here, &selected));
      if (count) {
        found->counts.push_back({.entry_point = entry_point,
                                 .block = index,
                                 .rows_read = block->rows_read,
                                 .survived = block->rows->num_rows(),
                                 .used = std::min(limit_here, block->rows->num_rows()),
                                 .dropped = selected.dropped,
                                 .train = selected.train_rows,
                                 .valid = selected.valid_rows});
        const int32_t file = source->table().entry_points()[static_cast<size_t>(entry_point)].file;
        for (size_t rule = 0; rule < selected.dropped_by.size(); ++rule) {
          for (int32_t reason = 0; reason < kValueReasons; ++reason) {
            const int64_t rows = selected.dropped_by[rule][static_cast<size_t>(reason)];
            if (rows > 0) found->ledger.push_back({file, static_cast<int32_t>(rule), reason, 0, rows});
          }
        }
      }
      if (!fits.empty() && selected.train_rows > 0) {
        BlockFits block_fits{entry_point, index, {}};
        for (size_t i = 0; i < fits.size(); ++i) {
          entry_fits.states[i].moments = {};
          const CountSink sink{counters[i].get(), thread, tables->empty() ? nullptr : &(*tables)[i]};
          const Status added =
              add_to_fit(fits[i], *block->rows, selected, &values, &entry_fits.states[i], sink);
          if (!added.ok()) return locate_error(added, source->table(), entry_point, *block);
          block_fits.moments.push_back(entry_fits.states[i].moments);
        }
        found->fits.push_back(std::move(block_fits));
      }
      if (writer != nullptr) {
        const auto write = [&](const int32_t* rows, int64_t num_rows, std::vector<Piece>* pieces) -> Status {
          if (num_rows == 0) return Status::OK();
          Piece piece{.entry_point = entry_point, .block = index, .file = rank};
          MILLSTREAM_TRY(writer->append(*block->rows, rows, num_rows, &piece));
          pieces->push_back(std::move(piece));
          return Status::OK();
        };
        MILLSTREAM_TRY(write(selected.all_train ? nullptr : selected.train.data(), selected.train_rows,
                             &found->train_pieces));
        MILLSTREAM_TRY(write(selected.valid.data(), selected.valid_rows, &found->valid_pieces));
      }
    }
  }

  // All of this rank's entry points. Of several errors the one that comes first in the data is returned, whatever
  // the threads did: entry points before a failed one are still read.
  Status run(int threads, PassFindings* found) const {
    std::vector<PassFindings> findings(threads);
    std::vector<Status> statuses(threads);
    std::atomic<size_t> next{0};
    std::atomic<int> failed_entry_point{INT32_MAX};
    const auto work = [&](int thread) {
      for (;;) {
        const size_t i = next.fetch_add(1);
        if (i >= entry_points.size() || entry_points[i] > failed_entry_point.load()) return;
        const Status status = read_entry_point(entry_points[i], thread, &findings[thread]);
        if (status.ok()) continue;
        int lowest = failed_entry_point.load();
        while (entry_points[i] < lowest &&
               !failed_entry_point.compare_exchange_weak(lowest, entry_points[i])) {
        }
        if (statuses[thread].ok() || reported_before(status, 0, statuses[thread], 0))
          statuses[thread] = status;
        return;
      }
    };
    std::vector<std::thread> workers;
    for (int i = 1; i < threads; ++i) workers.emplace_back(work, i);
    work(0);
    for (std::thread& worker : workers) worker.join();
    Status first;
    for (int i = 0; i < threads; ++i) {
      if (!statuses[i].ok() && (first.ok() || reported_before(statuses[i], 0, first, 0))) first = statuses[i];
      found->append(std::move(findings[i]));
    }
    return first;
  }
};

// Where the first `limit_rows` rows of the table end. Rank 0 reads up to there; that is little, or the limit is large
// and everything is read twice, which is the price of trying out.
Result<RowLimit> find_limit(const SurveyRequest& request, const exec::BlockSource& source) {
  comm::Job& job = *request.job;
  const int64_t limit_rows = request.limit_rows;
  RowLimit limit;
  if (limit_rows <= 0) return limit;
  Status status;
  if (job.rank() == 0) {
    status = [&]() -> Status {
      int64_t left = limit_rows;
      const int num_entry_points = static_cast<int>(source.table().entry_points().size());
      for (int entry_point = 0; entry_point < num_entry_points; ++entry_point) {
        const int64_t left_before = left;
        auto opened = source.open(entry_point);
        if (!opened.ok() && request.skip_corrupt) continue;
        MILLSTREAM_ASSIGN(const auto stream, std::move(opened));
        for (int index = 0;; ++index) {
          auto next = stream->next();
          if (!next.ok() && request.skip_corrupt && stream->read_failed()) {
            left = left_before;
            break;
          }
          MILLSTREAM_ASSIGN(const auto block, std::move(next));
          beat();
          if (!block) break;
          if (block->rows->num_rows() >= left) {
            limit = {entry_point, index, left};
            return Status::OK();
          }
          left -= block->rows->num_rows();
        }
      }
      return Status::OK();
    }();
  }
  MILLSTREAM_TRY(request.phase->agree(status));
  MILLSTREAM_TRY(job.world().broadcast(&limit, sizeof(limit), 0));
  return limit;
}

// A pass by all ranks: what all of them found, in block order.
Result<PassFindings> run_pass(const SurveyRequest& request, const TablePass& pass) {
  comm::Job& job = *request.job;
  PassFindings mine;
  Status status = pass.run(request.threads, &mine);
  if (status.ok() && pass.writer != nullptr && pass.writer->full()) {
    mine.no_room = 1;
    if (!request.keep_if_possible) {
      status = usage_error(
          "loader.cache is \"memory\", and the prepared rows of rank {} need more than the {} that they may "
          "have, "
          "half of its budget: give more with --memory, or take \"disk\" or \"auto\"",
          job.rank(), format_bytes(request.memory_limit));
    }
  }
  MILLSTREAM_TRY(request.phase->agree(status));
  MILLSTREAM_ASSIGN(const auto gathered, job.world().allgather_bytes(mine.encode()));
  PassFindings all;
  for (const std::string& bytes : gathered) {
    MILLSTREAM_ASSIGN(PassFindings found, PassFindings::decode(bytes));
    all.append(std::move(found));
  }
  sort_by_block(all.counts);
  sort_by_block(all.fits);
  sort_by_block(all.entry_fits);
  sort_by_block(all.train_pieces);
  sort_by_block(all.valid_pieces);
  return all;
}

// Of the data: neither the schedule nor the shape of the job is in it.
std::string survey_key(const SurveyRequest& request) {
  Digest key;
  const auto add = [&](const std::string& text) {
    key.add(fmt::format("{}:", text.size()));
    key.add(text);
  };
  add(fmt::format("{} {} {} {}", kFormat, request.split->normal_form(), request.limit_rows,
                  request.skip_corrupt));
  add(request.plan->normal_form());
  for (const exec::BlockSource* source : {request.train, request.valid}) {
    if (source == nullptr) {
      add("no validation query");
      continue;
    }
    add(source->pipeline().normal_form());
    for (const plan::SourceFile& file : source->table().files()) {
      add(file.name);
      add(file.fingerprint);
    }
  }
  return key.hex();
}

Status check_counts(const TableCounts& counts, const char* which) {
  if (counts.used > 0 && counts.rows_train > 0) return Status::OK();
  if (counts.rows_read == 0) return failed_error("the {} query has no rows: its files hold none", which);
  if (counts.survived == 0) {
    return failed_error("the {} query has no rows: {} were read and the WHERE left none", which,
                        counts.rows_read);
  }
  if (counts.dropped == counts.used) {
    return failed_error(
        "the {} query has no usable rows: of {} read the WHERE left {}, and all of them were dropped for "
        "nulls (on_null = \"drop\")",
        which, counts.rows_read, counts.survived);
  }
  return failed_error(
      "no rows are left to train on: of {} read the WHERE left {}, {} were dropped for nulls, {} went "
      "to validation and {} are beyond the limit or for the test",
      counts.rows_read, counts.survived, counts.dropped, counts.rows_valid,
      counts.survived - counts.dropped - counts.rows_valid);
}

Result<std::vector<std::shared_ptr<PieceFile>>> open_pieces(const std::string& entry, const Survey& survey) {
  std::vector<std::shared_ptr<PieceFile>> files;
  for (int64_t i = 0; i < survey.num_piece_files; ++i) {
    const std::string path = SurveyCache::piece_path(entry, static_cast<int>(i));
    MILLSTREAM_ASSIGN(auto file, PieceFile::open(path));
    if (file->size() != survey.piece_file_bytes[i]) {
      return file_error("the cache file {} has {} bytes, {} were written", path, file->size(),
                        survey.piece_file_bytes[i]);
    }
    files.push_back(std::move(file));
  }
  return files;
}

Status fit(features::FeaturePlan& plan, const Survey& survey) {
  for (const auto& fits : survey.fits) MILLSTREAM_TRY(plan.provide(fits));
  return Status::OK();
}

// By the footers; where only reading tells (CSV) the bytes do: a row of text has hardly fewer than 16.
int64_t estimated_rows(const plan::SourceTable& table) {
  int64_t rows = 0;
  for (const plan::EntryPoint& entry : table.entry_points())
    rows += entry.rows >= 0 ? entry.rows : entry.bytes / 16;
  return rows;
}

// A pass over a table for whoever reads it first.
Result<TablePass> first_pass(const SurveyRequest& request, bool is_train, PieceWriter* writer) {
  comm::Job& job = *request.job;
  const exec::BlockSource& source = is_train ? *request.train : *request.valid;
  MILLSTREAM_ASSIGN(const RowLimit limit, find_limit(request, source));
  const int num_entry_points = static_cast<int>(source.table().entry_points().size());
  const int end = static_cast<int>(std::min<int64_t>(num_entry_points, int64_t{limit.entry_point} + 1));
  return TablePass{
      .source = &source,
      .rules = RowRules(source.table(), request.plan->rules(), is_train ? *request.split : Split()),
      .limit = limit,
      .entry_points = deal_entry_points(source, end, job.rank(), job.size()),
      .skip_corrupt = request.skip_corrupt,
      .sketch_capacity = estimated_rows(source.table()) <= features::kExactQuantileRows
                             ? features::kExactQuantileRows
                             : features::kSketchCapacity,
      .writer = writer,
      .rank = job.rank()};
}

// The values that fits counted are kept in a file of their own, as there may be many.
std::vector<features::CountedValues*> counted_of(Survey* survey) {
  std::vector<features::CountedValues*> counted;
  for (auto& fits : survey->fits) {
    for (features::FitState& fit : fits) {
      if (fit.counted.values != nullptr) counted.push_back(&fit.counted);
    }
  }
  return counted;
}

Status write_values(const std::string& entry, Survey& survey) {
  const auto counted = counted_of(&survey);
  if (counted.empty()) return Status::OK();
  const std::string path = SurveyCache::values_path(entry);
  std::ofstream file(path, std::ios::binary);
  for (const features::CountedValues* values : counted) {
    const expr::TextList& list = *values->values;
    Digest digest;
    digest.add(list.ends.data(), list.ends.size() * sizeof(uint32_t));
    digest.add(list.bytes);
    const uint64_t sizes[2] = {list.ends.size(), list.bytes.size()};
    file << digest.hex();
    file.write(reinterpret_cast<const char*>(sizes), sizeof(sizes));
    file.write(reinterpret_cast<const char*>(list.ends.data()),
               static_cast<std::streamsize>(list.ends.size() * sizeof(uint32_t)));
    file.write(list.bytes.data(), static_cast<std::streamsize>(list.bytes.size()));
  }
  file.flush();
  if (!file) return file_error("the cache file {} can't be written: {}", path, std::strerror(errno));
  return Status::OK();
}

Status read_values_here(const std::string& entry, const std::vector<features::CountedValues*>& counted) {
  const std::string path = SurveyCache::values_path(entry);
  const auto bad = [&] { return file_error("the cache file {} is damaged", path); };
  std::error_code error;
  const auto file_bytes = std::filesystem::file_size(path, error);
  std::ifstream file(path, std::ios::binary);
  if (error || !file) return bad();
  for (features::CountedValues* values : counted) {
    auto list = std::make_shared<expr::TextList>();
    std::string stored(32, '\0');
    uint64_t sizes[2] = {};
    file.read(stored.data(), static_cast<std::streamsize>(stored.size()));
    file.read(reinterpret_cast<char*>(sizes), sizeof(sizes));
    if (!file || sizes[0] > file_bytes / sizeof(uint32_t) || sizes[1] > file_bytes) return bad();
    list->ends.resize(sizes[0]);
    list->bytes.resize(sizes[1]);
    file.read(reinterpret_cast<char*>(list->ends.data()),
              static_cast<std::streamsize>(sizes[0] * sizeof(uint32_t)));
    file.read(list->bytes.data(), static_cast<std::streamsize>(sizes[1]));
    Digest digest;
    digest.add(list->ends.data(), list->ends.size() * sizeof(uint32_t));
    digest.add(list->bytes);
    if (!file || digest.hex() != stored) return bad();
    values->values = std::move(list);
  }
  return Status::OK();
}

// By rank 0 for all ranks. Collective, and so are its errors.
Status read_values(comm::Job& job, const std::string& entry, Survey* survey) {
  const auto counted = counted_of(survey);
  if (counted.empty()) return Status::OK();
  Status status;
  if (job.rank() == 0) status = read_values_here(entry, counted);
  uint8_t read = status.ok();
  MILLSTREAM_TRY(job.world().broadcast(&read, sizeof(read), 0));
  if (!read) return status.ok() ? file_error("rank 0 can't read the values in the cache") : status;
  for (features::CountedValues* values : counted) MILLSTREAM_TRY(broadcast_values(job, values));
  return Status::OK();
}

// The pieces of a pass, unless there was no room for all rows.
void keep_pieces(PassFindings& found, bool is_train, bool has_valid_query, Survey* survey) {
  if (found.no_room) survey->has_pieces = false;
  if (!survey->has_pieces) {
    survey->train_pieces.clear();
    survey->valid_pieces.clear();
  } else if (is_train) {
    survey->train_pieces = std::move(found.train_pieces);
    if (!has_valid_query) survey->valid_pieces = std::move(found.valid_pieces);
  } else {
    survey->valid_pieces = std::move(found.train_pieces);
  }
}

// An entry for each file, rule and reason.
std::vector<LedgerEntry> in_order(std::vector<LedgerEntry> entries) {
  std::map<std::tuple<int32_t, int32_t, int32_t>, LedgerEntry> sums;
  for (const LedgerEntry& entry : entries) {
    const auto [sum, added] = sums.try_emplace({entry.file, entry.rule, entry.reason}, entry);
    if (added) continue;
    sum->second.row_groups += entry.row_groups;
    sum->second.rows += entry.rows;
  }
  entries.clear();
  for (const auto& [key, sum] : sums) entries.push_back(sum);
  return entries;
}

// Everything that reads the data; the result is the same on every rank.
Result<Survey> survey_data(const SurveyRequest& request, PieceWriter* writer) {
  Survey survey;
  survey.has_pieces = writer != nullptr;
  // One for each fit of kind kCounts, which share the memory.
  const auto counters_for = [&](const std::vector<features::FitRequest>& fits) {
    const auto counts = [](const features::FitRequest& fit) {
      return fit.kind == features::FitKind::kCounts;
    };
    const int64_t number = std::max<int64_t>(1, std::count_if(fits.begin(), fits.end(), counts));
    const int64_t memory = std::max(request.counting_memory / number, request.threads * kLeastCountingBytes);
    std::vector<std::unique_ptr<features::ValueCounter>> counters;
    for (const features::FitRequest& fit : fits) {
      auto& counter = counters.emplace_back();
      if (!counts(fit)) continue;
      counter = std::make_unique<features::ValueCounter>(fit.order(), request.threads, memory,
                                                         SurveyCache(request.cache_directory).directory());
    }
    return counters;
  };
  const auto read_table = [&](bool is_train) -> Result<TableCounts> {
    MILLSTREAM_ASSIGN(TablePass pass, first_pass(request, is_train, survey.has_pieces ? writer : nullptr));
    pass.count = true;
    TableCounts counts;
    for (int number = 0;; ++number) {
      if (is_train) pass.fits = request.plan->pending();
      if (number > 0 && pass.fits.empty()) break;
      pass.counters = counters_for(pass.fits);
      MILLSTREAM_ASSIGN(PassFindings found, run_pass(request, pass));
      if (number == 0) {
        counts.blocks = std::move(found.counts);
        counts.index(static_cast<int>(pass.source->table().entry_points().size()));
        counts.ledger = in_order(std::move(found.ledger));
        // What was skipped is not read again.
        std::erase_if(pass.entry_points, [&](int entry) {
          return counts.first_block[static_cast<size_t>(entry)] ==
                 counts.first_block[static_cast<size_t>(entry) + 1];
        });
        MILLSTREAM_TRY(check_counts(counts, is_train ? "training" : "validation"));
        keep_pieces(found, is_train, request.valid != nullptr, &survey);
      }
      if (!pass.fits.empty()) {
        std::vector<features::FitState> fits(pass.fits.size());
        for (size_t i = 0; i < fits.size(); ++i) {
          fits[i].quantiles = features::QuantileSketch(pass.sketch_capacity);
          for (const BlockFits& block : found.fits)
            features::merge_moments(fits[i].moments, block.moments[i]);
          for (const EntryFits& entry : found.entry_fits) {
            const Status merged = fits[i].merge(entry.states[i]);
            if (!merged.ok()) {
              return with_context(merged,
                                  fmt::format("{} of column '{}'", pass.fits[i].step, pass.fits[i].column));
            }
          }
        }
        for (size_t i = 0; i < fits.size(); ++i) {
          if (pass.counters[i] == nullptr) continue;
          int64_t spilled = 0;
          MILLSTREAM_ASSIGN(fits[i].counted, count_together(*request.job, *request.phase, *pass.counters[i],
                                                            pass.fits[i], request.threads, &spilled));
          survey.spilled_bytes += spilled;
          pass.counters[i] = nullptr;
        }
        MILLSTREAM_TRY(request.plan->provide(fits));
        survey.fits.push_back(std::move(fits));
      }
      pass.count = false;
      pass.writer = nullptr;
    }
    return counts;
  };
  MILLSTREAM_ASSIGN(survey.train, read_table(true));
  if (request.valid != nullptr) {
    MILLSTREAM_ASSIGN(survey.valid, read_table(false));
  }
  return survey;
}

// Reads the rows of a known survey, to keep them.
Status read_pieces(const SurveyRequest& request, PieceWriter* writer, Survey* survey) {
  survey->has_pieces = true;
  for (const bool is_train : {true, false}) {
    if (!survey->has_pieces || (!is_train && request.valid == nullptr)) break;
    MILLSTREAM_ASSIGN(TablePass pass, first_pass(request, is_train, writer));
    MILLSTREAM_ASSIGN(PassFindings found, run_pass(request, pass));
    keep_pieces(found, is_train, request.valid != nullptr, survey);
  }
  const auto rows_of = [](const std::vector<Piece>& pieces) {
    int64_t rows = 0;
    for (const Piece& piece : pieces) rows += piece.rows;
    return rows;
  };
  const int64_t valid_rows = survey->valid ? survey->valid->rows_train : survey->train.rows_valid;
  if (survey->has_pieces && (rows_of(survey->train_pieces) != survey->train.rows_train ||
                             rows_of(survey->valid_pieces) != valid_rows)) {
    return file_error(
        "the data has other rows than when it was surveyed: a file changed and kept its size and time");
  }
  return Status::OK();
}

// The bytes of each rank's file that pieces lie in.
void set_file_bytes(Survey* survey, int num_ranks) {
  survey->num_piece_files = survey->has_pieces ? num_ranks : 0;
  survey->piece_file_bytes.assign(survey->num_piece_files, 0);
  for (const auto* pieces : {&survey->train_pieces, &survey->valid_pieces}) {
    for (const Piece& piece : *pieces) {
      for (const PieceBatch& batch : piece.batches) {
        int64_t& bytes = survey->piece_file_bytes[piece.file];
        bytes = std::max(bytes, batch.offset + batch.bytes);
      }
    }
  }
}

// Every rank opens what all ranks keep in memory. Where that can't be the rows are not kept.
Status open_memory(const SurveyRequest& request, PieceWriter& writer, SurveyOutcome* outcome) {
  comm::Job& job = *request.job;
  Survey& survey = outcome->survey;
  set_file_bytes(&survey, job.size());
  if (!survey.has_pieces) {
    notice_f("the prepared rows are not kept in memory: they need more than {}, half of a rank's budget",
             format_bytes(request.memory_limit));
    return Status::OK();
  }
  MILLSTREAM_ASSIGN(const auto paths, job.world().allgather_bytes(writer.path()));
  Status status;
  std::vector<std::shared_ptr<PieceFile>> files;
  for (int rank = 0; rank < job.size() && status.ok(); ++rank) {
    auto file = PieceFile::open_in_memory(paths[rank]);
    if (file.ok() && (*file)->size() >= survey.piece_file_bytes[rank]) {
      files.push_back(std::move(*file));
      continue;
    }
    status = usage_error(
        "rank {} can't read the rows that rank {} keeps in memory (all ranks must be on one host and of one "
        "user); "
        "take loader.cache = \"disk\" or \"none\"",
        job.rank(), rank);
  }
  uint8_t usable = status.ok();
  MILLSTREAM_TRY(job.world().all_reduce(&usable, 1, comm::DataType::kUInt8, comm::ReduceOp::kMin));
  if (usable) {
    outcome->piece_files = std::move(files);
  } else if (request.keep_if_possible) {
    survey.has_pieces = false;
    survey.train_pieces.clear();
    survey.valid_pieces.clear();
  } else {
    return request.phase->agree(status);
  }
  return Status::OK();
}

}  // namespace

void TableCounts::index(int num_entry_points) {
  first_block.assign(num_entry_points + 1, 0);
  train.assign(num_entry_points, 0);
  valid.assign(num_entry_points, 0);
  rows_read = survived = used = dropped = rows_train = rows_valid = 0;
  for (const BlockCounts& block : blocks) {
    ++first_block[block.entry_point + 1];
    train[block.entry_point] += block.train;
    valid[block.entry_point] += block.valid;
    rows_read += block.rows_read;
    survived += block.survived;
    used += block.used;
    dropped += block.dropped;
    rows_train += block.train;
    rows_valid += block.valid;
  }
  std::partial_sum(first_block.begin(), first_block.end(), first_block.begin());
}

bool wants_pieces(const plan::SourceTable& table, const LoaderConfig& config) {
  if (config.shuffle != Shuffle::kWindow) return false;
  if (table.entry_points().size() >= kFewEntryPoints) return false;
  return estimated_rows(table) > config.window;
}

std::string encode_survey(const Survey& survey) {
  ByteWriter out;
  out.value(kFormat);
  out.value<int64_t>(static_cast<int64_t>(survey.train.train.size()));
  out.values(survey.train.blocks);
  out.values(survey.train.ledger);
  out.value<uint8_t>(survey.valid.has_value());
  if (survey.valid) {
    out.value<int64_t>(static_cast<int64_t>(survey.valid->train.size()));
    out.values(survey.valid->blocks);
    out.values(survey.valid->ledger);
  }
  out.value<uint64_t>(survey.fits.size());
  for (const auto& fits : survey.fits) {
    out.value<uint64_t>(fits.size());
    for (const features::FitState& fit : fits) {
      out.text(fit.encode());
      out.value<uint8_t>(fit.counted.values != nullptr);
      if (fit.counted.values != nullptr) out.value(fit.counted.distinct);
    }
  }
  out.value<uint8_t>(survey.has_pieces);
  encode_pieces(out, survey.train_pieces);
  encode_pieces(out, survey.valid_pieces);
  out.value(survey.num_piece_files);
  out.values(survey.piece_file_bytes);
  return out.take();
}

Result<Survey> decode_survey(std::string_view bytes) {
  ByteReader in(bytes);
  Survey survey;
  const auto bad = [] { return file_error("the survey in the cache has another format"); };
  if (in.value<uint32_t>() != kFormat) return bad();
  const auto counts = [&](TableCounts* table) {
    const auto num_entry_points = in.value<int64_t>();
    table->blocks = in.values<BlockCounts>();
    table->ledger = in.values<LedgerEntry>();
    if (!in.ok() || num_entry_points < 0 || num_entry_points > INT32_MAX) return false;
    for (const BlockCounts& block : table->blocks) {
      if (block.entry_point < 0 || block.entry_point >= num_entry_points) return false;
    }
    table->index(static_cast<int>(num_entry_points));
    return true;
  };
  if (!counts(&survey.train)) return bad();
  if (in.value<uint8_t>() != 0 && !counts(&survey.valid.emplace())) return bad();
  const auto passes = in.value<uint64_t>();
  for (uint64_t i = 0; i < passes && in.ok(); ++i) {
    const auto count = in.value<uint64_t>();
    auto& fits = survey.fits.emplace_back();
    for (uint64_t k = 0; k < count && in.ok(); ++k) {
      auto fit = features::FitState::decode(in.text());
      if (!fit.ok()) return bad();
      // What is said of the values here, the values themselves are elsewhere.
      if (in.value<uint8_t>() != 0) {
        fit->counted.distinct = in.value<int64_t>();
        fit->counted.values = std::make_shared<const expr::TextList>();
      }
      fits.push_back(std::move(*fit));
    }
  }
  survey.has_pieces = in.value<uint8_t>() != 0;
  survey.train_pieces = decode_pieces(in);
  survey.valid_pieces = decode_pieces(in);
  survey.num_piece_files = in.value<int64_t>();
  survey.piece_file_bytes = in.values<int64_t>();
  if (!in.done() || survey.num_piece_files != static_cast<int64_t>(survey.piece_file_bytes.size()))
    return bad();
  return survey;
}

Result<SurveyOutcome> run_survey(const SurveyRequest& request) {
  comm::Job& job = *request.job;
  PhaseAgreement& phase = *request.phase;
  set_phase("survey");
  kill_point("survey");
  const SurveyCache cache(request.cache_directory);
  const bool on_disk = request.keep == KeepRows::kOnDisk;
  const bool in_memory = request.keep == KeepRows::kInMemory;

  // All ranks must mean the same data.
  const std::string data_key = survey_key(request);
  // The entry with pieces is another than the one without.
  const std::string key = on_disk ? data_key + "-pieces" : data_key;
  MILLSTREAM_ASSIGN(const auto keys, job.world().allgather_bytes(key));
  for (int rank = 0; rank < job.size(); ++rank) {
    if (keys[rank] != keys[0]) {
      return file_error(
          "rank {} sees other files than rank 0 under the same names: size, time or footer of one differs; "
          "are they on a shared file system, and is nothing writing to them?",
          rank);
    }
  }
  std::unique_ptr<PieceWriter> writer;
  if (in_memory) {
    MILLSTREAM_ASSIGN(writer, PieceWriter::create_in_memory(request.memory_limit));
  }

  SurveyOutcome outcome;
  outcome.key = data_key;
  {
    MILLSTREAM_ASSIGN(const std::string cached,
                      job.world().broadcast_bytes(job.rank() == 0 ? cache.load(key) : "", 0));
    if (!cached.empty()) {
      auto survey = decode_survey(cached);
      Status status = survey.status();
      if (status.ok() && (survey->fits.size() != static_cast<size_t>(request.plan->num_passes()) ||
                          survey->train.train.size() != request.train->table().entry_points().size())) {
        status = file_error("the survey in the cache is of other data");
      }
      if (status.ok() && survey->has_pieces) {
        auto files = open_pieces(cache.entry_path(key), *survey);
        status = files.status();
        if (files.ok()) outcome.piece_files = std::move(*files);
      }
      if (status.ok()) status = read_values(job, cache.entry_path(key), &*survey);
      // One rank that can't use it is enough to survey again.
      uint8_t usable = status.ok();
      MILLSTREAM_TRY(job.world().all_reduce(&usable, 1, comm::DataType::kUInt8, comm::ReduceOp::kMin));
      if (usable) {
        MILLSTREAM_TRY(phase.agree(fit(*request.plan, *survey)));
        outcome.survey = std::move(*survey);
        outcome.from_cache = true;
        if (in_memory && request.read_again) {
          MILLSTREAM_TRY(read_pieces(request, writer.get(), &outcome.survey));
          MILLSTREAM_TRY(open_memory(request, *writer, &outcome));
          MILLSTREAM_TRY(phase.agree(Status::OK()));  // the writers stay until all have opened their files
        }
        return outcome;
      }
      if (!status.ok())
        notice_f("the survey in the cache at {} is not used: {}", cache.entry_path(key), status.message());
      outcome.piece_files.clear();
    }
  }

  // Rank 0 makes the new entry's folder; pieces on disk need it, the survey alone can do without.
  std::string temporary;
  Status status;
  if (job.rank() == 0) {
    auto begun = cache.begin(key);
    if (begun.ok()) temporary = *begun;
    if (on_disk) {
      status = begun.status();
    } else if (!begun.ok()) {
      notice_f("the survey is not kept: {}", begun.status().message());
    }
  }
  const auto survey_here = [&]() -> Status {
    MILLSTREAM_TRY(phase.agree(status));
    MILLSTREAM_ASSIGN(temporary, job.world().broadcast_bytes(temporary, 0));
    if (on_disk) {
      auto created = PieceWriter::create(SurveyCache::piece_path(temporary, job.rank()));
      Status made = created.status();
      if (!made.ok()) {
        made = with_context(
            made, fmt::format("rank {} can't write to the cache of rank 0 at {} (it must be one file "
                              "system for all ranks; set --cache or $MILLSTREAM_CACHE)",
                              job.rank(), cache.directory()));
      } else {
        writer = std::move(*created);
      }
      MILLSTREAM_TRY(phase.agree(made));
    }
    MILLSTREAM_ASSIGN(outcome.survey, survey_data(request, writer.get()));
    kill_point("survey.gathered");
    Survey& survey = outcome.survey;
    if (in_memory) MILLSTREAM_TRY(open_memory(request, *writer, &outcome));
    if (on_disk) {
      // Sizes as the files have them, seen from rank 0; every rank must see the same.
      MILLSTREAM_TRY(phase.agree(writer->close().status()));
      set_file_bytes(&survey, job.size());
      auto files = open_pieces(temporary, survey);
      Status seen = files.status();
      if (!seen.ok()) {
        seen = with_context(
            seen, fmt::format("rank {} can't see what the others wrote to the cache at {} (it must be one "
                              "file system for all ranks; set --cache or $MILLSTREAM_CACHE)",
                              job.rank(), cache.directory()));
      } else {
        outcome.piece_files = std::move(*files);
      }
      MILLSTREAM_TRY(phase.agree(seen));
    }
    // Before anything is committed, and before a writer in memory is gone.
    return phase.agree(Status::OK());
  };
  const Status surveyed = survey_here();
  kill_point("survey.kept");
  if (job.rank() == 0 && !temporary.empty()) {
    if (surveyed.ok()) {
      Survey lasting = outcome.survey;
      if (!on_disk) {
        lasting.has_pieces = false;
        lasting.train_pieces.clear();
        lasting.valid_pieces.clear();
        lasting.num_piece_files = 0;
        lasting.piece_file_bytes.clear();
      }
      Status kept = write_values(temporary, lasting);
      if (kept.ok()) kept = cache.commit(key, temporary, encode_survey(lasting));
      if (kept.ok()) {
        cache.trim(key);
      } else {
        cache.abandon(temporary);
        notice_f("the survey is not kept: {}", kept.message());
      }
    } else {
      cache.abandon(temporary);
    }
  }
  MILLSTREAM_TRY(surveyed);
  kill_point("survey.committed");
  return outcome;
}

}  // namespace millstream::loader
