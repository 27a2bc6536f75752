#include "exec/query.h"

#include <map>
#include <vector>

#include "exec/batch_bytes.h"
#include "exec/breakers.h"
#include "exec/join.h"
#include "exec/ordered_stream.h"
#include "exec/sort.h"
#include "exec/units.h"
#include "exec/window.h"
#include "plan/planner.h"
#include "plan/rewrite.h"

namespace millstream::exec {
namespace {

using Batch = std::shared_ptr<arrow::RecordBatch>;
using expr::ExprPtr;
using plan::NodeKind;
using plan::NodePtr;

// IN (SELECT …) of no more values is as if they had been listed.
constexpr int64_t kMostListed = 64;

class Executor {
 public:
  Executor(comm::Job* job, const QueryRunOptions& options) : context_(job, options) {}

  Result<int64_t> run(const NodePtr& plan, const RowSink& sink) {
    OrderedStreamOptions stream;
    stream.threads = context_.options.threads;
    stream.everywhere = context_.options.everywhere;
    MILLSTREAM_ASSIGN(plan_, with_values(plan));
    NodePtr node = plan_;
    if (node->kind == NodeKind::kLimit && (node->input->kind != NodeKind::kSort || !is_of_few(*node))) {
      stream.limit = node->limit;
      stream.offset = node->offset;
      node = node->input;
    }
    MILLSTREAM_ASSIGN(auto input, units(node));
    // What is known now of NULLs may be more than the plan says.
    return stream_in_order(context_.job, *input, stream, [&](const Batch& batch) {
      return sink(arrow::RecordBatch::Make(plan->schema, batch->num_rows(), batch->columns()));
    });
  }
  int64_t spilled_bytes() const { return context_.spill.bytes(); }

 private:
  static bool has_subqueries(const plan::Node& node) {
    return node.kind == NodeKind::kAttach || (node.input != nullptr && has_subqueries(*node.input)) ||
           (node.right != nullptr && has_subqueries(*node.right));
  }

  // The plan with the values of its subqueries as constants, which then serve as if they had been written: row groups
  // are left out by them.
  Result<NodePtr> with_values(const NodePtr& node) {
    if (!has_subqueries(*node)) return node;
    auto copy = std::make_shared<plan::Node>(*node);
    if (node->input != nullptr) {
      MILLSTREAM_ASSIGN(copy->input, with_values(node->input));
    }
    if (node->right != nullptr) {
      MILLSTREAM_ASSIGN(copy->right, with_values(node->right));
    }
    if (node->kind != NodeKind::kAttach) return copy;
    MILLSTREAM_ASSIGN(const Batch rows, everything(copy->right, "the rows of a query in an expression"));
    ExprPtr value;
    switch (node->attach) {
      case plan::AttachKind::kExists:
        value = expr::make_literal(std::make_shared<arrow::BooleanScalar>(rows->num_rows() > 0));
        break;
      case plan::AttachKind::kValue: {
        if (rows->num_rows() > 1) {
          return data_error("the query in an expression at line {}, column {} gives more than one row",
                            node->position.line, node->position.column);
        }
        std::shared_ptr<arrow::Scalar> scalar = arrow::MakeNullScalar(rows->schema()->field(0)->type());
        if (rows->num_rows() == 1) {
          MILLSTREAM_ASSIGN(scalar, rows->column(0)->GetScalar(0));
        }
        value = expr::make_literal(std::move(scalar), node->position);
        break;
      }
      case plan::AttachKind::kIn: {
        if (rows->num_rows() > kMostListed) {
          subquery_values_.emplace(copy.get(), rows);
          return copy;
        }
        if (rows->num_rows() == 0) {
          value = expr::make_literal(std::make_shared<arrow::BooleanScalar>(false));
          break;
        }
        std::vector<ExprPtr> list;
        for (int64_t i = 0; i < rows->num_rows(); ++i) {
          std::shared_ptr<arrow::Scalar> scalar = std::make_shared<arrow::NullScalar>();
          if (rows->column(0)->IsValid(i)) {
            MILLSTREAM_ASSIGN(scalar, rows->column(0)->GetScalar(i));
          }
          list.push_back(expr::make_literal(std::move(scalar), node->position));
        }
        MILLSTREAM_ASSIGN(value, expr::make_in(node->left_keys[0], std::move(list), node->position));
        break;
      }
    }
    std::vector<ExprPtr> columns;
    for (int i = 0; i < copy->input->schema->num_fields(); ++i)
      columns.push_back(expr::make_column(i, *copy->input->schema->field(i)));
    columns.push_back(std::move(value));
    return plan::make_project(copy->input, node->schema->field_names(), std::move(columns));
  }

  // All rows of a plan, on every rank.
  Result<Batch> everything(const NodePtr& node, std::string_view what) {
    MILLSTREAM_ASSIGN(auto input, units(node));
    OrderedStreamOptions stream;
    stream.threads = context_.options.threads;
    stream.everywhere = true;
    std::vector<Batch> batches;
    MILLSTREAM_TRY(stream_in_order(context_.job, *input, stream, [&](const Batch& batch) -> Status {
      MILLSTREAM_TRY(context_.memory.hold(bytes_of(*batch), what));
      batches.push_back(batch);
      return Status::OK();
    }));
    nodes_.push_back(node);
    return concatenate(input->schema(), batches);
  }

  // All rows on every rank, which all compute the same.
  Result<std::unique_ptr<Units>> windowed(const plan::Node& node) {
    MILLSTREAM_ASSIGN(auto rows, everything(node.input, "the rows of a window function"));
    // Beside the results: the order of the rows and the values in that order.
    MILLSTREAM_TRY(context_.memory.check(48 * rows->num_rows(), "the rows of a window function"));
    const int before = rows->num_columns();
    MILLSTREAM_ASSIGN(rows, compute_windows(node, rows));
    for (int i = before; i < rows->num_columns(); ++i)
      MILLSTREAM_TRY(
          context_.memory.hold(bytes_of(*rows->column_data(i)), "the results of a window function"));
    return units_of_batches(node.schema, {std::move(rows)}, context_.options.morsel_rows);
  }

  // IN (SELECT …) of many values.
  Result<std::unique_ptr<Units>> member(const plan::Node& node) {
    const Batch& rows = subquery_values_.at(&node);
    std::vector<uint32_t> groups;
    auto values =
        std::make_shared<GroupTable>(std::vector<std::shared_ptr<arrow::DataType>>{rows->column(0)->type()});
    MILLSTREAM_TRY(values->find_or_add({rows->column(0)}, rows->num_rows(), groups));
    MILLSTREAM_TRY(context_.memory.hold(values->memory(), "the values of IN"));
    MILLSTREAM_ASSIGN(auto input, units(node.input));
    return units_with_membership(std::move(input), node.left_keys[0], std::move(values),
                                 rows->column(0)->null_count() > 0, node.schema);
  }

  // The node's rows as units; what cannot stream is computed first.
  Result<std::unique_ptr<Units>> units(const NodePtr& node) {
    if (plan::streams(*node)) {
      MILLSTREAM_ASSIGN(auto pipeline, plan::to_pipeline(node));
      return units_of_pipeline(std::move(pipeline), context_.options.morsel_rows);
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
        if (node->input->kind == NodeKind::kSort) return sorted(*node->input, node);
        return limited(node->input, *node);
      case NodeKind::kSort:
        return sorted(*node, nullptr);
      case NodeKind::kAggregate:
        return grouped(*node);
      case NodeKind::kJoin:
        return joined(*node);
      case NodeKind::kUnion: {
        MILLSTREAM_ASSIGN(auto first, units(node->input));
        MILLSTREAM_ASSIGN(auto second, units(node->right));
        return units_of_both(std::move(first), std::move(second), node->schema);
      }
      case NodeKind::kAttach:
        return member(*node);
      case NodeKind::kWindow:
        return windowed(*node);
      case NodeKind::kScan:
        break;
    }
    return bug_error("a plan node of kind {} cannot be run", static_cast<int>(node->kind));
  }

  Result<std::unique_ptr<Units>> limited(const NodePtr& input, const plan::Node& limit) {
    MILLSTREAM_ASSIGN(auto all, units(input));
    return limited(std::move(all), limit);
  }
  Result<std::unique_ptr<Units>> limited(std::unique_ptr<Units> input, const plan::Node& limit) {
    OrderedStreamOptions stream;
    stream.threads = context_.options.threads;
    stream.limit = limit.limit;
    stream.offset = limit.offset;
    stream.everywhere = true;
    std::vector<Batch> batches;
    MILLSTREAM_TRY(stream_in_order(context_.job, *input, stream, [&](const Batch& batch) -> Status {
      MILLSTREAM_TRY(context_.memory.hold(bytes_of(*batch), "the rows of a LIMIT in a subquery"));
      batches.push_back(batch);
      return Status::OK();
    }));
    return units_of_batches(input->schema(), std::move(batches), context_.options.morsel_rows);
  }

  Result<std::unique_ptr<Units>> grouped(const plan::Node& node) {
    MILLSTREAM_ASSIGN(auto input, units(node.input));
    return grouped_units(context_, node, std::move(input));
  }

  // Whether the rows up to a limit are so few that every rank may hold them.
  static bool is_of_few(const plan::Node& limit) {
    return limit.limit >= 0 && limit.limit <= plan::kBlockRows && limit.offset <= plan::kBlockRows;
  }

  // Of a LIMIT of few above only its rows are kept, on every rank.
  Result<std::unique_ptr<Units>> sorted(const plan::Node& node, const NodePtr& limit) {
    MILLSTREAM_ASSIGN(auto input, units(node.input));
    if (limit == nullptr || !is_of_few(*limit)) {
      MILLSTREAM_ASSIGN(auto sorted, sorted_units(context_, node.sort_keys, std::move(input)));
      if (limit == nullptr) return sorted;
      return limited(std::move(sorted), *limit);
    }
    const auto schema = input->schema();
    const int64_t wanted = limit->limit + limit->offset;
    // Each batch sends no more rows than can be among the first.
    input = units_with_first(std::move(input), node.sort_keys, wanted);
    OrderedStreamOptions stream;
    stream.threads = context_.options.threads;
    stream.everywhere = true;
    std::vector<Batch> batches;
    int64_t rows = 0;
    const auto cut = [&]() -> Status {
      MILLSTREAM_ASSIGN(auto all, concatenate(schema, batches));
      MILLSTREAM_ASSIGN(all, sort_rows(all, node.sort_keys, wanted));
      rows = all->num_rows();
      batches = {std::move(all)};
      return Status::OK();
    };
    MILLSTREAM_TRY(stream_in_order(context_.job, *input, stream, [&](const Batch& batch) -> Status {
      batches.push_back(batch);
      rows += batch->num_rows();
      return rows > std::max(2 * wanted, plan::kBlockRows) ? cut() : Status::OK();
    }));
    MILLSTREAM_TRY(cut());
    batches[0] = batches[0]->Slice(std::min(limit->offset, rows));
    MILLSTREAM_TRY(context_.memory.hold(bytes_of(*batches[0]), "the rows of ORDER BY"));
    return units_of_batches(schema, std::move(batches), context_.options.morsel_rows);
  }

  // The right side is brought to every rank, the left side streams past it. RIGHT and FULL need to know which right
  // rows found no partner on any rank, and hold the result.
  Result<std::unique_ptr<Units>> joined(const plan::Node& node) {
    MILLSTREAM_ASSIGN(auto right, units(node.right));
    OrderedStreamOptions stream;
    stream.threads = context_.options.threads;
    stream.everywhere = true;
    std::vector<Batch> batches;
    int64_t bytes = 0;
    MILLSTREAM_TRY(stream_in_order(context_.job, *right, stream, [&](const Batch& batch) -> Status {
      bytes += bytes_of(*batch);
      MILLSTREAM_TRY(context_.memory.check(2 * bytes, "the rows of a join's right side"));
      batches.push_back(batch);
      return Status::OK();
    }));
    MILLSTREAM_ASSIGN(auto rows, concatenate(right->schema(), batches));
    batches.clear();
    MILLSTREAM_ASSIGN(auto made, JoinTable::make(node, std::move(rows)));
    joins_.push_back(std::move(made));
    const JoinTable& table = *joins_.back();
    MILLSTREAM_TRY(context_.memory.hold(bytes + table.memory(), "the rows of a join's right side"));
    MILLSTREAM_ASSIGN(auto left, units(node.input));
    auto pairs = table.probe(std::move(left), context_.options.morsel_rows);
    if (node.join != plan::JoinKind::kRight && node.join != plan::JoinKind::kFull) return pairs;
    const auto schema = pairs->schema();
    MILLSTREAM_TRY(stream_in_order(context_.job, *pairs, stream, [&](const Batch& batch) -> Status {
      MILLSTREAM_TRY(context_.memory.hold(bytes_of(*batch), "the rows of a RIGHT or FULL JOIN"));
      batches.push_back(batch);
      return Status::OK();
    }));
    std::vector<std::string> partners = {table.partners()};
    if (context_.job != nullptr && context_.job->size() > 1) {
      MILLSTREAM_ASSIGN(partners, context_.job->world().allgather_bytes(partners[0]));
    }
    MILLSTREAM_ASSIGN(auto alone, table.without_partner(partners));
    MILLSTREAM_TRY(context_.memory.hold(bytes_of(*alone), "the rows of a RIGHT or FULL JOIN"));
    batches.push_back(std::move(alone));
    return units_of_batches(schema, std::move(batches), context_.options.morsel_rows);
  }

  QueryContext context_;
  NodePtr plan_;
  std::vector<NodePtr> nodes_;  // of subqueries, to which joins refer
  std::map<const plan::Node*, Batch> subquery_values_;
  std::vector<std::unique_ptr<JoinTable>> joins_;  // that units refer to
};

}  // namespace

Result<int64_t> run_query(comm::Job* job, const NodePtr& plan, const QueryRunOptions& options,
                          const RowSink& sink) {
  Executor executor(job, options);
  auto rows = executor.run(plan, sink);
  if (options.statistics != nullptr) options.statistics->spilled_bytes = executor.spilled_bytes();
  return rows;
}

}  // namespace millstream::exec
