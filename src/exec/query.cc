#include "exec/query.h"

#include <atomic>

#include "base/cpu_share.h"
#include "exec/ordered_stream.h"
#include "exec/units.h"
#include "plan/planner.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;
using plan::NodeKind;
using plan::NodePtr;

bool streams(const plan::Node& node) {
  switch (node.kind) {
    case NodeKind::kScan:
      return true;
    case NodeKind::kFilter:
    case NodeKind::kProject:
      return streams(*node.input);
    case NodeKind::kLimit:
      return false;
  }
  return false;
}

// Bytes of the buffers that a batch keeps alive.
int64_t bytes_of(const arrow::ArrayData& data) {
  int64_t bytes = 0;
  for (const auto& buffer : data.buffers) bytes += buffer == nullptr ? 0 : buffer->size();
  for (const auto& child : data.child_data) bytes += bytes_of(*child);
  return bytes;
}
int64_t bytes_of(const arrow::RecordBatch& batch) {
  int64_t bytes = 0;
  for (int i = 0; i < batch.num_columns(); ++i) bytes += bytes_of(*batch.column_data(i));
  return bytes;
}

class Executor {
 public:
  Executor(comm::Job* job, const QueryRunOptions& options) : job_(job), options_(options) {}

  Result<int64_t> run(const NodePtr& plan, const RowSink& sink) {
    OrderedStreamOptions stream;
    stream.threads = options_.threads;
    stream.everywhere = options_.everywhere;
    NodePtr node = plan;
    if (node->kind == NodeKind::kLimit) {
      stream.limit = node->limit;
      stream.offset = node->offset;
      node = node->input;
    }
    MILLSTREAM_ASSIGN(auto input, units(node));
    return stream_in_order(job_, *input, stream, sink);
  }

 private:
  // The node's rows as units; what cannot stream is computed first.
  Result<std::unique_ptr<Units>> units(const NodePtr& node) {
    if (streams(*node)) {
      MILLSTREAM_ASSIGN(auto pipeline, plan::to_pipeline(node));
      return units_of_pipeline(std::move(pipeline), options_.morsel_rows);
    }
    switch (node->kind) {
      case NodeKind::kFilter: {
        MILLSTREAM_ASSIGN(auto input, units(node->input));
        return units_with_filter(std::move(input), node->predicate);
      }
      case NodeKind::kProject: {
        MILLSTREAM_ASSIGN(auto input, units(node->input));
        return units_with_projection(std::move(input), node->expressions, node->schema);
      }
      case NodeKind::kLimit:
        return limited(*node);
      case NodeKind::kScan:
        break;
    }
    return bug_error("a plan node of kind {} cannot be run", static_cast<int>(node->kind));
  }

  Result<std::unique_ptr<Units>> limited(const plan::Node& node) {
    MILLSTREAM_ASSIGN(auto input, units(node.input));
    OrderedStreamOptions stream;
    stream.threads = options_.threads;
    stream.limit = node.limit;
    stream.offset = node.offset;
    stream.everywhere = true;
    std::vector<Batch> batches;
    MILLSTREAM_TRY(stream_in_order(job_, *input, stream, [&](const Batch& batch) -> Status {
      MILLSTREAM_TRY(hold(bytes_of(*batch), "the rows of a LIMIT in a subquery"));
      batches.push_back(batch);
      return Status::OK();
    }));
    return units_of_batches(input->schema(), std::move(batches), options_.morsel_rows);
  }

  // Counts memory that is kept until the query ends.
  Status hold(int64_t bytes, std::string_view what) {
    held_ += bytes;
    if (options_.memory_bytes <= 0 || held_ <= options_.memory_bytes) return Status::OK();
    return failed_error(
        "{} need {} and more of memory, and a rank may use {}; give it more with --memory, or make the query hold "
        "fewer rows or columns",
        what, format_bytes(held_), format_bytes(options_.memory_bytes));
  }

  comm::Job* job_;
  const QueryRunOptions& options_;
  int64_t held_ = 0;
};

}  // namespace

Result<int64_t> run_query(comm::Job* job, const NodePtr& plan, const QueryRunOptions& options,
                          const RowSink& sink) {
  return Executor(job, options).run(plan, sink);
}

}  // namespace millstream::exec
