#include "cli/commands.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <thread>

#include <arrow/api.h>
#include <arrow/config.h>

#include "base/cpu_share.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/trace.h"
#include "cli/explain_command.h"
#include "cli/json_output.h"
#include "cli/profile_command.h"
#include "cli/progress_display.h"
#include "cli/query_command.h"
#include "cli/recipe.h"
#include "comm/supervisor.h"
#include "comm/topology.h"
#include "exec/file_catalog.h"
#include "exec/hvfhv_generator.h"
#include "jit/code.h"
#include "loader/data_loader.h"
#include "loader/digest.h"
#include "loader/survey_cache.h"
#include "train/training.h"

namespace millstream::cli {
namespace {

/// A command's surroundings: what every one of them needs.
struct Session {
  const Options& options;
  comm::Job& job;
  comm::Roles roles;
  std::unique_ptr<plan::Catalog> catalog;
  int threads = 1;  ///< of this rank
  bool speaks() const { return job.rank() == 0; }
};

/// "1 epoch", "2 epochs"
std::string counted(int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", format_count(count), what, count == 1 ? "" : "s");
}

void print_out(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

/// "name        value" lines, the values aligned.
class Summary {
 public:
  template <class... A>
  Summary& line(std::string_view name, fmt::format_string<A...> format, A&&... args) {
    text_ += fmt::format("{:<14}{}\n", name, fmt::format(format, std::forward<A>(args)...));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// MPI libraries lay their names out in columns; here they stand in a line.
std::string in_one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!space)
      out += c;
    else if (!out.empty() && out.back() != ' ')
      out += ' ';
  }
  return out;
}

std::string metrics_text(const std::map<std::string, double>& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics)
    text += fmt::format("{}{} {:.6g}", text.empty() ? "" : ", ", name, value);
  return text;
}
std::string metrics_json(const std::map<std::string, double>& metrics) {
  JsonObject object;
  for (const auto& [name, value] : metrics) object.add(name, value);
  return object.str();
}

/// What was left out: a line a file, column and reason.
void dropped_lines(const std::vector<loader::DroppedRows>& dropped, Summary& text) {
  constexpr size_t kMostLines = 10;
  for (size_t i = 0; i < std::min(dropped.size(), kMostLines); ++i) {
    const loader::DroppedRows& d = dropped[i];
    const std::string what =
        d.column.empty() ? fmt::format("in {} that cannot be decoded", counted(d.row_groups, "row group"))
                         : fmt::format("where {} is {}", d.column, d.reason);
    text.line(i == 0 ? "dropped" : "", "{} {}, in {}", counted(d.rows, "row"), what, d.file);
  }
  if (dropped.size() > kMostLines) text.line("", "and {} more such lines", dropped.size() - kMostLines);
}
std::string dropped_json(const std::vector<loader::DroppedRows>& dropped) {
  JsonArray all;
  for (const loader::DroppedRows& d : dropped) {
    JsonObject one;
    one.add("file", d.file).add("reason", d.reason).add("rows", d.rows);
    if (!d.column.empty()) one.add("column", d.column);
    if (d.row_groups > 0) one.add("row_groups", d.row_groups);
    if (d.validation) one.add("validation", true);
    all.add_json(one.str());
  }
  return all.str();
}

/// Bytes from rank 0, or its error, on every rank.
Result<std::string> from_rank_0(comm::Job& job, const Result<std::string>& mine) {
  std::string message;
  if (job.rank() == 0) message = mine.ok() ? "+" + *mine : "-" + encode_status(mine.status());
  MILLSTREAM_ASSIGN(message, job.world().broadcast_bytes(message, 0));
  if (message.empty()) return bug_error("rank 0 sent nothing");
  if (message[0] == '-') return decode_status(std::string_view(message).substr(1));
  return message.substr(1);
}

/// Sums (or takes the largest of) a few numbers over the ranks, in place.
Status over_ranks(comm::Job& job, std::vector<double>* numbers, comm::ReduceOp op) {
  if (job.size() == 1) return Status::OK();
  return job.world().all_reduce(numbers->data(), static_cast<int64_t>(numbers->size()),
                                comm::DataType::kDouble, op);
}

Result<Session> make_session(const Options& options, comm::Job& job) {
  Session session{options, job, {}, nullptr, 1};
  jit::set_engine(options.engine);
  jit::set_code_directory(loader::cache_directory(options.cache_directory) + "/code");
  comm::Topology topology = job.topology();
  if (options.threads > 0)
    for (auto& rank : topology.ranks) rank.threads = options.threads;
  session.threads = topology.ranks[job.rank()].threads;
  auto roles = comm::assign_roles(topology, options.trainers);
  MILLSTREAM_TRY(roles.status());
  session.roles = std::move(roles).ValueUnsafe();
  session.catalog = exec::make_file_catalog(session.threads);
  return session;
}

/// What a rank may hold in memory: --memory, or 70 % of its share of the host.
int64_t memory_of(const Session& session, int rank) {
  if (session.options.memory_bytes > 0) return session.options.memory_bytes;
  const comm::Topology& topology = session.job.topology();
  const auto sharing = static_cast<int64_t>(topology.host_ranks[topology.host_of_rank[rank]].size());
  return available_memory_bytes() * 7 / 10 / sharing;
}

loader::LoaderConfig loader_config(const Options& options, loader::LoaderConfig config) {
  if (options.transport_given) config.transport = options.transport;
  if (!options.cache_directory.empty()) config.cache_directory = options.cache_directory;
  config.memory_bytes = options.memory_bytes;
  config.threads = options.threads;
  return config;
}

/// The recipe, read by rank 0: ranks of other hosts need not see the file.
Result<Recipe> load_recipe(const Options& options, comm::Job& job) {
  Result<std::string> mine = std::string();
  if (job.rank() == 0) mine = read_recipe_file(options.recipe);
  MILLSTREAM_ASSIGN(const std::string text, from_rank_0(job, mine));
  std::error_code error;
  const auto here = std::filesystem::current_path(error).string();
  MILLSTREAM_ASSIGN(Recipe recipe, parse_recipe(text, options.recipe, options.settings, here));
  recipe.loader = loader_config(options, recipe.loader);
  jit::set_code_directory(loader::cache_directory(recipe.loader.cache_directory) + "/code");
  recipe.data.limit_rows = options.limit_rows;
  return recipe;
}

void tell_roles(const Session& session) {
  for (const auto& text : session.roles.notices) notice(text);
}

std::string default_run_directory(const Recipe& recipe) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &parts);
  return fmt::format("runs/{}-{}", recipe.name, stamp);
}

Status run_train(Session& session) {
  const Options& options = session.options;
  comm::Job& job = session.job;
  auto loaded = load_recipe(options, job);
  MILLSTREAM_TRY(job.agree(loaded.status()));
  Recipe recipe = std::move(loaded).ValueUnsafe();
  const auto library = train::open_train_library();
  MILLSTREAM_TRY(job.agree(library.status()));

  train::TrainJob work;
  work.data = recipe.data;
  work.loader = recipe.loader;
  work.model = recipe.model;
  work.train = recipe.train;
  MILLSTREAM_ASSIGN(work.out_directory,
                    from_rank_0(job, options.out_directory.empty() ? default_run_directory(recipe)
                                                                   : options.out_directory));
  work.overwrite = options.overwrite;
  work.resume = options.resume;
  work.resume_anyway = options.resume_anyway;
  work.trace = options.trace;
  work.recipe_text = recipe.text;
  if (options.trace) Trace::enable();
  tell_roles(session);

  Result<train::TrainSummary> result = bug_error("not run");
  {
    ProgressDisplay display(options.quiet);
    result = (*library)->train(job, session.roles, *session.catalog, work,
                               [&](const train::TrainProgress& progress) { display.show(progress); });
  }
  MILLSTREAM_ASSIGN(const train::TrainSummary s, result);
  if (!session.speaks()) return Status::OK();
  if (options.json) {
    JsonObject object;
    object.add("rows", s.rows)
        .add("rows_dropped", s.rows_dropped)
        .add("steps", s.steps)
        .add("epochs", s.epochs);
    object.add("resumed_at_step", s.resumed_at_step)
        .add("ranks", s.ranks)
        .add("trainers", s.trainers)
        .add("parameters", s.parameters);
    object.add("seconds_total", s.seconds_total).add("seconds_survey", s.seconds_survey);
    object.add("seconds_to_first_batch", s.seconds_to_first_batch)
        .add("seconds_training", s.seconds_training);
    object.add("rows_per_second", s.rows_per_second).add("wait_fraction", s.wait_fraction);
    object.add("loss_first", s.loss_first)
        .add("loss_last", s.loss_last)
        .add_json("valid", metrics_json(s.valid));
    if (!s.test.empty()) object.add_json("test", metrics_json(s.test)).add("rows_test", s.rows_test);
    object.add_json("dropped", dropped_json(s.dropped));
    object.add("peak_rss_bytes", s.peak_rss_bytes).add("bundle", s.bundle).add("run", s.run);
    object.add("bottleneck", s.bottleneck);
    print_out(object.str() + "\n");
    return Status::OK();
  }
  Summary text;
  text.line("trained", "{} in {}, {} of {}", counted(s.rows, "row"), counted(s.epochs, "epoch"),
            counted(s.steps, "step"), counted(recipe.loader.batch_size, "row"));
  dropped_lines(s.dropped, text);
  text.line("ranks", "{}, of which {} train{}", s.ranks, s.trainers, s.trainers == 1 ? "s" : "");
  text.line("seconds", "{:.2f} in all: survey {:.2f}, to the first batch {:.2f}, training {:.2f}",
            s.seconds_total, s.seconds_survey, s.seconds_to_first_batch, s.seconds_training);
  text.line("speed", "{} rows/s, {:.1f} % of it waiting for data", format_rate(s.rows_per_second),
            s.wait_fraction * 100);
  text.line("loss", "{:.6g} at first, {:.6g} at last ({})", s.loss_first, s.loss_last, recipe.train.loss);
  if (!s.valid.empty()) text.line("valid", "{}", metrics_text(s.valid));
  if (!s.test.empty()) text.line("test", "{}, of {}", metrics_text(s.test), counted(s.rows_test, "row"));
  text.line("memory", "{} at most a rank", format_bytes(s.peak_rss_bytes));
  if (!s.bottleneck.empty()) text.line("bottleneck", "{}", s.bottleneck);
  text.line("run", "{}", s.run).line("bundle", "{}", s.bundle);
  print_out(text.text());
  return Status::OK();
}

/// What `batches` counted at the first trainer.
struct BatchCounts {
  int64_t rows = 0, batches = 0, rows_valid = 0, batches_valid = 0;
  int64_t first_ns = 0;
};

/// Draws and releases every batch.
Status draw_batches(const Session& session, loader::DataLoader& loader, BatchCounts* counts) {
  int64_t all_steps = 0, done = 0;
  for (const auto& pass : loader.passes())
    all_steps +=
        pass.kind == loader::PassKind::kTrain ? loader.steps_per_epoch() : loader.steps_per_validation();
  const bool first = session.roles.trainer_index(session.job.rank()) == 0;
  ProgressDisplay display(session.options.quiet || !first);
  while (true) {
    MILLSTREAM_ASSIGN(const auto batch, loader.next());
    if (!batch) return Status::OK();
    if (counts->first_ns == 0) counts->first_ns = monotonic_ns();
    const bool training = batch->pass.kind == loader::PassKind::kTrain;
    (training ? counts->rows : counts->rows_valid) += batch->global_rows;
    (training ? counts->batches : counts->batches_valid) += 1;
    loader.release();
    beat();
    display.show("batches", ++done, all_steps, counts->rows + counts->rows_valid);
  }
}

Status run_batches(Session& session) {
  const Options& options = session.options;
  comm::Job& job = session.job;
  auto loaded = load_recipe(options, job);
  MILLSTREAM_TRY(job.agree(loaded.status()));
  const Recipe recipe = std::move(loaded).ValueUnsafe();
  tell_roles(session);
  loader::LoaderConfig config = recipe.loader;
  config.consumer_computes = false;
  MILLSTREAM_ASSIGN(auto loader, loader::DataLoader::make(job, session.roles, *session.catalog, recipe.data,
                                                          config, options.epochs));
  set_phase("batches");
  BatchCounts counts;
  Status status;
  const int trainer = session.roles.trainer_index(job.rank());
  if (options.digest) {
    status = loader::digest_batches(job, session.roles, *loader, [](const loader::DigestLine& line) {
      print_out(fmt::format("{} {} {} {}{}\n", line.pass.epoch, line.step, line.rows, line.digest,
                            line.pass.kind == loader::PassKind::kValid ? " valid" : ""));
    });
  } else if (trainer >= 0) {
    status = draw_batches(session, *loader, &counts);
  }
  const int64_t end_ns = monotonic_ns();
  if (!status.ok()) job.fail(status);
  const Status feeding = loader->finish();
  MILLSTREAM_TRY(job.agree(status.ok() ? feeding : status));
  if (options.digest) return Status::OK();

  // The first trainer saw every batch; the others contribute their wait.
  const auto c = loader->counters();
  const double seconds = counts.first_ns ? static_cast<double>(end_ns - counts.first_ns) / 1e9 : 0;
  std::vector<double> largest = {0,
                                 0,
                                 0,
                                 0,
                                 0,
                                 trainer >= 0 ? c.seconds_to_first_batch : 0,
                                 c.seconds_survey,
                                 static_cast<double>(peak_rss_bytes())};
  if (trainer == 0) {
    largest[0] = static_cast<double>(counts.rows);
    largest[1] = static_cast<double>(counts.batches);
    largest[2] = static_cast<double>(counts.rows_valid);
    largest[3] = static_cast<double>(counts.batches_valid);
    largest[4] = seconds;
  }
  std::vector<double> sums = {trainer >= 0 ? c.seconds_waiting : 0};
  MILLSTREAM_TRY(job.agree(over_ranks(job, &largest, comm::ReduceOp::kMax)));
  MILLSTREAM_TRY(job.agree(over_ranks(job, &sums, comm::ReduceOp::kSum)));
  if (!session.speaks()) return Status::OK();
  const auto rows = static_cast<int64_t>(largest[0]), batches = static_cast<int64_t>(largest[1]);
  const auto rows_valid = static_cast<int64_t>(largest[2]), batches_valid = static_cast<int64_t>(largest[3]);
  const double span = largest[4], to_first = largest[5];
  const double speed = span > 0 ? static_cast<double>(rows + rows_valid) / span : 0;
  const double waiting =
      span + to_first > 0 ? sums[0] / static_cast<double>(session.roles.trainers.size()) / (span + to_first)
                          : 0;
  const auto kept = loader->survey().cache;
  const std::string cache = kept == loader::Cache::kMemory ? "memory"
                            : kept == loader::Cache::kDisk ? "disk"
                                                           : "none";
  if (options.json) {
    JsonObject object;
    object.add("rows", rows).add("batches", batches).add("rows_per_second", speed);
    object.add("seconds_to_first_batch", to_first)
        .add("rows_valid", rows_valid)
        .add("batches_valid", batches_valid);
    object.add("rows_dropped", loader->survey().rows_dropped).add("epochs", options.epochs);
    object.add_json("dropped", dropped_json(loader->survey().dropped));
    object.add("ranks", job.size()).add("trainers", session.roles.trainers.size());
    object.add("seconds", span).add("seconds_survey", largest[6]).add("wait_fraction", waiting);
    object.add("peak_rss_bytes", static_cast<int64_t>(largest[7]));
    object.add("spilled_bytes", loader->survey().spilled_bytes);
    object.add("cache", cache).add("shuffle_quality", loader->shuffle_quality());
    print_out(object.str() + "\n");
    return Status::OK();
  }
  Summary text;
  text.line("batches", "{} of {}: {} in {}", format_count(batches), counted(recipe.loader.batch_size, "row"),
            counted(rows, "row"), counted(options.epochs, "epoch"));
  if (batches_valid > 0)
    text.line("valid", "{} batches, {} rows", format_count(batches_valid), format_count(rows_valid));
  dropped_lines(loader->survey().dropped, text);
  text.line("ranks", "{}, of which {} take{} batches", job.size(), session.roles.trainers.size(),
            session.roles.trainers.size() == 1 ? "s" : "");
  text.line("seconds", "{:.2f} to the first batch, {:.2f} from there to the last", to_first, span);
  text.line("speed", "{} rows/s", format_rate(speed));
  text.line("shuffle", "spread of a batch's rows {:.3f} of a uniform shuffle's", loader->shuffle_quality());
  text.line("cache", "{}",
            kept == loader::Cache::kNone
                ? "none"
                : fmt::format("{} of prepared rows {} {}", format_bytes(loader->survey().cache_bytes),
                              kept == loader::Cache::kMemory ? "in" : "on", cache));
  text.line("memory", "{} at most a rank", format_bytes(static_cast<int64_t>(largest[7])));
  if (loader->survey().spilled_bytes > 0)
    text.line("spilled", "{} of counted values went to disk", format_bytes(loader->survey().spilled_bytes));
  print_out(text.text());
  return Status::OK();
}

train::PredictJob predict_job(const Options& options) {
  train::PredictJob work;
  work.bundle = options.bundle;
  work.inputs = options.inputs;
  work.output = options.output;
  work.overwrite = options.overwrite;
  work.missing_as_null = options.missing_as_null;
  work.loader = loader_config(options, {});
  return work;
}

Status run_predict(Session& session) {
  const auto library = train::open_train_library();
  MILLSTREAM_TRY(session.job.agree(library.status()));
  const int64_t begin = monotonic_ns();
  MILLSTREAM_ASSIGN(const int64_t rows,
                    (*library)->predict(session.job, *session.catalog, predict_job(session.options)));
  const double seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  if (!session.speaks()) return Status::OK();
  if (session.options.json)
    print_out(
        JsonObject().add("rows", rows).add("seconds", seconds).add("output", session.options.output).str() +
        "\n");
  else
    print_out(Summary()
                  .line("predicted", "{} in {:.2f} s, {} rows/s", counted(rows, "row"), seconds,
                        format_rate(static_cast<double>(rows) / seconds))
                  .line("output", "{}", session.options.output)
                  .text());
  return Status::OK();
}

/// One rank's work.
Status run_export(Session& session) {
  const Options& options = session.options;
  Status status;
  if (session.job.rank() == 0) {
    const auto library = train::open_train_library();
    status = library.ok() ? (*library)->export_bundle(
                                {options.bundle, options.export_format, options.output, options.overwrite})
                          : library.status();
  }
  MILLSTREAM_TRY(session.job.agree(status));
  if (!session.speaks()) return Status::OK();
  if (options.json)
    print_out(JsonObject().add("format", options.export_format).add("output", options.output).str() + "\n");
  else
    print_out(
        Summary().line("exported", "{}", options.export_format).line("output", "{}", options.output).text());
  return Status::OK();
}

Status run_evaluate(Session& session) {
  const auto library = train::open_train_library();
  MILLSTREAM_TRY(session.job.agree(library.status()));
  MILLSTREAM_ASSIGN(const train::EvaluateSummary summary,
                    (*library)->evaluate(session.job, *session.catalog, predict_job(session.options)));
  if (!session.speaks()) return Status::OK();
  if (session.options.json) {
    JsonObject object;
    object.add("rows", summary.rows);
    for (const auto& [name, value] : summary.metrics) object.add(name, value);
    print_out(object.str() + "\n");
  } else {
    print_out(Summary()
                  .line("evaluated", "{}", counted(summary.rows, "row"))
                  .line("metrics", "{}", metrics_text(summary.metrics))
                  .text());
  }
  return Status::OK();
}

/// Writes this rank's files (every size-th), by its threads.
Status write_files(const Session& session, const exec::HvfhvOptions& work) {
  comm::Job& job = session.job;
  std::atomic<int> next = job.rank(), files_done = 0;
  std::atomic<int64_t> rows_done = 0;
  std::mutex mutex;
  Status status;
  ProgressDisplay display(session.options.quiet || !session.speaks());
  const int mine = (work.files - job.rank() + job.size() - 1) / job.size();
  const auto write = [&] {
    while (!job.failed()) {
      const int file = next.fetch_add(job.size());
      if (file >= work.files) return;
      const Status written = exec::write_hvfhv_file(work, file);
      beat();
      std::lock_guard lock(mutex);
      if (!written.ok()) {
        if (status.ok()) status = written;
        return;
      }
      rows_done += exec::hvfhv_file_rows(work, file);
      display.show(job.size() == 1 ? "files" : "rank 0: files", ++files_done, mine, rows_done);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < std::min(session.threads, mine); ++i) threads.emplace_back(write);
  write();
  for (auto& thread : threads) thread.join();
  return status.ok() && job.failed() ? job.failure() : status;
}

Status run_generate(Session& session) {
  const Options& options = session.options;
  exec::HvfhvOptions work;
  work.rows = options.rows;
  work.files = options.files;
  work.directory = options.out_directory;
  work.seed = options.seed;
  work.overwrite = options.overwrite;
  work.threads = session.threads;
  const int64_t begin = monotonic_ns();
  MILLSTREAM_TRY(session.job.agree(exec::check_hvfhv_options(work)));
  set_phase("generating");
  MILLSTREAM_TRY(session.job.agree(write_files(session, work)));
  const double seconds = static_cast<double>(monotonic_ns() - begin) / 1e9;
  if (!session.speaks()) return Status::OK();
  int64_t bytes = 0;
  for (int file = 0; file < work.files; ++file) {
    std::error_code error;
    const auto size = std::filesystem::file_size(
        std::filesystem::path(work.directory) / exec::hvfhv_file_name(file), error);
    if (!error) bytes += static_cast<int64_t>(size);
  }
  if (options.json)
    print_out(JsonObject()
                  .add("rows", work.rows)
                  .add("files", work.files)
                  .add("bytes", bytes)
                  .add("seconds", seconds)
                  .add("out", work.directory)
                  .str() +
              "\n");
  else
    print_out(Summary()
                  .line("generated", "{} in {}, {}, in {:.2f} s", counted(work.rows, "trip"),
                        counted(work.files, "file"), format_bytes(bytes), seconds)
                  .line("folder", "{}", work.directory)
                  .text());
  return Status::OK();
}

Status run_explain(Session& session) {
  if (session.options.recipe.empty())
    return run_explain_command(session.options, session.job, *session.catalog, session.threads, nullptr);
  const auto recipe = load_recipe(session.options, session.job);
  MILLSTREAM_TRY(session.job.agree(recipe.status()));
  return run_explain_command(session.options, session.job, *session.catalog, session.threads, &recipe->data);
}

Status run_info(Session& session) {
  comm::Job& job = session.job;
  const comm::Topology& topology = job.topology();
  std::string torch;
  Result<const train::TrainLibrary*> library = bug_error("not opened");
  if (session.speaks()) {
    library = train::open_train_library();
    torch = library.ok() ? (*library)->torch_version() : "";
  }
  MILLSTREAM_TRY(job.agree(Status::OK()));
  if (!session.speaks()) return Status::OK();
  const auto threads_of = [&](int rank) {
    return session.options.threads > 0 ? session.options.threads : topology.ranks[rank].threads;
  };
  const std::string arrow = arrow::GetBuildInfo().version_string;
  if (session.options.json) {
    JsonArray hosts, ranks;
    for (const auto& host : topology.hosts) hosts.add_json(json_string(host));
    for (int rank = 0; rank < job.size(); ++rank) {
      JsonArray devices;
      for (const auto& device : topology.ranks[rank].devices)
        devices.add_json(
            JsonObject().add("index", device.index).add("name", device.name).add("uuid", device.uuid).str());
      const int trainer = session.roles.trainer_index(rank);
      JsonObject object;
      object.add("rank", rank).add("host", topology.ranks[rank].host).add("threads", threads_of(rank));
      object.add("memory_bytes", memory_of(session, rank)).add_json("devices", devices.str());
      object.add("trains", trainer >= 0).add("feeds", session.roles.is_feeder(rank));
      object.add("device", trainer >= 0 ? session.roles.trainers[trainer].device : -1);
      ranks.add_json(object.str());
    }
    JsonObject versions;
    versions.add("millstream", MILLSTREAM_VERSION)
        .add("arrow", arrow)
        .add("mpi_compiled", comm::mpi_compiled_in());
    versions.add("mpi_running", in_one_line(comm::mpi_library_version())).add("torch", torch);
    JsonObject object;
    object.add_json("hosts", hosts.str()).add_json("ranks", ranks.str()).add_json("versions", versions.str());
    print_out(object.str() + "\n");
    return Status::OK();
  }
  std::string text =
      fmt::format("{:<6}{:<24}{:<9}{:<11}{:<9}{}\n", "rank", "host", "threads", "memory", "device", "does");
  for (int rank = 0; rank < job.size(); ++rank) {
    const int trainer = session.roles.trainer_index(rank);
    const bool feeds = session.roles.is_feeder(rank);
    const int device = trainer >= 0 ? session.roles.trainers[trainer].device : -1;
    text += fmt::format("{:<6}{:<24}{:<9}{:<11}{:<9}{}\n", rank, topology.ranks[rank].host, threads_of(rank),
                        format_bytes(memory_of(session, rank)),
                        device >= 0 ? fmt::format("gpu {}", device) : "cpu",
                        trainer >= 0 && feeds ? "trains, feeds"
                        : trainer >= 0        ? "trains"
                                              : "feeds");
  }
  std::vector<std::string> seen;
  for (const auto& rank : topology.ranks)
    for (const auto& device : rank.devices)
      if (std::find(seen.begin(), seen.end(), device.uuid) == seen.end()) {
        seen.push_back(device.uuid);
        text += fmt::format("gpu   {}  {}  on {}\n", device.name, device.uuid, rank.host);
      }
  text += "\n";
  Summary versions;
  versions.line("millstream", "{}", MILLSTREAM_VERSION).line("Arrow", "{}", arrow);
  versions.line("MPI", "compiled with {}", comm::mpi_compiled_in());
  versions.line("", "running {}", in_one_line(comm::mpi_library_version()));
  versions.line("torch", "{}", library.ok() ? torch : "not there: " + library.status().message());
  print_out(text + versions.text());
  tell_roles(session);
  return Status::OK();
}

}  // namespace

Status run_command(const Options& options, comm::Job& job) {
  Status size;
  if (options.ranks > 0 && options.ranks != job.size())
    size = usage_error(
        "--ranks {}, but the launcher that started this program runs {} of it; leave --ranks out under "
        "mpirun or srun",
        options.ranks, job.size());
  MILLSTREAM_TRY(job.agree(size));
  auto made = make_session(options, job);
  MILLSTREAM_TRY(job.agree(made.status()));
  Session session = std::move(made).ValueUnsafe();
  switch (options.command) {
    case Command::kTrain:
      return run_train(session);
    case Command::kBatches:
      return run_batches(session);
    case Command::kPredict:
      return run_predict(session);
    case Command::kEvaluate:
      return run_evaluate(session);
    case Command::kExport:
      return run_export(session);
    case Command::kQuery:
      return run_query_command(options, job, *session.catalog, session.threads,
                               memory_of(session, job.rank()));
    case Command::kExplain:
      return run_explain(session);
    case Command::kProfile:
      return run_profile_command(options, job, *session.catalog, session.threads,
                                 memory_of(session, job.rank()));
    case Command::kInit:
      return run_init_command(options, job, *session.catalog, session.threads,
                              memory_of(session, job.rank()));
    case Command::kGenerate:
      return run_generate(session);
    case Command::kInfo:
      return run_info(session);
    case Command::kPrintText:
      break;
  }
  return bug_error("a command without a job was given a job");
}

}  // namespace millstream::cli
