// The loader from query to slots, on every number of ranks and trainers, both transports: the batches are those that
// a plain walk over lanes and windows gives.

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "base/progress.h"
#include "comm/mpi_test.h"
#include "exec/file_catalog.h"
#include "loader/data_loader.h"
#include "loader/digest.h"
#include "loader/survey.h"
#include "loader/test_data.h"

namespace millstream::loader {
namespace {

comm::Job& job() {
  return comm::test_job();
}

DataConfig data_config(const std::string& folder) {
  DataConfig data;
  data.train = "SELECT id, x, y FROM 'part-*.parquet' WHERE keep = 1";
  data.base_directory = folder;
  data.target = "y";
  features::FeatureSpec plain, scaled;
  plain.columns = {"id"};
  scaled.columns = {"x"};
  scaled.steps = {features::parse_step("standard_scale").ValueOrDie()};
  data.features = {plain, scaled};
  return data;
}

LoaderConfig loader_config(const std::string& folder) {
  LoaderConfig config;
  config.batch_size = 256;
  config.window = 500;
  config.lanes = 4;
  config.prefetch = 3;
  config.seed = 42;
  config.threads = 2;
  config.cache_directory = folder + "/cache";
  return config;
}

struct Drawn {
  Status status;
  SurveyResult survey;
  std::vector<DigestLine> lines;  // on the first trainer's rank
  int64_t steps = -1;             // of an epoch; there alone
  std::string survey_key;
};

Drawn draw(const DataConfig& data, const LoaderConfig& config, int64_t epochs, const std::string& trainers) {
  Drawn drawn;
  const auto roles = comm::assign_roles(job().topology(), trainers);
  if (!roles.ok()) {
    drawn.status = roles.status();
    return drawn;
  }
  const auto catalog = exec::make_file_catalog(1);
  auto loader = DataLoader::make(job(), *roles, *catalog, data, config, epochs);
  if (!loader.ok()) {
    drawn.status = loader.status();
    job().clear_failure();  // what it left behind: tests go on
    return drawn;
  }
  Status status =
      digest_batches(job(), *roles, **loader, [&](const DigestLine& line) { drawn.lines.push_back(line); });
  if (!status.ok()) job().fail(status);
  const Status finished = (*loader)->finish();
  if (status.ok() || error_category(status) == ErrorCategory::kPeerFailed)
    status = finished.ok() ? status : finished;
  drawn.status = job().agree(status);
  drawn.survey = (*loader)->survey();
  drawn.survey_key = (*loader)->survey_key();
  if (roles->trainer_index(job().rank()) == 0) {
    drawn.steps = (*loader)->steps_per_epoch();
    const StreamPosition end = (*loader)->position();
    if (drawn.status.ok()) {
      EXPECT_TRUE(end.epoch == epochs && end.step == 0) << end.epoch << ", " << end.step;
    }
  }
  loader->reset();
  if (!drawn.status.ok()) job().clear_failure();
  return drawn;
}

// What must come out, given the fitted numbers.
std::vector<DigestLine> expected_lines(const std::vector<TestFile>& files, const DataConfig& data,
                                       const LoaderConfig& config, int64_t epochs,
                                       const features::Fitted& fitted, bool pieces = false) {
  const double mean = fitted.values[0].value;
  const double scale = fitted.values[1].value;
  auto train = rows_by_entry_point(files, data.valid_fraction, false);
  const auto valid = rows_by_entry_point(files, data.valid_fraction, true);
  // Blocks without rows make no piece.
  if (pieces) std::erase_if(train, [](const auto& rows) { return rows.empty(); });
  std::vector<DigestLine> lines;
  const auto add = [&](PassKind kind, int64_t epoch, const std::vector<std::vector<TestRow>>& batches) {
    for (size_t step = 0; step < batches.size(); ++step) {
      std::vector<float> features, targets;
      for (const TestRow& row : batches[step]) {
        features.push_back(static_cast<float>(row.id));
        features.push_back(static_cast<float>((row.x - mean) / scale));
        targets.push_back(static_cast<float>(row.y));
      }
      Digest digest;
      digest.add(features.data(), features.size() * 4);
      digest.add(targets.data(), targets.size() * 4);
      lines.push_back({{kind, epoch},
                       static_cast<int64_t>(step),
                       static_cast<int64_t>(batches[step].size()),
                       digest.hex()});
    }
  };
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    ScheduleConfig schedule{.seed = config.seed,
                            .epoch = epoch,
                            .shuffle = config.shuffle,
                            .lanes = config.lanes,
                            .window = config.window,
                            .batch_size = config.batch_size};
    add(PassKind::kTrain, epoch, expected_batches(train, schedule));
    schedule.shuffle = Shuffle::kNone;
    add(PassKind::kValid, epoch, expected_batches(valid, schedule));
  }
  return lines;
}

void expect_lines(const std::vector<DigestLine>& got, const std::vector<DigestLine>& wanted,
                  const std::string& where) {
  ASSERT_EQ(got.size(), wanted.size()) << where;
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].pass.kind, wanted[i].pass.kind) << where << ", batch " << i;
    ASSERT_EQ(got[i].pass.epoch, wanted[i].pass.epoch) << where << ", batch " << i;
    ASSERT_EQ(got[i].step, wanted[i].step) << where << ", batch " << i;
    ASSERT_EQ(got[i].rows, wanted[i].rows) << where << ", batch " << i;
    ASSERT_EQ(got[i].digest, wanted[i].digest) << where << ", batch " << i;
  }
}

// Rows with ids and weights: the same rows as without, each part in its segment.
TEST(DataLoaderTest, IdsAndWeightsStandBesideTheirRows) {
  SharedFolder folder(job());
  const auto files = make_test_files({3000, 1500}, 700);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.train =
      "SELECT id, x, y, id % 7 AS place, 'zone ' || CAST(id % 5 AS VARCHAR) AS zone, id % 3 + 0.5 AS w "
      "FROM 'part-*.parquet' WHERE keep = 1";
  data.weight = "w";
  features::FeatureSpec place, zone;
  place.columns = {"place"};
  place.steps = {*features::parse_step("ordinal(0, 1, 2, 3, 4, 5, 6)"),
                 *features::parse_step("embedding(2)")};
  zone.columns = {"zone"};
  zone.steps = {*features::parse_step("categorify"), *features::parse_step("embedding(3)")};
  data.features.insert(data.features.begin(), {place, zone});
  for (const Transport transport : {Transport::kShared, Transport::kMessages}) {
    for (const Shuffle shuffle : {Shuffle::kWindow, Shuffle::kNone, Shuffle::kFull}) {
      LoaderConfig config = loader_config(folder.path());
      config.transport = transport;
      config.shuffle = shuffle;
      const auto roles = *comm::assign_roles(job().topology(), "all");
      const auto catalog = exec::make_file_catalog(1);
      auto loader = *DataLoader::make(job(), roles, *catalog, data, config, 1);
      const SlotLayout& layout = loader->layout();
      ASSERT_EQ(layout.segments.size(), 4u);
      EXPECT_EQ(layout.segments[0].columns, (std::vector<std::string>{"id", "x"}));
      EXPECT_EQ(layout.segments[layout.ids].columns, (std::vector<std::string>{"place", "zone"}));
      EXPECT_EQ(layout.segments[layout.ids].type, SegmentType::kInt32);
      std::map<std::string, double> zones;
      for (const auto& value : loader->survey().fitted.values)
        if (value.step == "categorify") zones[value.name] = value.value;
      EXPECT_EQ(zones.size(), 5u);
      int64_t rows = 0;
      for (;;) {
        const auto batch = *loader->next();
        if (!batch) break;
        for (int64_t i = 0; i < batch->rows; ++i) {
          const auto id = static_cast<int64_t>(batch->floats(0)[2 * i]);
          EXPECT_EQ(batch->floats(1)[i], static_cast<float>(make_row(id).y)) << id;
          EXPECT_EQ(batch->ints(layout.ids)[2 * i], id % 7 + 1) << id;
          EXPECT_EQ(batch->ints(layout.ids)[2 * i + 1], zones.at("zone " + std::to_string(id % 5))) << id;
          EXPECT_EQ(batch->floats(layout.weight)[i], static_cast<float>(id % 3) + 0.5F) << id;
          ++rows;
        }
        loader->release();
      }
      ASSERT_TRUE(job().agree(loader->finish()).ok());
      ASSERT_TRUE(job().world().all_reduce(&rows, 1, comm::DataType::kInt64, comm::ReduceOp::kSum).ok());
      EXPECT_EQ(rows, loader->survey().rows_train);
      loader.reset();
      ASSERT_TRUE(job().agree(Status::OK()).ok());
    }
  }
}

// Every number of trainers and both transports give the expected batches.
void check_all_shapes(const std::vector<TestFile>& files, const DataConfig& data, const LoaderConfig& base,
                      int64_t epochs, bool pieces = false) {
  for (int trainers = 1; trainers <= job().size(); ++trainers) {
    for (const Transport transport : {Transport::kAuto, Transport::kMessages}) {
      LoaderConfig config = base;
      config.transport = transport;
      const std::string where = fmt::format("{} ranks, {} trainers, {}", job().size(), trainers,
                                            transport == Transport::kAuto ? "shared memory" : "messages");
      const Drawn drawn = draw(data, config, epochs, std::to_string(trainers));
      ASSERT_TRUE(drawn.status.ok()) << where << ": " << drawn.status.ToString();
      if (drawn.lines.empty()) continue;  // not the first trainer
      expect_lines(drawn.lines, expected_lines(files, data, config, epochs, drawn.survey.fitted, pieces),
                   where);
    }
  }
}

TEST(DataLoaderTest, SameBatchesOnEveryShape) {
  SharedFolder folder(job());
  // 24 row groups, one file without rows, one of a single row.
  const auto files = make_test_files({1000, 0, 1, 640, 700}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.2;
  check_all_shapes(files, data, loader_config(folder.path()), 2);
}

TEST(DataLoaderTest, FewEntryPointsAreRewritten) {
  SharedFolder folder(job());
  auto files = make_test_files({900, 300, 800}, 450);
  for (TestRow& row : files[1].rows) row.keep = 0;  // the filter keeps nothing of this file
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.3;
  check_all_shapes(files, data, loader_config(folder.path()), 2, true);
  ASSERT_TRUE(job().agree(Status::OK()).ok());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() + "/cache/survey"), {}), 1);
}

TEST(DataLoaderTest, FileOrder) {
  SharedFolder folder(job());
  const auto files = make_test_files({500, 3, 0, 700}, 130);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.shuffle = Shuffle::kNone;
  check_all_shapes(files, data_config(folder.path()), config, 2);
}

// Wherever rows are kept, and from wherever the survey comes, the batches are the same.
void check_caches(const std::vector<TestFile>& files, const DataConfig& data, const LoaderConfig& base,
                  bool pieces) {
  constexpr int64_t kEpochs = 2;
  int round = 0;
  for (const Cache cache :
       {Cache::kNone, Cache::kMemory, Cache::kDisk, Cache::kAuto, Cache::kMemory, Cache::kDisk}) {
    LoaderConfig config = base;
    config.cache = cache;
    config.transport = round % 2 ? Transport::kMessages : Transport::kAuto;
    const int trainers = 1 + round++ % job().size();
    const std::string where =
        fmt::format("round {}, cache {}, {} trainers", round, static_cast<int>(cache), trainers);
    const Drawn drawn = draw(data, config, kEpochs, std::to_string(trainers));
    ASSERT_TRUE(drawn.status.ok()) << where << ": " << drawn.status.ToString();
    const Cache wanted = cache != Cache::kAuto && cache != Cache::kNone ? cache
                         : pieces                                       ? Cache::kDisk
                         : cache == Cache::kNone                        ? Cache::kNone
                                                                        : Cache::kMemory;
    EXPECT_EQ(drawn.survey.cache, wanted) << where;
    EXPECT_EQ(drawn.survey.cache_bytes > 0, wanted != Cache::kNone) << where;
    if (drawn.steps < 0) continue;  // not the first trainer
    expect_lines(drawn.lines, expected_lines(files, data, config, kEpochs, drawn.survey.fitted, pieces),
                 where);
  }
}

TEST(DataLoaderTest, CacheChangesNoBatch) {
  SharedFolder folder(job());
  const auto files = make_test_files({1000, 0, 1, 640, 700}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.2;
  check_caches(files, data, loader_config(folder.path()), false);
}

// Filters that leave all, half, a thousandth and nothing of a file; row groups of one row, files of none.
TEST(DataLoaderTest, FiltersOfEveryStrength) {
  SharedFolder folder(job());
  auto files = make_test_files({1500, 1500, 3000, 1500, 0, 1}, 100);
  files.push_back({"part-09.parquet", 1, {}});
  for (int64_t row = 0; row < 40; ++row) files.back().rows.push_back(make_row(100000 + row));
  const auto keep = [](TestFile& file, int64_t every) {
    for (size_t row = 0; row < file.rows.size(); ++row)
      file.rows[row].keep = every > 0 && static_cast<int64_t>(row) % every == every - 1;
  };
  keep(files[0], 1);
  keep(files[1], 2);
  keep(files[2], 1000);
  keep(files[3], 0);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.1;
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kWindow, Shuffle::kFull}) {
    LoaderConfig config = loader_config(folder.path());
    config.shuffle = shuffle;
    check_all_shapes(files, data, config, 2);
    if (shuffle != Shuffle::kFull) check_caches(files, data, config, false);
  }
}

TEST(DataLoaderTest, CacheOfRewrittenRowsChangesNoBatch) {
  SharedFolder folder(job());
  auto files = make_test_files({900, 300, 800}, 450);
  for (TestRow& row : files[1].rows) row.keep = 0;
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.3;
  check_caches(files, data, loader_config(folder.path()), true);
}

TEST(DataLoaderTest, CacheInFileOrderChangesNoBatch) {
  SharedFolder folder(job());
  const auto files = make_test_files({500, 3, 0, 700}, 130);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.shuffle = Shuffle::kNone;
  check_caches(files, data_config(folder.path()), config, false);
}

TEST(DataLoaderTest, CachesTheValidationQuery) {
  SharedFolder folder(job());
  ASSERT_TRUE(write_test_files(job(), folder.path(), make_test_files({500, 300, 700}, 100)).ok());
  DataConfig data = data_config(folder.path());
  data.train = "SELECT id, x, y FROM 'part-0[01].parquet' WHERE keep = 1";
  data.valid = "SELECT y, x, id FROM 'part-02.parquet' WHERE keep = 1";
  LoaderConfig config = loader_config(folder.path());
  config.cache = Cache::kNone;
  const Drawn plain = draw(data, config, 2, "1");
  ASSERT_TRUE(plain.status.ok()) << plain.status.ToString();
  for (const Cache cache : {Cache::kMemory, Cache::kDisk}) {
    config.cache = cache;
    const Drawn cached = draw(data, config, 2, "1");
    ASSERT_TRUE(cached.status.ok()) << cached.status.ToString();
    expect_lines(cached.lines, plain.lines, "cached");
  }
}

TEST(DataLoaderTest, CacheInMemoryKeepsToItsBudget) {
  SharedFolder folder(job());
  const auto files = make_test_files({30000, 30000, 30000, 30000}, 15000);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.window = 20000;
  config.lanes = 1;
  config.cache = Cache::kMemory;
  config.memory_bytes = 400 << 10;
  const Drawn drawn = draw(data_config(folder.path()), config, 2, "1");
  ASSERT_FALSE(drawn.status.ok());
  EXPECT_EQ(error_category(drawn.status), ErrorCategory::kUsage);
  EXPECT_NE(drawn.status.message().find("loader.cache is \"memory\""), std::string::npos)
      << drawn.status.ToString();
}

TEST(DataLoaderTest, FullShuffle) {
  SharedFolder folder(job());
  const auto files = make_test_files({1000, 0, 1, 640, 700}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.2;
  LoaderConfig config = loader_config(folder.path());
  config.shuffle = Shuffle::kFull;
  check_all_shapes(files, data, config, 3);
  for (const Cache cache : {Cache::kMemory, Cache::kDisk, Cache::kDisk}) {
    config.cache = cache;
    config.batch_size = 1 + config.batch_size * 2;
    const Drawn drawn = draw(data, config, 2, std::to_string(job().size()));
    ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
    if (drawn.steps < 0) continue;
    expect_lines(drawn.lines, expected_lines(files, data, config, 2, drawn.survey.fitted), "cached");
  }
  ASSERT_TRUE(job().agree(Status::OK()).ok());
  // Of the rows on disk nothing is left but the pieces of the survey.
  for (const auto& entry : std::filesystem::directory_iterator(folder.path() + "/cache")) {
    EXPECT_EQ(entry.path().filename(), "survey");
  }
  config.cache = Cache::kNone;
  const Drawn refused = draw(data, config, 2, "1");
  EXPECT_EQ(error_category(refused.status), ErrorCategory::kUsage);
  EXPECT_NE(refused.status.message().find("draws rows from prepared ones"), std::string::npos);
}

TEST(DataLoaderTest, FullShuffleKeepsToItsBudget) {
  SharedFolder folder(job());
  const auto files = make_test_files({30000, 30000}, 15000);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.shuffle = Shuffle::kFull;
  config.memory_bytes = 1 << 20;  // the packed rows are about 470 KiB, of as many ranks as there are
  config.cache = Cache::kDisk;
  const DataConfig data = data_config(folder.path());
  const Drawn drawn = draw(data, config, 2, "1");
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  if (drawn.steps >= 0) {
    expect_lines(drawn.lines, expected_lines(files, data, config, 2, drawn.survey.fitted), "on disk");
  }
}

// With the memory for one window of each lane, and for two: budgets in steps smaller than a rank's second windows, so
// that some lie between.
TEST(DataLoaderTest, WindowsAheadChangeNoBatch) {
  SharedFolder folder(job());
  const auto files = make_test_files({9000, 700, 8000}, 500);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  const DataConfig data = data_config(folder.path());
  LoaderConfig config = loader_config(folder.path());
  config.window = 6000;
  config.threads = 1;
  config.cache = Cache::kDisk;
  int refused = 0, fed = 0;
  const auto check = [&](const std::string& where) {
    const Drawn drawn = draw(data, config, 2, "1");
    if (!drawn.status.ok()) {
      ASSERT_NE(drawn.status.message().find("the loader needs"), std::string::npos)
          << drawn.status.ToString();
      ++refused;
      return;
    }
    ++fed;
    if (drawn.steps < 0) return;
    expect_lines(drawn.lines, expected_lines(files, data, config, 2, drawn.survey.fitted), where);
  };
  config.prefetch = 2;
  for (config.memory_bytes = 150 << 10; config.memory_bytes < (400 << 10); config.memory_bytes += 12 << 10)
    check(fmt::format("{} bytes", config.memory_bytes));
  EXPECT_GT(refused, 0);
  EXPECT_GT(fed, 8);
  config.memory_bytes = 0;
  for (config.prefetch = 0; config.prefetch < 50; config.prefetch = 2 * config.prefetch + 1)
    check(fmt::format("{} slots", config.prefetch));
}

// A loader that starts anywhere gives what the uninterrupted one gives from there on.
void check_starts(const std::vector<TestFile>& files, const DataConfig& data, const LoaderConfig& base,
                  bool pieces) {
  constexpr int64_t kEpochs = 3;
  const Drawn whole = draw(data, base, kEpochs, "1");
  ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();
  const std::vector<DigestLine> lines =
      expected_lines(files, data, base, kEpochs, whole.survey.fitted, pieces);
  int64_t steps = 0;
  for (const DigestLine& line : lines) steps += line.pass.kind == PassKind::kTrain && line.pass.epoch == 0;
  int round = 0;
  for (const StreamPosition start :
       {StreamPosition{0, 1}, StreamPosition{0, steps - 1}, StreamPosition{0, steps}, StreamPosition{1, 0},
        StreamPosition{1, 2}, StreamPosition{2, steps / 2}, StreamPosition{2, steps}, StreamPosition{3, 0}}) {
    LoaderConfig config = base;
    config.start_epoch = start.epoch;
    config.start_step = start.step;
    config.threads = 1 + round % 3;
    config.transport = round % 2 ? Transport::kMessages : Transport::kAuto;
    const int trainers = 1 + round++ % job().size();
    const std::string where = fmt::format("epoch {}, step {}, {} ranks, {} trainers", start.epoch, start.step,
                                          job().size(), trainers);
    const Drawn drawn = draw(data, config, kEpochs, std::to_string(trainers));
    ASSERT_TRUE(drawn.status.ok()) << where << ": " << drawn.status.ToString();
    if (drawn.steps < 0) continue;  // not the first trainer
    const auto first = std::find_if(lines.begin(), lines.end(), [&](const DigestLine& line) {
      if (line.pass.epoch != start.epoch) return line.pass.epoch > start.epoch;
      return line.pass.kind == PassKind::kValid || line.step >= start.step;
    });
    expect_lines(drawn.lines, {first, lines.end()}, where);
    EXPECT_EQ(drawn.survey_key, whole.survey_key);
  }
}

TEST(DataLoaderTest, StartsAnywhere) {
  SharedFolder folder(job());
  const auto files = make_test_files({1000, 0, 1, 640, 700}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.2;
  LoaderConfig config = loader_config(folder.path());
  config.batch_size = 128;
  check_starts(files, data, config, false);
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kFull}) {
    config.shuffle = shuffle;
    check_starts(files, data, config, false);
  }
}

TEST(DataLoaderTest, StartsAnywhereInPieces) {
  SharedFolder folder(job());
  const auto files = make_test_files({900, 300, 800}, 450);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.batch_size = 100;
  check_starts(files, data_config(folder.path()), config, true);
}

// A loop of one's own: takes `steps` batches of a loader that goes on from `state` (where there is one), and gives the
// state that it left off with, the same on every rank. What it drew is added to `lines` on trainer 0's rank.
std::string draw_some(const DataConfig& data, const LoaderConfig& config, const std::string& trainers,
                      const std::string& state, int64_t steps, std::vector<DigestLine>* lines) {
  const auto roles = comm::assign_roles(job().topology(), trainers).ValueOrDie();
  const auto catalog = exec::make_file_catalog(1);
  auto loader = DataLoader::make(job(), roles, *catalog, data, config, 3).ValueOrDie();
  if (!state.empty()) {
    // Some batches are drawn before, which must not matter.
    if (roles.is_trainer(job().rank())) {
      EXPECT_TRUE(loader->next().ok());
    }
    // Not before it has come: a rank that feeds stops feeding in load_state().
    EXPECT_TRUE(job().agree(Status::OK()).ok());
    EXPECT_TRUE(loader->load_state(state).ok());
  }
  std::string left;
  if (roles.is_trainer(job().rank())) {
    // One trainer draws whole batches.
    for (int64_t i = 0; i < steps; ++i) {
      const auto batch = loader->next().ValueOrDie();
      if (!batch) break;
      Digest digest;
      digest.add(batch->floats(0), batch->rows * batch->layout->segments[0].row_bytes);
      digest.add(batch->floats(1), batch->rows * batch->layout->segments[1].row_bytes);
      lines->push_back({batch->pass, batch->step, batch->rows, digest.hex()});
      loader->release();
    }
    left = loader->state();
  }
  left = job().world().broadcast_bytes(left, roles.trainers[0].rank).ValueOrDie();
  EXPECT_TRUE(job().agree(Status::OK()).ok());
  loader.reset();
  EXPECT_TRUE(job().agree(Status::OK()).ok());
  return left;
}

TEST(DataLoaderTest, StateGoesOnAfterAnyNumberOfInterruptions) {
  SharedFolder folder(job());
  const auto files = make_test_files({1000, 0, 1, 640, 700}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  const DataConfig data = data_config(folder.path());
  for (const Shuffle shuffle : {Shuffle::kNone, Shuffle::kWindow, Shuffle::kFull}) {
    LoaderConfig config = loader_config(folder.path());
    config.shuffle = shuffle;
    config.batch_size = 128;
    const Drawn whole = draw(data, config, 3, "1");
    ASSERT_TRUE(whole.status.ok()) << whole.status.ToString();
    std::vector<DigestLine> lines;
    std::string state;
    int round = 0;
    for (const int64_t steps : {5, 1, 0, 17, 1000}) {
      config.threads = 1 + round % 3;
      config.transport = round % 2 ? Transport::kMessages : Transport::kAuto;
      if (shuffle != Shuffle::kFull) config.cache = round % 3 == 1 ? Cache::kNone : Cache::kAuto;
      state = draw_some(data, config, "1", state, steps, &lines);
      ++round;
    }
    if (whole.steps >= 0) {
      expect_lines(lines, whole.lines, fmt::format("shuffle {}", static_cast<int>(shuffle)));
    }
  }
}

TEST(DataLoaderTest, StatesOfOtherLoadersAreRefused) {
  SharedFolder folder(job());
  ASSERT_TRUE(write_test_files(job(), folder.path(), make_test_files({900}, 100)).ok());
  const DataConfig data = data_config(folder.path());
  const LoaderConfig config = loader_config(folder.path());
  const auto roles = comm::assign_roles(job().topology(), "1").ValueOrDie();
  const auto catalog = exec::make_file_catalog(1);
  const auto refusal = [&](const DataConfig& other_data, const LoaderConfig& other, const auto& change) {
    auto first = DataLoader::make(job(), roles, *catalog, other_data, other, 2).ValueOrDie();
    const std::string state = change(first->state());
    EXPECT_TRUE(job().agree(Status::OK()).ok());
    first.reset();
    auto loader = DataLoader::make(job(), roles, *catalog, data, config, 2).ValueOrDie();
    const Status status = loader->load_state(state);
    loader.reset();
    job().clear_failure();
    EXPECT_EQ(error_category(status), ErrorCategory::kUsage);
    return status.message();
  };
  const auto as_is = [](const std::string& state) { return state; };
  LoaderConfig other = config;
  other.batch_size = 64;
  other.seed = 7;
  EXPECT_EQ(refusal(data, other, as_is),
            "the state is of another loader; different: loader.batch_size, 64 there and 256 here, "
            "loader.seed, 7 there "
            "and 42 here");
  DataConfig filtered = data;
  filtered.train += " AND id < 100";
  EXPECT_EQ(refusal(filtered, config, as_is),
            "the state is of another loader; different: the data (files, query, features or split)");
  EXPECT_EQ(refusal(data, config, [](const std::string&) { return std::string("[1]"); }),
            "this is no state of a DataLoader: [1]");
  const auto far = [](std::string state) {
    return state.replace(state.find("\"epoch\":0"), 9, "\"epoch\":9");
  };
  EXPECT_EQ(refusal(data, config, far), "the start is in epoch 9, the loader has epochs 0 to 1");
}

TEST(DataLoaderTest, CountersByEpochAddUp) {
  SharedFolder folder(job());
  ASSERT_TRUE(write_test_files(job(), folder.path(), make_test_files({900, 2000}, 100)).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.2;
  const auto roles = comm::assign_roles(job().topology(), "1").ValueOrDie();
  const auto catalog = exec::make_file_catalog(1);
  auto loader = DataLoader::make(job(), roles, *catalog, data, loader_config(folder.path()), 3).ValueOrDie();
  EXPECT_TRUE(digest_batches(job(), roles, *loader, [](const DigestLine&) {}).ok());
  EXPECT_TRUE(job().agree(loader->finish()).ok());
  const LoaderCounters all = loader->counters();
  LoaderCounters sum;
  for (const LoaderCounters& epoch : loader->counters_by_epoch()) {
    sum.seconds_waiting += epoch.seconds_waiting;
    sum.seconds_reading += epoch.seconds_reading;
    sum.seconds_computing += epoch.seconds_computing;
    sum.seconds_sending += epoch.seconds_sending;
  }
  EXPECT_NEAR(sum.seconds_waiting, all.seconds_waiting, 1e-9);
  EXPECT_NEAR(sum.seconds_reading, all.seconds_reading, 1e-9);
  EXPECT_NEAR(sum.seconds_computing, all.seconds_computing, 1e-9);
  EXPECT_NEAR(sum.seconds_sending, all.seconds_sending, 1e-9);
  if (roles.is_feeder(job().rank())) {
    EXPECT_EQ(loader->counters_by_epoch().size(), 3u);
    EXPECT_GT(all.seconds_reading, 0);
  }
  EXPECT_TRUE(job().agree(Status::OK()).ok());
}

TEST(DataLoaderTest, StartsThatAreNowhere) {
  SharedFolder folder(job());
  ASSERT_TRUE(write_test_files(job(), folder.path(), make_test_files({300}, 100)).ok());
  const auto start = [&](int64_t epoch, int64_t step) {
    LoaderConfig config = loader_config(folder.path());
    config.start_epoch = epoch;
    config.start_step = step;
    return draw(data_config(folder.path()), config, 2, "1").status.message();
  };
  EXPECT_NE(start(3, 0).find("the start is in epoch 3, the loader has epochs 0 to 1"), std::string::npos);
  EXPECT_NE(start(1, 2).find("the start is after step 2 of epoch 1, which has 1 steps"), std::string::npos);
  EXPECT_NE(start(2, 1).find("the start is after step 1 of epoch 2, which has 0 steps"), std::string::npos);
}

// Whatever a rank is doing in the survey when one fails, all ranks return the one error and agree as often.
TEST(DataLoaderTest, FailuresAtAnyPointOfTheSurvey) {
  SharedFolder folder(job());
  const auto files = make_test_files({600, 300, 800}, 450);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.limit_rows = 1500;
  for (int round = 0; round < 24; ++round) {
    LoaderConfig config = loader_config(fmt::format("{}/{}", folder.path(), round));
    config.cache = round % 2 ? Cache::kMemory : Cache::kDisk;
    std::atomic<bool> over{false};
    std::thread saboteur;
    if (job().rank() == round % job().size()) {
      saboteur = std::thread([&, at = round] {
        // After so many beats of this rank's work.
        const uint64_t begin = progress().beats.load();
        while (progress().beats.load() < begin + at && !over) std::this_thread::yield();
        if (!over) job().fail(data_error("sabotage in round {}", at));
      });
    }
    const Drawn drawn = draw(data, config, 2, "1");
    over = true;
    if (saboteur.joinable()) saboteur.join();
    if (!drawn.status.ok()) {
      EXPECT_NE(drawn.status.message().find("sabotage"), std::string::npos) << drawn.status.ToString();
    }
    // What was too late for the loader meets the ranks here, all of them together.
    if (!job().agree(Status::OK()).ok()) job().clear_failure();
  }
  const Drawn drawn = draw(data, loader_config(folder.path()), 2, "1");
  EXPECT_TRUE(drawn.status.ok()) << drawn.status.ToString();
}

TEST(DataLoaderTest, BatchLargerThanTheDataAndMoreRanksThanBlocks) {
  SharedFolder folder(job());
  const auto files = make_test_files({5, 2}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.batch_size = 100000;
  check_all_shapes(files, data_config(folder.path()), config, 3);
}

TEST(DataLoaderTest, SlowFeederChangesNothing) {
  SharedFolder folder(job());
  const auto files = make_test_files({1800}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  ::setenv("MILLSTREAM_TEST_SLOW_FEEDER", fmt::format("{}:3", job().size() - 1).c_str(), 1);
  check_all_shapes(files, data_config(folder.path()), loader_config(folder.path()), 1);
  ::unsetenv("MILLSTREAM_TEST_SLOW_FEEDER");
}

TEST(DataLoaderTest, FitsAreTheTrainingRowsOnAnyNumberOfRanks) {
  SharedFolder folder(job());
  const auto files = make_test_files({3000, 1000}, 300);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.valid_fraction = 0.25;
  const Drawn drawn = draw(data, loader_config(folder.path()), 1, "1");
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  long double sum = 0, squares = 0;
  int64_t count = 0, valid = 0, filtered = 0;
  for (const auto& rows : rows_by_entry_point(files, 0.25, false)) {
    for (const TestRow& row : rows) sum += row.x;
    count += static_cast<int64_t>(rows.size());
  }
  for (const auto& rows : rows_by_entry_point(files, 0.25, false)) {
    for (const TestRow& row : rows) squares += (row.x - sum / count) * (row.x - sum / count);
  }
  for (const auto& rows : rows_by_entry_point(files, 0.25, true)) valid += static_cast<int64_t>(rows.size());
  for (const TestFile& file : files) {
    for (const TestRow& row : file.rows) filtered += row.keep != 1;
  }
  EXPECT_EQ(drawn.survey.rows_train, count);
  EXPECT_EQ(drawn.survey.rows_valid, valid);
  EXPECT_EQ(drawn.survey.rows_filtered, filtered);
  ASSERT_EQ(drawn.survey.fitted.values.size(), 2u);
  const double mean = static_cast<double>(sum / count);
  const double scale = std::sqrt(static_cast<double>(squares / count));
  EXPECT_NEAR(drawn.survey.fitted.values[0].value, mean, 1e-9 * std::abs(mean));
  EXPECT_NEAR(drawn.survey.fitted.values[1].value, scale, 1e-9 * scale);
}

TEST(DataLoaderTest, SurveyIsTakenFromTheCache) {
  SharedFolder folder(job());
  const auto files = make_test_files({2000}, 1000);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  const DataConfig data = data_config(folder.path());
  const LoaderConfig config = loader_config(folder.path());
  const Drawn first = draw(data, config, 1, "1");
  ASSERT_TRUE(first.status.ok()) << first.status.ToString();
  const auto entry = [&] {
    return std::filesystem::directory_iterator(folder.path() + "/cache/survey")->path();
  };
  const auto time = std::filesystem::last_write_time(entry() / "survey.bin");
  const Drawn second = draw(data, config, 1, "1");
  ASSERT_TRUE(second.status.ok()) << second.status.ToString();
  EXPECT_EQ(std::filesystem::last_write_time(entry() / "survey.bin"), time);
  EXPECT_EQ(first.survey.fitted.values[0].value, second.survey.fitted.values[0].value);
  ASSERT_EQ(first.lines.size(), second.lines.size());
  for (size_t i = 0; i < first.lines.size(); ++i) EXPECT_EQ(first.lines[i].digest, second.lines[i].digest);
  ASSERT_TRUE(job().agree(Status::OK()).ok());

  // A damaged entry is made again.
  if (job().rank() == 0) {
    std::fstream file(entry() / "survey.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(80);
    file.put('x');
    file.put('y');
  }
  ASSERT_TRUE(job().agree(Status::OK()).ok());
  const Drawn third = draw(data, config, 1, "1");
  ASSERT_TRUE(third.status.ok()) << third.status.ToString();
  ASSERT_EQ(first.lines.size(), third.lines.size());
  for (size_t i = 0; i < first.lines.size(); ++i) EXPECT_EQ(first.lines[i].digest, third.lines[i].digest);
}

TEST(DataLoaderTest, LimitCutsInSourceOrder) {
  SharedFolder folder(job());
  auto files = make_test_files({400, 500}, 90);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.limit_rows = 321;
  int64_t left = data.limit_rows;
  for (TestFile& file : files) {
    for (TestRow& row : file.rows) {
      if (row.keep == 1 && left-- <= 0) row.keep = 0;
    }
  }
  LoaderConfig config = loader_config(folder.path());
  config.window = 1 << 20;
  const Drawn drawn = draw(data, config, 1, "1");
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  EXPECT_EQ(drawn.survey.rows_train, 321);
  if (!drawn.lines.empty()) {
    expect_lines(drawn.lines, expected_lines(files, data, config, 1, drawn.survey.fitted), "limited");
  }
}

TEST(DataLoaderTest, ValidationQueryOfItsOwn) {
  SharedFolder folder(job());
  auto files = make_test_files({600, 300}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.train = "SELECT id, x, y FROM 'part-00.parquet' WHERE keep = 1";
  data.valid = "SELECT y, x, id, keep FROM 'part-01.parquet' WHERE keep = 1";
  const LoaderConfig config = loader_config(folder.path());
  const Drawn drawn = draw(data, config, 1, std::to_string(job().size()));
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  int64_t valid_rows = 0;
  for (const TestRow& row : files[1].rows) valid_rows += row.keep;
  EXPECT_EQ(drawn.survey.rows_valid, valid_rows);
  int64_t rows = 0;
  for (const DigestLine& line : drawn.lines) rows += line.pass.kind == PassKind::kValid ? line.rows : 0;
  EXPECT_EQ(rows, job().rank() == 0 ? valid_rows : 0);

  data.valid = "SELECT id, x AS distance, y FROM 'part-01.parquet'";
  const Drawn missing = draw(data, config, 1, "1");
  EXPECT_EQ(missing.status.message(),
            "the validation query has no column 'x', which is a feature; there are: id, distance, y");
}

TEST(DataLoaderTest, NullsAreErrorsThatNameThePlaceOrAreDropped) {
  SharedFolder folder(job());
  auto files = make_test_files({500, 800}, 100);
  files[0].rows[477].x_null = true;
  files[0].rows[477].keep = 1;
  files[1].rows[250].x = std::nan("");
  files[1].rows[250].keep = 1;
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  const LoaderConfig config = loader_config(folder.path());
  const Drawn failed = draw(data, config, 1, "1");
  EXPECT_EQ(error_category(failed.status), ErrorCategory::kData);
  const std::string message = failed.status.message();
  EXPECT_NE(message.find("feature column 'x' is null in "), std::string::npos) << message;
  EXPECT_NE(message.find("part-00.parquet"), std::string::npos) << message;
  EXPECT_NE(message.find("row group 4, row 477"), std::string::npos) << message;

  data.features[1].on_null = features::OnNull::kDrop;
  const Drawn dropped = draw(data, config, 1, std::to_string(job().size()));
  ASSERT_TRUE(dropped.status.ok()) << dropped.status.ToString();
  EXPECT_EQ(dropped.survey.rows_dropped, 2);
  files[0].rows[477].keep = files[1].rows[250].keep = 0;
  if (!dropped.lines.empty()) {
    expect_lines(dropped.lines, expected_lines(files, data, config, 1, dropped.survey.fitted, true),
                 "dropped");
  }
}

TEST(DataLoaderTest, FailureWhileFeedingReachesEveryRank) {
  SharedFolder folder(job());
  auto files = make_test_files({900, 900}, 100);
  for (TestFile& file : files) {
    for (TestRow& row : file.rows) row.keep = 1;
  }
  files[1].rows[333].y = 123456;  // no other row has it
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.train = "SELECT id, x, CASE WHEN y = 123456 THEN 1e300 ELSE y END AS y FROM 'part-*.parquet'";
  for (const Transport transport : {Transport::kAuto, Transport::kMessages}) {
    LoaderConfig config = loader_config(folder.path());
    config.transport = transport;
    const Drawn drawn = draw(data, config, 3, std::to_string(job().size()));
    EXPECT_EQ(error_category(drawn.status), ErrorCategory::kData) << drawn.status.ToString();
    const std::string message = drawn.status.message();
    EXPECT_NE(message.find("target 'y' is 1e+300, more than a float32 holds"), std::string::npos) << message;
    EXPECT_NE(message.find("part-01.parquet, row group 3, row 333"), std::string::npos) << message;
  }
}

TEST(DataLoaderTest, ChainsOfFitsTakeAPassEach) {
  SharedFolder folder(job());
  auto files = make_test_files({1000, 1000}, 90);
  for (TestFile& file : files) {
    for (TestRow& row : file.rows) row.x_null = row.id % 9 == 0;
  }
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.features[1].steps.clear();
  for (const char* step : {"null_indicator", "fill_null(mean)", "standard_scale"}) {
    data.features[1].steps.push_back(features::parse_step(step).ValueOrDie());
  }
  const Drawn drawn = draw(data, loader_config(folder.path()), 1, std::to_string(job().size()));
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  long double sum = 0, squares = 0;
  int64_t known = 0, all = 0;
  for (const auto& rows : rows_by_entry_point(files, 0, false)) {
    for (const TestRow& row : rows) {
      ++all;
      if (row.x_null) continue;
      ++known;
      sum += row.x;
    }
  }
  const double mean = static_cast<double>(sum / known);
  for (const auto& rows : rows_by_entry_point(files, 0, false)) {
    for (const TestRow& row : rows) squares += row.x_null ? 0 : (row.x - mean) * (row.x - mean);
  }
  const double scale = std::sqrt(static_cast<double>(squares / all));
  const auto& values = drawn.survey.fitted.values;
  ASSERT_EQ(values.size(), 3u);
  EXPECT_EQ(values[0].step, "fill_null");
  EXPECT_NEAR(values[0].value, mean, 1e-9 * std::abs(mean));
  EXPECT_NEAR(values[1].value, mean, 1e-9 * std::abs(mean));
  EXPECT_NEAR(values[2].value, scale, 1e-9 * scale);
  ASSERT_EQ(drawn.survey.fitted.columns.size(), 3u);
  EXPECT_EQ(drawn.survey.fitted.columns[1].name, "x_is_null");
}

TEST(DataLoaderTest, NothingLeftIsOneError) {
  SharedFolder folder(job());
  const auto files = make_test_files({500, 0, 300}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  data.train = "SELECT id, x, y FROM 'part-*.parquet' WHERE keep = 17";
  const Drawn drawn = draw(data, loader_config(folder.path()), 1, "1");
  EXPECT_EQ(error_category(drawn.status), ErrorCategory::kFailed);
  EXPECT_EQ(drawn.status.message(), "the training query has no rows: 800 were read and the WHERE left none");
}

TEST(DataLoaderTest, MemoryThatDoesNotSufficeNamesWhatWould) {
  SharedFolder folder(job());
  const auto files = make_test_files({4000}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  LoaderConfig config = loader_config(folder.path());
  config.memory_bytes = 10000;
  const Drawn drawn = draw(data_config(folder.path()), config, 1, "1");
  EXPECT_EQ(error_category(drawn.status), ErrorCategory::kUsage);
  EXPECT_NE(drawn.status.message().find("would fit"), std::string::npos) << drawn.status.message();
}

TEST(DataLoaderTest, GivenUpInTheMiddle) {
  SharedFolder folder(job());
  const auto files = make_test_files({3000}, 100);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  for (const Transport transport : {Transport::kAuto, Transport::kMessages}) {
    LoaderConfig config = loader_config(folder.path());
    config.transport = transport;
    const auto roles = comm::assign_roles(job().topology(), "1").ValueOrDie();
    const auto catalog = exec::make_file_catalog(1);
    auto loader = DataLoader::make(job(), roles, *catalog, data_config(folder.path()), config, 50);
    ASSERT_TRUE(loader.ok()) << loader.status().ToString();
    if (roles.is_trainer(job().rank())) {
      ASSERT_TRUE((*loader)->next().ok());
    }
    ASSERT_TRUE(job().agree(Status::OK()).ok());
    loader->reset();  // ends, though most batches were never taken
    ASSERT_TRUE(job().agree(Status::OK()).ok());
  }
}

TEST(DataLoaderTest, LargeRowGroupIsCutToPieces) {
  SharedFolder folder(job());
  const auto files = make_test_files({150000}, 1 << 20);
  ASSERT_TRUE(write_test_files(job(), folder.path(), files).ok());
  DataConfig data = data_config(folder.path());
  LoaderConfig config = loader_config(folder.path());
  config.batch_size = 16384;
  config.window = 40000;
  config.lanes = 8;
  const Drawn drawn = draw(data, config, 1, "1");
  ASSERT_TRUE(drawn.status.ok()) << drawn.status.ToString();
  // Pieces are the blocks of 64 Ki rows.
  auto blocks = make_test_files({150000}, 64 * 1024);
  if (!drawn.lines.empty()) {
    expect_lines(drawn.lines, expected_lines(blocks, data, config, 1, drawn.survey.fitted, true), "pieces");
  }
}

}  // namespace
}  // namespace millstream::loader
