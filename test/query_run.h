#pragma once
// Runs a streaming query for the tests, in any morsel size and dealt to the ranks of a job, and writes its rows as
// text.

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/job.h"
#include "plan/planner.h"

namespace millstream::test {

/// The rows of a pipeline as text, in source order, cells separated by '|'. `morsel_rows` = plan::kBlockRows runs
/// what the program runs, exec::BlockSource; another number evaluates the pipeline's expressions on slices of that
/// many rows. Entry points are dealt to the ranks of the job (null: this process does all) and every rank returns
/// the same rows, or the same error.
Result<std::vector<std::string>> run_query(const plan::Pipeline& pipeline, int64_t morsel_rows,
                                           comm::Job* job);

/// The batches of a pipeline in source order, all in this process.
Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> run_batches(const plan::Pipeline& pipeline,
                                                                     int64_t morsel_rows);

/// The rows of any plan on every rank, as run_query gives them, by exec::run_query with `threads` threads a rank.
Result<std::vector<std::string>> run_plan(const plan::NodePtr& plan, int64_t morsel_rows, int threads,
                                          comm::Job* job);

/// Its batches.
Result<std::vector<std::shared_ptr<arrow::RecordBatch>>> plan_batches(const plan::NodePtr& plan,
                                                                      int64_t morsel_rows, int threads,
                                                                      comm::Job* job);

/// A value as text: NULL, 12, 1.5, 'text' (quoted where `quote`), 2024-01-31 10:00:00.
std::string value_text(const arrow::Array& array, int64_t row, bool quote);

}  // namespace millstream::test
