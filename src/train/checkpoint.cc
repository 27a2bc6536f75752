#include "train/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <stdio.h>

#include "base/hash.h"
#include "train/run_directory.h"

namespace millstream::train {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxJsonBytes = int64_t{1} << 28;
constexpr int64_t kMaxStateBytes = int64_t{1} << 40;
constexpr const char* kJsonName = "checkpoint.json";
constexpr const char* kStateName = "state.safetensors";

std::string to_json(const Checkpoint& c) {
  Json json;
  json["format"] = "millstream-checkpoint";
  json["format_version"] = kFormatVersion;
  json["position"] = {{"epoch", c.epoch}, {"step", c.step}};
  json["done"] = {
      {"batches", c.batches}, {"updates", c.updates}, {"rows", c.rows}, {"epochs", c.epochs_done}};
  json["survey_key"] = c.survey_key;
  json["recipe"] = c.recipe;
  json["reports"] = {{"window_loss", c.window_loss},    {"window_rows", c.window_rows},
                     {"epoch_loss", c.epoch_loss},      {"epoch_rows", c.epoch_rows},
                     {"last_loss", c.last_loss},        {"loss_first", c.loss_first},
                     {"metrics_bytes", c.metrics_bytes}};
  json["best"] = {{"known", c.has_best},
                  {"score", c.best},
                  {"epochs_since", c.epochs_since_best},
                  {"rows_valid", c.rows_valid},
                  {"valid", c.valid}};
  return json.dump(2, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

/// The checksums have told that the text is as it was written: what is amiss now is another version.
Result<Checkpoint> from_json(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("format") != "millstream-checkpoint") return data_error("it is not a Millstream checkpoint");
    if (json.at("format_version").get<int64_t>() > kFormatVersion)
      return data_error(
          "it was written by a newer Millstream, in format {}; this program reads formats up to {}",
          json.at("format_version").get<int64_t>(), kFormatVersion);
    Checkpoint c;
    c.epoch = json.at("position").at("epoch");
    c.step = json.at("position").at("step");
    const Json &done = json.at("done"), &reports = json.at("reports"), &best = json.at("best");
    c.batches = done.at("batches");
    c.updates = done.at("updates");
    c.rows = done.at("rows");
    c.epochs_done = done.at("epochs");
    c.survey_key = json.at("survey_key");
    for (const auto& [key, value] : json.at("recipe").items()) c.recipe[key] = value;
    c.window_loss = reports.at("window_loss");
    c.window_rows = reports.at("window_rows");
    c.epoch_loss = reports.at("epoch_loss");
    c.epoch_rows = reports.at("epoch_rows");
    c.last_loss = reports.at("last_loss");
    c.loss_first = reports.at("loss_first");
    c.metrics_bytes = reports.at("metrics_bytes");
    c.has_best = best.at("known");
    c.best = best.at("score");
    c.epochs_since_best = best.at("epochs_since");
    c.rows_valid = best.at("rows_valid");
    for (const auto& [name, value] : best.at("valid").items()) c.valid[name] = value;
    if (c.epoch < 0 || c.step < 0 || c.batches < 0 || c.updates < 0 || c.metrics_bytes < 0)
      return data_error("it is damaged: a count is negative");
    return c;
  } catch (const nlohmann::json::exception& error) {
    return data_error("it is damaged: {}", error.what());
  }
}

std::string digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes);
  return digest.hex();
}

std::string checksums_of(std::string_view json, std::string_view state) {
  return fmt::format("{}  {}\n{}  {}\n", digest_of(json), kJsonName, digest_of(state), kStateName);
}

int64_t step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (name.rfind("step-", 0) != 0 || name.size() == 5 || name.size() > 23) return -1;
  if (name.find_first_not_of("0123456789", 5) != std::string::npos) return -1;
  return std::stoll(name.substr(5));
}

/// Puts the folder `from` to the place `to`; what stood there comes to `from`.
Status put_in_place(const std::string& from, const std::string& to) {
  std::error_code ignored;
  const unsigned flags = fs::exists(to, ignored) ? RENAME_EXCHANGE : 0;
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0) return Status::OK();
  if (flags != 0) fs::remove_all(to, ignored);  // a file system that can't exchange
  if (::rename(from.c_str(), to.c_str()) == 0) return Status::OK();
  return file_error("writing {}: {}", to, std::strerror(errno));
}

/// Removes without ever leaving half a checkpoint under its name.
void remove_checkpoint(const std::string& path) {
  const std::string away =
      (fs::path(path).parent_path() / ("." + fs::path(path).filename().string() + ".old")).string();
  std::error_code ignored;
  fs::remove_all(away, ignored);
  if (::rename(path.c_str(), away.c_str()) == 0) fs::remove_all(away, ignored);
}

std::string shortened(const std::string& text) {
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace

Status write_checkpoint(const std::string& run, const Checkpoint& checkpoint, int64_t keep) {
  const fs::path folder = fs::path(run) / "checkpoints";
  const std::string path = (folder / fmt::format("step-{}", checkpoint.batches)).string();
  const std::string temporary = (folder / fmt::format(".step-{}.part", checkpoint.batches)).string();
  std::error_code error;
  const auto write = [&]() -> Status {
    fs::create_directories(folder, error);
    fs::remove_all(temporary, error);
    fs::create_directory(temporary, error);
    if (error) return file_error("making {}: {}", temporary, error.message());
    const std::string json = to_json(checkpoint), state = encode_safetensors({checkpoint.state, {}});
    MILLSTREAM_TRY(write_file_durably(temporary + "/" + kStateName, state));
    MILLSTREAM_TRY(write_file_durably(temporary + "/" + kJsonName, json));
    MILLSTREAM_TRY(write_file_durably(temporary + "/checksums", checksums_of(json, state)));
    MILLSTREAM_TRY(put_in_place(temporary, path));
    return sync_directory(folder.string());
  };
  const Status status = write();
  fs::remove_all(temporary, error);
  const std::vector<std::string> there = list_checkpoints(run);
  if (!status.ok()) {
    const std::string kept =
        there.empty() ? "there is none before it"
                      : fmt::format("the one before is kept: make room and go on with --resume {}", run);
    return with_category(file_error("the checkpoint of step {} can't be written ({}); {}", checkpoint.batches,
                                    status.message(), kept),
                         ErrorCategory::kFile);
  }
  for (size_t i = static_cast<size_t>(std::max<int64_t>(1, keep)); i < there.size(); ++i)
    remove_checkpoint(there[i]);
  return Status::OK();
}

Result<Checkpoint> read_checkpoint(const std::string& path) {
  MILLSTREAM_ASSIGN(const std::string json, read_whole_file(path + "/" + kJsonName, kMaxJsonBytes));
  MILLSTREAM_ASSIGN(const std::string state, read_whole_file(path + "/" + kStateName, kMaxStateBytes));
  MILLSTREAM_ASSIGN(const std::string checksums, read_whole_file(path + "/checksums", 4096));
  if (checksums != checksums_of(json, state))
    return data_error("the checkpoint {} is damaged: its checksums don't match", path);
  auto checkpoint = from_json(json);
  if (!checkpoint.ok()) return with_context(checkpoint.status(), path + "/" + kJsonName);
  auto tensors = decode_safetensors(state);
  if (!tensors.ok()) return with_context(tensors.status(), path + "/" + kStateName);
  checkpoint->state = std::move(tensors->tensors);
  return checkpoint;
}

std::vector<std::string> list_checkpoints(const std::string& run) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator entry(fs::path(run) / "checkpoints", error), end; !error && entry != end;
       entry.increment(error))
    if (step_of(entry->path()) >= 0) found.emplace_back(step_of(entry->path()), entry->path().string());
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> out;
  for (auto& [step, path] : found) out.push_back(std::move(path));
  return out;
}

std::string encode_checkpoint(const Checkpoint& checkpoint) {
  const std::string json = to_json(checkpoint);
  const uint64_t length = json.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json +
         encode_safetensors({checkpoint.state, {}});
}

Result<Checkpoint> decode_checkpoint(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length) return bug_error("a checkpoint came damaged from another rank");
  std::memcpy(&length, bytes.data(), sizeof length);
  bytes.remove_prefix(sizeof length);
  if (length > bytes.size()) return bug_error("a checkpoint came damaged from another rank");
  MILLSTREAM_ASSIGN(Checkpoint checkpoint, from_json(bytes.substr(0, length)));
  MILLSTREAM_ASSIGN(SafeTensors tensors, decode_safetensors(bytes.substr(length)));
  checkpoint.state = std::move(tensors.tensors);
  return checkpoint;
}

Status compare_runs(const Checkpoint& checkpoint, const std::map<std::string, std::string>& recipe) {
  std::string changes;
  auto add = [&](const std::string& change) { changes += (changes.empty() ? "" : ", ") + change; };
  for (const auto& [key, value] : recipe) {
    const auto was = checkpoint.recipe.find(key);
    if (was == checkpoint.recipe.end())
      add(fmt::format("{} is {} and was not there", key, shortened(value)));
    else if (was->second != value && (value.find('\n') != std::string::npos || value.size() > 60))
      add(fmt::format("{} is another", key));
    else if (was->second != value)
      add(fmt::format("{} was {} and is {}", key, shortened(was->second), value));
  }
  for (const auto& [key, value] : checkpoint.recipe)
    if (!recipe.contains(key)) add(fmt::format("{} was {} and is not there", key, shortened(value)));
  if (changes.empty()) return Status::OK();
  return usage_error(
      "this is not the run that was interrupted: {}; undo that, start a new run with another --out, or go on "
      "all the "
      "same with --resume-anyway",
      changes);
}

}  // namespace millstream::train
