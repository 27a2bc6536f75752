#include "cli/profile_command.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/cpu_share.h"
#include "base/nearest_name.h"
#include "base/trace.h"
#include "cli/init_recipe.h"
#include "cli/json_output.h"
#include "cli/profile_report.h"
#include "cli/progress_display.h"
#include "exec/atomic_file.h"
#include "loader/profile.h"
#include "loader/split.h"
#include "plan/planner.h"

namespace millstream::cli {
namespace {

namespace fs = std::filesystem;

std::string working_directory() {
  std::error_code error;
  return fs::current_path(error).string();
}

Result<loader::TableProfile> make_profile(const Options& options, comm::Job& job, plan::Catalog& catalog,
                                          int threads, int64_t memory_bytes) {
  const auto plan_it = [&]() -> Result<plan::NodePtr> {
    plan::QueryOptions query{.name = "query", .base_directory = working_directory()};
    if (options.inputs.size() == 1 && loader::is_query_text(options.inputs[0]))
      return plan::plan_query(options.inputs[0], catalog, query);
    MILLSTREAM_ASSIGN(const std::string from, from_text(options.inputs));
    return plan::plan_query("SELECT * FROM " + from, catalog, query);
  };
  auto planned = plan_it();
  MILLSTREAM_TRY(job.agree(planned.status()));
  loader::ProfileRequest request;
  request.job = &job;
  request.plan = std::move(planned).ValueUnsafe();
  request.threads = threads;
  request.memory_bytes = memory_bytes;
  if (!options.target.empty()) {
    request.target = plan::find_output(*request.plan->schema, options.target);
    if (request.target < 0)
      return usage_error("--target {}: there is no such column{}", options.target,
                         name_hint(options.target, request.plan->schema->field_names()));
  }
  return loader::profile_table(request);
}

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

// A file of the command line as a recipe in `folder` names it.
std::string from_folder(const std::string& file, const std::string& folder) {
  if (file.empty() || file.front() == '/' || file.find("://") != std::string::npos) return file;
  const fs::path here = working_directory();
  const fs::path there = (here / folder).lexically_normal();
  if (there.lexically_relative(here.lexically_normal()) == ".") return file;
  return (here / file).lexically_normal().lexically_relative(there).string();
}

Status write_file(const std::string& path, const std::string& text, bool overwrite) {
  const std::string temporary = exec::temporary_beside(path);
  {
    std::ofstream file(temporary, std::ios::binary);
    file << text;
    file.flush();
    if (!file) {
      std::error_code ignored;
      fs::remove(temporary, ignored);
      return file_error("{} can't be written: {}", path, std::strerror(errno));
    }
  }
  return exec::publish_file(temporary, path, overwrite);
}

Status write_recipe(const Options& options, const loader::TableProfile& profile) {
  InitRequest request;
  const std::string folder = fs::path(options.output).parent_path().string();
  for (const std::string& file : options.inputs) request.files.push_back(from_folder(file, folder));
  request.name = options.output.empty() ? "recipe.toml" : options.output;
  MILLSTREAM_ASSIGN(const InitRecipe recipe, init_recipe(profile, request));
  if (!options.output.empty()) MILLSTREAM_TRY(write_file(options.output, recipe.text, options.overwrite));
  if (options.json) {
    JsonArray used, left_out;
    for (const std::string& name : recipe.features) used.add_json(json_string(name));
    for (const auto& [name, reason] : recipe.left_out)
      left_out.add_json(JsonObject().add("column", name).add("reason", reason).str());
    JsonObject object;
    object.add("rows", profile.rows).add("loss", recipe.loss).add_json("features", used.str());
    object.add_json("left_out", left_out.str());
    if (options.output.empty()) {
      object.add("recipe", recipe.text);
    } else {
      object.add("output", options.output);
    }
    print(object.str() + "\n");
    return Status::OK();
  }
  if (options.output.empty()) {
    print(recipe.text);
    return Status::OK();
  }
  std::string text = fmt::format("{}: {} of {} columns are features, loss {}\n", options.output,
                                 recipe.features.size(), profile.columns.size() - 1, recipe.loss);
  for (const auto& [name, reason] : recipe.left_out) text += fmt::format("left out: {} {}\n", name, reason);
  print(text + fmt::format("next: millstream train {}\n", options.output));
  return Status::OK();
}

}  // namespace

Status run_profile_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                           int64_t memory_bytes) {
  const int64_t begin = monotonic_ns();
  MILLSTREAM_ASSIGN(const auto profile, make_profile(options, job, catalog, threads, memory_bytes));
  double memory = static_cast<double>(peak_rss_bytes());
  Status status;
  if (job.size() > 1)
    status = job.world().all_reduce(&memory, 1, comm::DataType::kDouble, comm::ReduceOp::kMax);
  MILLSTREAM_TRY(job.agree(status));
  if (job.rank() != 0) return Status::OK();
  const double seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  print(options.json ? profile_json(profile, seconds, static_cast<int64_t>(memory)) + "\n"
                     : profile_text(profile, seconds));
  return Status::OK();
}

Status run_init_command(const Options& options, comm::Job& job, plan::Catalog& catalog, int threads,
                        int64_t memory_bytes) {
  Status status;
  if (job.rank() == 0 && !options.output.empty())
    status = exec::check_output_path(options.output, options.overwrite);
  MILLSTREAM_TRY(job.agree(status));
  MILLSTREAM_ASSIGN(const auto profile, make_profile(options, job, catalog, threads, memory_bytes));
  if (job.rank() == 0) status = write_recipe(options, profile);
  return job.agree(status);
}

}  // namespace millstream::cli
