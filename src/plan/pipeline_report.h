#pragma once
// All that is known of a pipeline before (or after) it runs, for `millstream explain`: operators, types, NULLs, bounds
// and where they come from, what the filter spares the reader.

#include <string>
#include <vector>

#include "expr/bounds.h"
#include "plan/logical_plan.h"

namespace millstream::plan {

struct OutputReport {
  std::string name;
  expr::TypePtr type;
  bool nullable = true;
  std::string expression;  ///< SQL; empty for a column under its own name
  expr::Bounds bounds;
};

/// A type that a column has in some of the files.
struct FileTypeReport {
  std::string type;  ///< SQL's name; empty: these files lack the column
  int files = 0;
  std::string first_file;
};

struct ColumnReport {
  std::string name;
  expr::TypePtr type;
  bool nullable = true;           ///< in the table
  bool nullable_filtered = true;  ///< of the rows that pass the filter
  expr::Bounds bounds;            ///< of the rows that pass the filter
  /// How the files differ; empty where all have the type.
  std::vector<FileTypeReport> file_types;
};

struct PipelineReport {
  std::vector<OutputReport> outputs;
  std::string filter;  ///< SQL; empty: none
  bool filter_can_fail = false;
  bool filter_impossible = false;  ///< no row passes, if the files' claims hold
  std::vector<ColumnReport> columns;
  std::vector<std::string> columns_pruned;
  int files = 0;
  int row_groups = 0, row_groups_pruned = 0;
  int64_t rows = -1, rows_pruned = 0;   ///< rows: -1 where only reading tells
  int64_t bytes = 0, bytes_pruned = 0;  ///< compressed, of the columns that are read
};

/// What was seen of the rows that pass the filter, where they have been read.
struct ObservedBounds {
  std::vector<expr::Bounds> columns;  ///< one a column of the pipeline
  std::vector<expr::Bounds> outputs;  ///< one an output
};

/// Without `observed`, what the files claim is used.
PipelineReport report_pipeline(const Pipeline& pipeline, const ObservedBounds* observed = nullptr);
std::string report_text(const PipelineReport& report);

}  // namespace millstream::plan
