#include "loader/row_source.h"

#include <numeric>

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
  Result<std::unique_ptr<RowStream>> open(int entry_point, ReadScratch* scratch) const override {
    MILLSTREAM_ASSIGN(auto blocks, source_.open(entry_point));
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

std::vector<int64_t> piece_counts(const std::vector<Piece>& pieces) {
  std::vector<int64_t> counts;
  for (const Piece& piece : pieces) counts.push_back(piece.rows);
  return counts;
}

class PieceSource final : public RowSource {
 public:
  PieceSource(const std::vector<Piece>& pieces, const std::vector<std::shared_ptr<PieceFile>>& files,
              const plan::SourceTable& table, std::shared_ptr<arrow::Schema> declared)
      : RowSource(piece_counts(pieces)),
        pieces_(pieces),
        files_(files),
        table_(table),
        declared_(std::move(declared)) {}
  int64_t largest_chunk() const override { return kPieceBatchRows; }
  Result<std::unique_ptr<RowStream>> open(int entry_point, ReadScratch* scratch) const override {
    return std::make_unique<Stream>(*this, pieces_[entry_point], scratch);
  }

 private:
  class Stream final : public RowStream {
   public:
    Stream(const PieceSource& source, const Piece& piece, ReadScratch* scratch)
        : source_(source), piece_(piece), scratch_(scratch) {}
    Result<std::optional<RawRows>> next() override {
      if (next_ == piece_.batches.size()) return std::nullopt;
      const PieceBatch& batch = piece_.batches[next_++];
      RawRows rows;
      MILLSTREAM_ASSIGN(rows.batch,
                        source_.files_[piece_.file]->read(batch, *source_.declared_, &scratch_->buffer));
      rows.count = batch.rows;
      return rows;
    }
    Status locate(const Status& status) const override {
      // A piece knows its block, not the rows that the WHERE left out.
      const plan::EntryPoint& entry = source_.table_.entry_points()[piece_.entry_point];
      return with_category(with_context(status, exec::describe_place(source_.table_, piece_.entry_point, -1)),
                           error_category(status),
                           SourcePosition{entry.file, std::max<int64_t>(0, entry.first_row) +
                                                          piece_.block * plan::kBlockRows});
    }

   private:
    const PieceSource& source_;
    const Piece& piece_;
    ReadScratch* scratch_;
    size_t next_ = 0;
  };

  const std::vector<Piece>& pieces_;
  const std::vector<std::shared_ptr<PieceFile>>& files_;
  const plan::SourceTable& table_;
  std::shared_ptr<arrow::Schema> declared_;
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
                                             const plan::SourceTable& table,
                                             std::shared_ptr<arrow::Schema> declared) {
  return std::make_unique<PieceSource>(pieces, files, table, std::move(declared));
}

}  // namespace millstream::loader
