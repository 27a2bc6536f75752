#include "exec/file_catalog.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "base/hash.h"
#include "base/log.h"
#include "exec/data_file.h"
#include "exec/glob.h"

namespace millstream::exec {
namespace {

class FileTable final : public plan::SourceTable {
 public:
  static Result<std::shared_ptr<const FileTable>> make(std::vector<GlobMatch> matches,
                                                       std::vector<std::shared_ptr<const DataFile>> files,
                                                       std::vector<std::string>* notices) {
    auto table = std::make_shared<FileTable>();
    std::vector<FileSchema> schemas;
    for (size_t f = 0; f < files.size(); ++f) schemas.push_back({matches[f].path, files[f]->columns()});
    MILLSTREAM_ASSIGN(UnitedSchema united, unite_schemas(schemas));
    table->schema_ = united.schema;
    table->file_columns_ = std::move(united.file_columns);
    *notices = std::move(united.notices);
    int64_t blocks = 0;
    for (size_t f = 0; f < files.size(); ++f) {
      const DataFile& file = *files[f];
      const struct stat& info = file.info();
      plan::SourceFile& source = table->files_.emplace_back();
      source.path = matches[f].path;
      source.name = matches[f].name;
      source.format = file.format();
      source.bytes = info.st_size;
      source.rows = file.rows();
      Digest digest;
      digest.add(fmt::format("{}\n{}\n{}.{:09}\n{}\n{}", source.name, source.bytes, info.st_mtim.tv_sec,
                             info.st_mtim.tv_nsec, info.st_ino, file.content_digest()));
      source.fingerprint = digest.hex();
      for (size_t e = 0; e < file.entry_points().size(); ++e) {
        const FileEntryPoint& in_file = file.entry_points()[e];
        plan::EntryPoint& entry = table->entry_points_.emplace_back();
        entry.file = static_cast<int>(f);
        entry.row_group = static_cast<int>(e);
        entry.first_row = in_file.first_row;
        entry.rows = in_file.rows;
        entry.bytes = in_file.bytes;
        entry.first_block = static_cast<int>(blocks);
        entry.num_blocks = static_cast<int>((in_file.rows + plan::kBlockRows - 1) / plan::kBlockRows);
        blocks += entry.num_blocks;
        if (blocks > std::numeric_limits<int>::max()) {
          return data_error("'{}': the table has more than {} blocks of {} rows", source.path,
                            std::numeric_limits<int>::max(), plan::kBlockRows);
        }
      }
    }
    table->data_ = std::move(files);
    return table;
  }

  const std::shared_ptr<arrow::Schema>& schema() const override { return schema_; }
  const std::vector<plan::SourceFile>& files() const override { return files_; }
  const std::vector<plan::EntryPoint>& entry_points() const override { return entry_points_; }

  int64_t column_bytes(int entry_point, const std::vector<int>& columns) const override {
    const plan::EntryPoint& entry = entry_points_[static_cast<size_t>(entry_point)];
    const auto file = static_cast<size_t>(entry.file);
    int64_t bytes = 0;
    for (int column : columns) {
      const int in_file = file_columns_[file][static_cast<size_t>(column)];
      if (in_file >= 0) bytes += data_[file]->column_bytes(entry.row_group, in_file);
    }
    return bytes;
  }

  expr::TypePtr type_in_file(int file, int column) const override {
    const int in_file = file_columns_[static_cast<size_t>(file)][static_cast<size_t>(column)];
    if (in_file < 0) return nullptr;
    return data_[static_cast<size_t>(file)]->columns()[static_cast<size_t>(in_file)].type;
  }

  plan::ColumnClaims claims(int entry_point, int column) const override {
    const plan::EntryPoint& entry = entry_points_[static_cast<size_t>(entry_point)];
    const auto file = static_cast<size_t>(entry.file);
    const int in_file = file_columns_[file][static_cast<size_t>(column)];
    if (in_file < 0) {
      // A column that the file lacks is read as NULLs.
      plan::ColumnClaims missing;
      missing.bounds.none = expr::BoundOrigin::kTyped;
      missing.null_count = entry.rows;
      return missing;
    }
    plan::ColumnClaims result = data_[file]->claims(entry.row_group, in_file);
    result.bounds =
        expr::cast_bounds(result.bounds, data_[file]->columns()[static_cast<size_t>(in_file)].type,
                          schema_->field(column)->type());
    return result;
  }

  std::vector<plan::PageClaims> page_claims(int entry_point, int column) const override {
    const plan::EntryPoint& entry = entry_points_[static_cast<size_t>(entry_point)];
    const auto file = static_cast<size_t>(entry.file);
    const int in_file = file_columns_[file][static_cast<size_t>(column)];
    if (in_file < 0) return {};
    std::vector<plan::PageClaims> pages = data_[file]->page_claims(entry.row_group, in_file);
    for (plan::PageClaims& page : pages)
      page.claims.bounds =
          expr::cast_bounds(page.claims.bounds, data_[file]->columns()[static_cast<size_t>(in_file)].type,
                            schema_->field(column)->type());
    return pages;
  }

  bool may_hold(int entry_point, int column,
                const std::vector<std::shared_ptr<arrow::Scalar>>& values) const override {
    const plan::EntryPoint& entry = entry_points_[static_cast<size_t>(entry_point)];
    const auto file = static_cast<size_t>(entry.file);
    const int in_file = file_columns_[file][static_cast<size_t>(column)];
    if (in_file < 0) return true;
    const expr::TypePtr& type = data_[file]->columns()[static_cast<size_t>(in_file)].type;
    if (type->Equals(*schema_->field(column)->type()))
      return data_[file]->may_hold(entry.row_group, in_file, values);
    // A wider integer type than the file's: values that the file's does not have are in no filter.
    if (!arrow::is_integer(type->id()) || !arrow::is_integer(schema_->field(column)->type()->id()))
      return true;
    std::vector<std::shared_ptr<arrow::Scalar>> of_file;
    for (const auto& value : values) {
      const auto converted = value->CastTo(type);
      if (!converted.ok()) continue;
      const auto back = (*converted)->CastTo(value->type);
      if (back.ok() && (*back)->Equals(*value)) of_file.push_back(*converted);
    }
    return data_[file]->may_hold(entry.row_group, in_file, of_file);
  }

  Result<std::unique_ptr<Reader>> read(int entry_point, const std::vector<int>& columns) const override {
    const plan::EntryPoint& entry = entry_points_[static_cast<size_t>(entry_point)];
    const auto file = static_cast<size_t>(entry.file);
    std::vector<ReadColumn> wanted;
    for (int column : columns) {
      wanted.push_back({file_columns_[file][static_cast<size_t>(column)], schema_->field(column)});
    }
    return data_[file]->read(entry.row_group, std::move(wanted), entry.file);
  }

  std::string not_a_number(int column) const override {
    if (schema_->field(column)->type()->id() != arrow::Type::STRING) return {};
    for (size_t f = 0; f < data_.size(); ++f) {
      const int in_file = file_columns_[f][static_cast<size_t>(column)];
      if (in_file < 0) continue;
      const std::string& value = data_[f]->columns()[static_cast<size_t>(in_file)].not_a_number;
      if (!value.empty()) return value;
    }
    return {};
  }

 private:
  std::shared_ptr<arrow::Schema> schema_;
  std::vector<plan::SourceFile> files_;
  std::vector<plan::EntryPoint> entry_points_;
  std::vector<std::shared_ptr<const DataFile>> data_;
  std::vector<std::vector<int>> file_columns_;
};

bool ends_with_ignoring_case(std::string_view text, std::string_view ending) {
  if (text.size() < ending.size()) return false;
  return std::equal(ending.begin(), ending.end(), text.end() - static_cast<std::ptrdiff_t>(ending.size()),
                    [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); });
}

Result<std::shared_ptr<const DataFile>> open_file(const std::string& path,
                                                  const std::optional<plan::CsvOptions>& csv) {
  if (csv) return open_csv_file(path, *csv);
  const bool named_csv = ends_with_ignoring_case(path, ".csv") || ends_with_ignoring_case(path, ".tsv");
  return named_csv ? open_csv_file(path, {}) : open_parquet_file(path);
}

class FileCatalog final : public plan::Catalog {
 public:
  explicit FileCatalog(int threads) : threads_(std::max(1, threads)) {}

  Result<std::shared_ptr<const plan::SourceTable>> open(const plan::TableReference& reference) override {
    if (reference.globs.empty()) return file_error("no files are named");
    std::vector<GlobMatch> matches;
    for (const std::string& glob : reference.globs) {
      MILLSTREAM_ASSIGN(auto found, expand_glob(glob, reference.base_directory));
      matches.insert(matches.end(), std::make_move_iterator(found.begin()),
                     std::make_move_iterator(found.end()));
    }
    MILLSTREAM_ASSIGN(auto files, open_files(matches, reference.csv));
    std::vector<std::string> notices;
    MILLSTREAM_ASSIGN(auto table, FileTable::make(std::move(matches), std::move(files), &notices));
    std::lock_guard lock(mutex_);
    for (std::string& text : notices) {
      if (noticed_.insert(text).second) notice(text);
    }
    return table;
  }

 private:
  Result<std::vector<std::shared_ptr<const DataFile>>> open_files(
      const std::vector<GlobMatch>& matches, const std::optional<plan::CsvOptions>& csv) {
    std::vector<std::shared_ptr<const DataFile>> files(matches.size());
    std::vector<Status> statuses(matches.size());
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t f; (f = next.fetch_add(1)) < matches.size();) {
        auto file = open_or_reuse(matches[f].path, csv);
        if (file.ok()) {
          files[f] = *std::move(file);
        } else {
          statuses[f] = file.status();
        }
      }
    };
    const size_t helpers = std::min(matches.size(), static_cast<size_t>(threads_)) - 1;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < helpers; ++t) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();
    // The first file in order, whichever thread was faster.
    for (size_t f = 0; f < statuses.size(); ++f) {
      if (statuses[f].ok()) continue;
      return with_category(statuses[f], error_category(statuses[f]),
                           error_position(statuses[f]).value_or(SourcePosition{static_cast<int64_t>(f), 0}));
    }
    return files;
  }

  // Several queries of a recipe read the same files: a footer is read once while its file stays the same.
  Result<std::shared_ptr<const DataFile>> open_or_reuse(const std::string& path,
                                                        const std::optional<plan::CsvOptions>& csv) {
    const std::string key = csv ? fmt::format("{}\n{}", path, csv->key()) : path;
    {
      std::lock_guard lock(mutex_);
      const auto known = opened_.find(key);
      struct stat now {};
      if (known != opened_.end() && ::stat(path.c_str(), &now) == 0 &&
          same_file(known->second->info(), now)) {
        return known->second;
      }
    }
    MILLSTREAM_ASSIGN(auto file, open_file(path, csv));
    std::lock_guard lock(mutex_);
    opened_[key] = file;
    return file;
  }

  int threads_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const DataFile>> opened_;
  std::set<std::string> noticed_;
};

}  // namespace

std::unique_ptr<plan::Catalog> make_file_catalog(int threads) {
  return std::make_unique<FileCatalog>(threads);
}

std::string table_fingerprint(const plan::SourceTable& table) {
  Digest digest;
  for (const plan::SourceFile& file : table.files())
    digest.add(fmt::format("{}\n{}\n", file.name, file.fingerprint));
  digest.add(table.schema()->ToString());
  return digest.hex();
}

}  // namespace millstream::exec
