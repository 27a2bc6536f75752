// Runs the golden corpus: golden_runner [--bless] [FILE | FOLDER]…
//
// Every case is run with morsels of 1, 7 and 65536 rows, and, under mpiexec, with its entry points dealt to the
// ranks: the answers must be the same. --bless writes what the cases gave as what they expect: the sections that
// they have, or for a case without any its types and rows, or its error.

#include <algorithm>
#include <filesystem>
#include <iostream>

#include <arrow/compute/initialize.h>
#include <unistd.h>

#include "base/log.h"
#include "exec/file_catalog.h"
#include "expr/type.h"
#include "golden_file.h"
#include "jit/code.h"
#include "plan/pipeline_report.h"
#include "query_run.h"
#include "sql/binder.h"

namespace millstream::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMorsels[] = {plan::kBlockRows, 7, 1};

using Sections = std::map<std::string, std::vector<std::string>>;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  for (char c : text) {
    if (c == '\n') {
      lines.push_back(std::move(line));
      line.clear();
    } else {
      line += c;
    }
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string without_folder(std::string text, const std::string& folder) {
  for (size_t at = text.find(folder + "/"); at != std::string::npos; at = text.find(folder + "/", at)) {
    text.erase(at, folder.size() + 1);
  }
  for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder, at))
    text.replace(at, folder.size(), ".");
  return text;
}

// Expressions as SQL bind to the same expressions again: bundles rest on it.
Status check_text(const plan::Pipeline& pipeline) {
  arrow::FieldVector fields;
  for (int column : pipeline.columns) fields.push_back(pipeline.table->schema()->field(column));
  const auto schema = arrow::schema(std::move(fields));
  std::vector<expr::ExprPtr> expressions = pipeline.outputs;
  if (pipeline.predicate != nullptr) expressions.push_back(pipeline.predicate);
  for (const expr::ExprPtr& expression : expressions) {
    const std::string text = expression->to_sql();
    const auto again = sql::bind_text(text, schema, "text");
    if (!again.ok()) return bug_error("{} does not bind again: {}", text, again.status().message());
    if ((*again)->to_sql() != text || !(*again)->type->Equals(*expression->type)) {
      return bug_error("{} becomes {}, of type {}", text, (*again)->to_sql(), (*again)->type->ToString());
    }
  }
  return Status::OK();
}

// What the case gives: its error, or its types, rows and plan.
Result<Sections> run_case(const GoldenCase& test, const std::string& folder, int64_t morsel_rows,
                          comm::Job& job) {
  Sections result;
  const auto run = [&]() -> Status {
    auto catalog = exec::make_file_catalog(1);
    plan::QueryOptions options;
    options.name = "query";
    options.base_directory = folder;
    MILLSTREAM_ASSIGN(auto planned, plan::plan_query(test.query, *catalog, options));
    if (!streams(*planned)) {
      for (const auto& field : planned->schema->fields()) {
        result["types"].push_back(fmt::format("{} {}{}", field->name(), expr::sql_type_name(*field->type()),
                                              field->nullable() ? "" : " NOT NULL"));
      }
      MILLSTREAM_ASSIGN(result["rows"], run_plan(planned, morsel_rows, morsel_rows == 1 ? 1 : 3, &job));
      return Status::OK();
    }
    MILLSTREAM_ASSIGN(auto pipeline, plan::to_pipeline(planned));
    for (const auto& field : pipeline.schema->fields()) {
      result["types"].push_back(fmt::format("{} {}{}", field->name(), expr::sql_type_name(*field->type()),
                                            field->nullable() ? "" : " NOT NULL"));
    }
    result["explain"] = lines_of(plan::explain_text(pipeline));
    const plan::PipelineReport report = plan::report_pipeline(pipeline);
    for (const plan::OutputReport& output : report.outputs) {
      const std::string bounds = expr::bounds_text(output.bounds, output.type);
      result["bounds"].push_back(fmt::format("{}: {}", output.name, bounds.empty() ? "anything" : bounds));
    }
    result["report"] = lines_of(plan::report_text(report));
    MILLSTREAM_TRY(check_text(pipeline));
    MILLSTREAM_ASSIGN(result["rows"], run_query(pipeline, morsel_rows, &job));
    MILLSTREAM_ASSIGN(const auto again, run_plan(planned, morsel_rows, 2, &job));
    if (again != result["rows"])
      return bug_error("the query's engine gives other rows than the block source");
    return Status::OK();
  };
  const Status status = run();
  if (status.ok()) return result;
  if (error_category(status) == ErrorCategory::kBug) return status;
  return Sections{{"error", lines_of(without_folder(status.message(), folder))}};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string result;
  for (const std::string& line : lines) result += "    " + line + "\n";
  return result;
}

struct Totals {
  int cases = 0;
  int failures = 0;
};

class Runner {
 public:
  Runner(comm::Job& job, bool bless) : job_(job), bless_(bless) {}

  Status run_file(const std::string& path, const std::string& folder) {
    // Rank 0 writes the tables; the others read them after it has.
    Result<GoldenFile> loaded = GoldenFile();
    if (job_.rank() == 0) loaded = GoldenFile::load(path, folder);
    MILLSTREAM_TRY(job_.agree(loaded.status()));
    if (job_.rank() != 0) loaded = GoldenFile::load(path, fmt::format("{}/rank{}", folder, job_.rank()));
    MILLSTREAM_TRY(job_.agree(loaded.status()));
    GoldenFile& file = *loaded;
    for (GoldenCase& test : file.cases) {
      ++totals_.cases;
      for (int64_t morsel_rows : kMorsels) {
        auto given = run_case(test, folder, morsel_rows, job_);
        if (!given.ok()) {
          fail(file, test, morsel_rows, given.status().message());
          break;
        }
        if (bless_ && morsel_rows == kMorsels[0]) bless(test, *given);
        if (!check(file, test, morsel_rows, *given)) break;
      }
    }
    if (bless_ && job_.rank() == 0) MILLSTREAM_TRY(file.save());
    return Status::OK();
  }

  const Totals& totals() const { return totals_; }

 private:
  static void bless(GoldenCase& test, const Sections& given) {
    std::vector<std::string> sections;
    if (given.contains("error")) {
      sections = {"error"};
    } else {
      for (const auto& [section, lines] : test.expected) {
        if (section != "error") sections.push_back(section);
      }
      if (sections.empty()) sections = {"types", "rows"};
    }
    test.expected.clear();
    for (const std::string& section : sections) {
      const auto lines = given.find(section);
      test.expected[section] = lines == given.end() ? std::vector<std::string>() : lines->second;
    }
  }

  bool check(const GoldenFile& file, const GoldenCase& test, int64_t morsel_rows, const Sections& given) {
    if (test.expected.empty()) {
      fail(file, test, morsel_rows, "the case expects nothing; run golden_runner --bless");
      return false;
    }
    for (const auto& [section, expected] : test.expected) {
      const auto found = given.find(section);
      std::vector<std::string> lines = found == given.end() ? std::vector<std::string>() : found->second;
      if (section != "error" && given.contains("error")) lines = given.at("error");
      if (lines == expected) continue;
      // A slice knows its row within itself alone; the place in the file is the block source's to add.
      if (section == "error" && morsel_rows != plan::kBlockRows && !lines.empty() && !expected.empty() &&
          expected[0].ends_with(lines[0])) {
        continue;
      }
      fail(file, test, morsel_rows,
           fmt::format("@{}\n  expected:\n{}  given:\n{}", section, joined(expected), joined(lines)));
      return false;
    }
    return true;
  }

  void fail(const GoldenFile& file, const GoldenCase& test, int64_t morsel_rows, const std::string& text) {
    ++totals_.failures;
    if (job_.rank() != 0) return;
    std::cerr << fmt::format("FAILED {}:{}: {} (morsels of {}, {} ranks)\n  {}\n", file.path, test.line,
                             test.name, morsel_rows, job_.size(), text);
  }

  comm::Job& job_;
  bool bless_;
  Totals totals_;
};

Result<std::vector<std::string>> corpus(const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    if (fs::is_directory(argument)) {
      for (const auto& entry : fs::recursive_directory_iterator(argument)) {
        if (entry.path().extension() == ".test") files.push_back(entry.path().string());
      }
    } else if (fs::exists(argument)) {
      files.push_back(argument);
    } else {
      return usage_error("there is no golden file {}", argument);
    }
  }
  std::ranges::sort(files);
  if (files.empty()) return usage_error("there are no golden files");
  return files;
}

Status run(comm::Job& job, bool bless, const std::vector<std::string>& arguments) {
  MILLSTREAM_ASSIGN(auto files, corpus(arguments));
  std::string folder;
  if (job.rank() == 0) {
    std::string pattern = (fs::temp_directory_path() / "millstream-golden-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) return file_error("cannot make a folder {}", pattern);
    folder = pattern;
  }
  MILLSTREAM_ASSIGN(folder, job.world().broadcast_bytes(folder, 0));
  Runner runner(job, bless);
  Status status;
  for (size_t i = 0; i < files.size() && status.ok(); ++i) {
    status = runner.run_file(files[i], fmt::format("{}/{}", folder, i));
  }
  status = job.agree(status);
  if (job.rank() == 0) fs::remove_all(folder);
  MILLSTREAM_TRY(status);
  if (job.rank() == 0) {
    std::cout << fmt::format("{} cases in {} files, {} failed\n", runner.totals().cases, files.size(),
                             runner.totals().failures);
  }
  if (runner.totals().failures > 0) return failed_error("{} golden cases failed", runner.totals().failures);
  return Status::OK();
}

}  // namespace
}  // namespace millstream::test

int main(int argc, char** argv) {
  using namespace millstream;
  bool bless = false;
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--bless") {
      bless = true;
    } else if (std::string_view(argv[i]) == "--compiled") {
      if (!jit::can_compile()) {
        std::cerr << "this build has no code generator\n";
        return 77;
      }
      jit::set_engine(jit::Engine::kCompiled);
    } else {
      arguments.emplace_back(argv[i]);
    }
  }
  if (arguments.empty()) arguments.emplace_back(MILLSTREAM_SOURCE_DIR "/test/golden");
  if (const auto status = arrow::compute::Initialize(); !status.ok()) {
    std::cerr << status.message() << "\n";
    return 70;
  }
  set_log(false, true);
  auto job = comm::Job::start({});
  if (!job.ok()) {
    std::cerr << job.status().message() << "\n";
    return exit_code(job.status());
  }
  const Status status = (*job)->finish(test::run(**job, bless, arguments));
  if (!status.ok() && (*job)->rank() == 0) std::cerr << status.message() << "\n";
  return exit_code(status);
}
