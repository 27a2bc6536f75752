#include "loader/row_source.h"

#include <numeric>
#include <utility>

namespace millstream::loader {
namespace {

class QuerySource final : public RowSource {
 public:
  QuerySource(const exec::BlockSource& source, const TableCounts& counts, const RowRules& rules, bool valid)
      : RowSource(valid ? counts.valid : counts.train),
        source_(source),
        counts_(counts),
        rules_(rules),
        valid_(valid) {
    for (const BlockCounts& block : counts.blocks)
      largest_ = std::max(largest_, valid ? block.valid : block.train);
  }
  int64_t largest_chunk() const override { return largest_; }
  bool gives_again() const override { return false; }
  Result<std::unique_ptr<RowStream>> open(int entry_point, ReadScratch* scratch) const override {
    // What the survey skipped can't be opened.
    const size_t at = static_cast<size_t>(entry_point);
    std::unique_ptr<exec::BlockStream> blocks;
    if (counts_.first_block[at] < counts_.first_block[at + 1]) {
      MILLSTREAM_ASSIGN(blocks, source_.open(entry_point));
    }
    return std::make_unique<Stream>(*this, entry_point, std::move(blocks), scratch);
  }

 private:
  class Stream final : public RowStream {
   public:
    Stream(const QuerySource& source, int entry_point, std::unique_ptr<exec::BlockStream> blocks,
           ReadScratch* scratch)
        : source_(source),
          entry_point_(entry_point),
          blocks_(std::move(blocks)),
          scratch_(scratch),
          next_(source.counts_.first_block[entry_point]),
          end_(source.counts_.first_block[entry_point + 1]) {}

    Result<std::optional<RawRows>> next() override {
      while (next_ < end_) {
        block_ = {};
        MILLSTREAM_ASSIGN(auto block, blocks_->next());
        const BlockCounts& counts = source_.counts_.blocks[next_++];
        if (!block) return changed();
        block_ = std::move(*block);
        if (block_.rows_read != counts.rows_read || block_.rows->num_rows() != counts.survived)
          return changed();
        SelectedRows& selected = scratch_->selected;
        MILLSTREAM_TRY(source_.rules_.select(entry_point_, block_, counts.used, &selected));
        if (selected.train_rows != counts.train || selected.valid_rows != counts.valid) return changed();
        RawRows rows;
        rows.batch = block_.rows;
        rows.count = source_.valid_ ? selected.valid_rows : selected.train_rows;
        if (rows.count == 0) continue;
        const bool all = selected.all_train && !source_.valid_;
        rows.rows = all ? nullptr : source_.valid_ ? selected.valid.data() : selected.train.data();
        return rows;
      }
      return std::nullopt;
    }
    bool give_again(int64_t) override { return false; }  // what is decoded is too wide to keep
    Status locate(const Status& status) const override {
      return locate_error(status, source_.source_.table(), entry_point_, block_);
    }

   private:
    Status changed() const {
      return file_error("{} has other rows than when it was surveyed; the file changed while the job ran",
                        exec::describe_place(source_.source_.table(), entry_point_, -1));
    }
    const QuerySource& source_;
    int entry_point_;
    std::unique_ptr<exec::BlockStream> blocks_;
    ReadScratch* scratch_;
    int64_t next_;
    int64_t end_;
    exec::BlockRows block_;
  };

  const exec::BlockSource& source_;
  const TableCounts& counts_;
  const RowRules& rules_;
  bool valid_;
  int64_t largest_ = 0;
};

// A range of pieces for each entry point of the source.
struct PieceRanges {
  std::vector<size_t> first;  // by entry point, and the end
  std::vector<int64_t> rows;
};

PieceRanges piece_ranges(const std::vector<Piece>& pieces, const plan::SourceTable& table,
                         bool by_entry_point) {
  PieceRanges ranges;
  const size_t count = by_entry_point ? table.entry_points().size() : pieces.size();
  ranges.first.push_back(0);
  for (size_t i = 0; i < count; ++i) {
    size_t end = ranges.first.back();
    int64_t rows = 0;
    while (end < pieces.size() &&
           (by_entry_point ? pieces[end].entry_point == static_cast<int32_t>(i) : end == i)) {
      rows += pieces[end++].rows;
    }
    ranges.first.push_back(end);
    ranges.rows.push_back(rows);
  }
  return ranges;
}

class PieceSource final : public RowSource {
 public:
  PieceSource(const std::vector<Piece>& pieces, const std::vector<std::shared_ptr<PieceFile>>& files,
              std::shared_ptr<arrow::Schema> declared, const exec::BlockSource& source,
              const TableCounts& counts, const RowRules& rules, bool valid, PieceRanges ranges)
      : RowSource(std::move(ranges.rows)),
        pieces_(pieces),
        files_(files),
        declared_(std::move(declared)),
        source_(source),
        counts_(counts),
        rules_(rules),
        valid_(valid),
        first_(std::move(ranges.first)) {}
  int64_t largest_chunk() const override { return kPieceBatchRows; }
  bool gives_again() const override { return true; }
  Result<std::unique_ptr<RowStream>> open(int entry_point, ReadScratch* scratch) const override {
    return std::make_unique<Stream>(*this, first_[entry_point], first_[entry_point + 1], scratch);
  }

 private:
  class Stream final : public RowStream {
   public:
    Stream(const PieceSource& source, size_t piece, size_t end, ReadScratch* scratch)
        : source_(source), piece_(piece), end_(end), scratch_(scratch) {}
    Result<std::optional<RawRows>> next() override {
      if (piece_ < end_ && next_ == source_.pieces_[piece_].batches.size()) {
        ++piece_;
        next_ = 0;
      }
      if (piece_ == end_) return std::nullopt;
      const Piece& piece = source_.pieces_[piece_];
      const PieceBatch& batch = piece.batches[next_++];
      RawRows rows;
      MILLSTREAM_ASSIGN(rows.batch,
                        source_.files_[piece.file]->read(batch, *source_.declared_, &scratch_->buffer));
      rows.first = std::exchange(left_out_, 0);
      rows.count = batch.rows - rows.first;
      return rows;
    }
    bool give_again(int64_t count) override {
      left_out_ = source_.pieces_[piece_].batches[--next_].rows - count;
      return true;
    }
    Status locate(const Status& status) const override {
      const Piece& piece = source_.pieces_[piece_];
      const plan::SourceTable& table = source_.source_.table();
      int64_t row = -1;
      if (const auto position = error_position(status)) {
        // A piece knows its block, not the rows that the WHERE left out.
        int64_t in_piece = position->row;
        for (size_t i = 0; i + 1 < next_; ++i) in_piece += piece.batches[i].rows;
        row = source_.row_in_file(piece, in_piece).ValueOr(-1);
      }
      const plan::EntryPoint& entry = table.entry_points()[piece.entry_point];
      const int64_t about = std::max<int64_t>(0, entry.first_row) + piece.block * plan::kBlockRows;
      return with_category(with_context(status, exec::describe_place(table, piece.entry_point, row)),
                           error_category(status), SourcePosition{entry.file, row >= 0 ? row : about});
    }

   private:
    const PieceSource& source_;
    size_t piece_;
    const size_t end_;
    ReadScratch* scratch_;
    size_t next_ = 0;
    int64_t left_out_ = 0;  // rows at the beginning of the next batch
  };

  // Where in its file a row of a piece comes from.
  Result<int64_t> row_in_file(const Piece& piece, int64_t row) const {
    MILLSTREAM_ASSIGN(auto blocks, source_.open(piece.entry_point));
    exec::BlockRows block;
    for (int i = 0; i <= piece.block; ++i) {
      MILLSTREAM_ASSIGN(auto next, blocks->next());
      if (!next) return data_error("the file has fewer blocks than when it was surveyed");
      block = std::move(*next);
    }
    SelectedRows selected;
    const int64_t used = counts_.blocks[counts_.first_block[piece.entry_point] + piece.block].used;
    MILLSTREAM_TRY(rules_.select(piece.entry_point, block, used, &selected));
    const auto& rows = valid_ ? selected.valid : selected.train;
    if (valid_ || !selected.all_train) {
      if (row >= static_cast<int64_t>(rows.size()))
        return data_error("the file has other rows than when surveyed");
      row = rows[row];
    }
    return block.row_in_file(row);
  }

  const std::vector<Piece>& pieces_;
  const std::vector<std::shared_ptr<PieceFile>>& files_;
  std::shared_ptr<arrow::Schema> declared_;
  const exec::BlockSource& source_;
  const TableCounts& counts_;
  const RowRules& rules_;
  const bool valid_;
  std::vector<size_t> first_;
};

}  // namespace

RowSource::RowSource(std::vector<int64_t> counts)
    : counts_(std::move(counts)), rows_(std::accumulate(counts_.begin(), counts_.end(), int64_t{0})) {}

std::unique_ptr<RowSource> make_query_source(const exec::BlockSource& source, const TableCounts& counts,
                                             const RowRules& rules, bool valid) {
  return std::make_unique<QuerySource>(source, counts, rules, valid);
}

std::unique_ptr<RowSource> make_piece_source(const std::vector<Piece>& pieces,
                                             const std::vector<std::shared_ptr<PieceFile>>& files,
                                             std::shared_ptr<arrow::Schema> declared,
                                             const exec::BlockSource& source, const TableCounts& counts,
                                             const RowRules& rules, bool valid, bool by_entry_point) {
  return std::make_unique<PieceSource>(pieces, files, std::move(declared), source, counts, rules, valid,
                                       piece_ranges(pieces, source.table(), by_entry_point));
}

}  // namespace millstream::loader
