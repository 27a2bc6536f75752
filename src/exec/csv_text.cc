#include "exec/csv_text.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>

namespace millstream::exec {
namespace {

constexpr size_t kBuffer = 256 * 1024;
constexpr size_t kLongestRecord = size_t{64} << 20;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  return text;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Between `least` and `most` digits at the front of `text`.
bool take_digits(std::string_view& text, size_t least, size_t most, int* out) {
  size_t n = 0;
  int value = 0;
  while (n < text.size() && n < most && is_digit(text[n])) value = value * 10 + (text[n++] - '0');
  if (n < least) return false;
  text.remove_prefix(n);
  *out = value;
  return true;
}

bool take(std::string_view& text, char c) {
  if (text.empty() || text.front() != c) return false;
  text.remove_prefix(1);
  return true;
}

bool take_date(std::string_view& text, int32_t* days) {
  int year = 0, month = 0, day = 0;
  if (!take_digits(text, 4, 4, &year) || text.empty()) return false;
  const char separator = text.front();
  if (separator != '-' && separator != '/') return false;
  if (!take(text, separator) || !take_digits(text, 1, 2, &month) || !take(text, separator) ||
      !take_digits(text, 1, 2, &day)) {
    return false;
  }
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return false;
  *days = static_cast<int32_t>(std::chrono::sys_days(date).time_since_epoch().count());
  return true;
}

bool take_date_and_time(std::string_view& text, int64_t* microseconds) {
  int32_t days = 0;
  if (!take_date(text, &days)) return false;
  int hour = 0, minute = 0, second = 0;
  int64_t fraction = 0;
  if (!text.empty()) {
    if (!take(text, ' ') && !take(text, 'T')) return false;
    if (!take_digits(text, 1, 2, &hour) || !take(text, ':') || !take_digits(text, 2, 2, &minute))
      return false;
    if (take(text, ':')) {
      if (!take_digits(text, 2, 2, &second)) return false;
      if (take(text, '.')) {
        int digits = 0;
        while (!text.empty() && is_digit(text.front()) && digits < 9) {
          // Beyond microseconds is dropped.
          if (digits < 6) fraction = fraction * 10 + (text.front() - '0');
          text.remove_prefix(1);
          ++digits;
        }
        if (digits == 0) return false;
        for (; digits < 6; ++digits) fraction *= 10;
      }
    }
    if (hour > 23 || minute > 59 || second > 59) return false;
  }
  *microseconds = ((int64_t{days} * 24 + hour) * 3600 + minute * 60 + second) * 1'000'000 + fraction;
  return true;
}

// One record: the end of every field, or why there is none yet.
enum class Outcome { kRecord, kIncomplete, kOpenQuote, kTextAfterQuote };

template <class Span>
Outcome scan_record(const char* data, size_t begin, size_t size, bool final, char delimiter, int quote,
                    std::vector<Span>& fields, size_t* next, int64_t* lines) {
  const auto is_quote = [quote](char c) { return static_cast<unsigned char>(c) == quote; };
  fields.clear();
  *lines = 0;
  size_t at = begin;
  while (true) {
    size_t field = at;
    bool escaped = false, quoted = false;
    if (at < size && is_quote(data[at])) {
      quoted = true;
      field = ++at;
      while (true) {
        while (at < size && !is_quote(data[at])) {
          if (data[at] == '\n' || (data[at] == '\r' && !(at + 1 < size && data[at + 1] == '\n'))) ++*lines;
          ++at;
        }
        if (at + 1 < size && is_quote(data[at + 1])) {
          escaped = true;
          at += 2;
          continue;
        }
        if (at >= size) return final ? Outcome::kOpenQuote : Outcome::kIncomplete;
        if (at + 1 >= size && !final) return Outcome::kIncomplete;
        break;
      }
    } else {
      while (at < size && data[at] != delimiter && data[at] != '\n' && data[at] != '\r') ++at;
    }
    if (at >= size && !final) return Outcome::kIncomplete;
    fields.push_back({field, at, escaped});
    if (quoted) ++at;
    if (at >= size) break;
    if (data[at] == delimiter) {
      ++at;
      if (at >= size && !final) return Outcome::kIncomplete;
      continue;
    }
    if (data[at] == '\n') {
      ++*lines;
      ++at;
      break;
    }
    if (data[at] == '\r') {
      if (at + 1 >= size && !final) return Outcome::kIncomplete;
      at += at + 1 < size && data[at + 1] == '\n' ? 2 : 1;
      ++*lines;
      break;
    }
    *next = at;
    return Outcome::kTextAfterQuote;
  }
  *next = at;
  return Outcome::kRecord;
}

struct SniffSpan {
  size_t begin, end;
  bool escaped;
};

}  // namespace

bool parse_csv_boolean(std::string_view text, bool* out) {
  auto equals = [&](std::string_view word) {
    if (text.size() != word.size()) return false;
    for (size_t i = 0; i < word.size(); ++i) {
      if ((text[i] | 0x20) != word[i]) return false;
    }
    return true;
  };
  if (text.empty() || text.size() > 5) return false;
  *out = equals("true") || equals("t") || equals("yes");
  return *out || equals("false") || equals("f") || equals("no");
}

bool parse_csv_integer(std::string_view text, int64_t* out) {
  text = without_plus(trimmed(text));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_csv_double(std::string_view text, double* out) {
  text = without_plus(trimmed(text));
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  if (end != text.data() + text.size()) return false;
  if (error == std::errc::result_out_of_range) {
    // Too large is infinite and too small is zero, as in C; from_chars says only that it does not fit.
    *out = std::strtod(std::string(text).c_str(), nullptr);
    return true;
  }
  return error == std::errc();
}

bool parse_csv_date(std::string_view text, int32_t* days) {
  text = trimmed(text);
  return take_date(text, days) && text.empty();
}

bool parse_csv_timestamp(std::string_view text, int64_t* microseconds) {
  text = trimmed(text);
  return take_date_and_time(text, microseconds) && text.empty();
}

bool parse_csv_zoned(std::string_view text, int64_t* microseconds) {
  text = trimmed(text);
  if (!take_date_and_time(text, microseconds)) return false;
  if (text.empty() || text == "Z") return true;
  const bool west = text.front() == '-';
  int hours = 0, minutes = 0;
  if (!take(text, '+') && !take(text, '-')) return false;
  if (!take_digits(text, 2, 2, &hours)) return false;
  if (!text.empty() && (!take(text, ':') || !take_digits(text, 2, 2, &minutes))) return false;
  if (!text.empty() || hours > 15 || minutes > 59) return false;
  *microseconds += (west ? 1 : -1) * int64_t{hours * 60 + minutes} * 60'000'000;
  return true;
}

uint8_t csv_types_of(std::string_view text, uint8_t candidates) {
  uint8_t types = 0;
  if (candidates & (kCsvInteger | kCsvDouble)) {
    int64_t integer = 0;
    double real = 0;
    if ((candidates & kCsvInteger) && parse_csv_integer(text, &integer)) {
      types |= kCsvInteger | kCsvDouble;
    } else if ((candidates & kCsvDouble) && parse_csv_double(text, &real)) {
      types |= kCsvDouble;
    }
  }
  if (candidates & (kCsvDate | kCsvTimestamp | kCsvZoned)) {
    int32_t days = 0;
    int64_t time = 0;
    if ((candidates & kCsvDate) && parse_csv_date(text, &days)) {
      types |= kCsvDate | kCsvTimestamp | kCsvZoned;
    } else if ((candidates & kCsvTimestamp) && parse_csv_timestamp(text, &time)) {
      types |= kCsvTimestamp | kCsvZoned;
    } else if ((candidates & kCsvZoned) && parse_csv_zoned(text, &time)) {
      types |= kCsvZoned;
    }
  }
  bool truth = false;
  if ((candidates & kCsvBoolean) && parse_csv_boolean(text, &truth)) types |= kCsvBoolean;
  return types & candidates;
}

CsvRecords::CsvRecords(const FileHandle& handle, std::string path, char delimiter, int quote, int64_t begin,
                       int64_t end, int64_t line, Digest* digest)
    : handle_(handle),
      path_(std::move(path)),
      delimiter_(delimiter),
      quote_(quote),
      file_offset_(begin),
      end_(end),
      digest_(digest),
      line_(line) {}

Result<bool> CsvRecords::refill() {
  if (file_offset_ >= end_) {
    at_end_ = true;
    return false;
  }
  const size_t kept = size_ - begin_;
  if (kept > kLongestRecord) {
    return make_error(ErrorCategory::kData,
                      fmt::format("{}, line {}: a record of more than {} MiB; is a quote left open?", path_,
                                  line_, kLongestRecord >> 20));
  }
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, kept);
  begin_ = 0;
  if (buffer_.size() < kept + kBuffer) buffer_.resize(std::max(kept + kBuffer, 2 * kept));
  const int64_t room = std::min<int64_t>(static_cast<int64_t>(buffer_.size() - kept), end_ - file_offset_);
  MILLSTREAM_ASSIGN(const int64_t got, handle_.read_at(path_, file_offset_, room, buffer_.data() + kept));
  if (got < room) return file_error("'{}' became shorter while it was read", path_);
  if (digest_) digest_->add(buffer_.data() + kept, static_cast<size_t>(got));
  file_offset_ += got;
  size_ = kept + static_cast<size_t>(got);
  return true;
}

Result<bool> CsvRecords::next(std::vector<std::string_view>& fields) {
  while (true) {
    if (begin_ == size_) {
      if (at_end_) return false;
      MILLSTREAM_ASSIGN(const bool more, refill());
      if (!more) return false;
    }
    size_t end = 0;
    int64_t lines = 0;
    const Outcome outcome =
        scan_record(buffer_.data(), begin_, size_, at_end_, delimiter_, quote_, spans_, &end, &lines);
    if (outcome == Outcome::kIncomplete) {
      MILLSTREAM_TRY(refill());
      continue;
    }
    if (outcome == Outcome::kOpenQuote) {
      return data_error("{}, line {}, field {}: the quote that opens the field is never closed", path_, line_,
                        spans_.size() + 1);
    }
    if (outcome == Outcome::kTextAfterQuote) {
      return data_error(
          "{}, line {}, field {}: text after the closing quote; a quote within a field is written twice",
          path_, line_ + lines, spans_.size());
    }
    record_offset_ = file_offset_ - static_cast<int64_t>(size_ - begin_);
    record_line_ = line_;
    line_ += lines;
    blank_ = spans_.size() == 1 && spans_[0].begin == spans_[0].end && spans_[0].begin == begin_;
    fields.clear();
    for (const Span& span : spans_) {
      char* const from = buffer_.data() + span.begin;
      size_t length = span.end - span.begin;
      if (span.escaped) {
        size_t kept = 0;
        for (size_t i = 0; i < length; ++i) {
          from[kept++] = from[i];
          if (static_cast<unsigned char>(from[i]) == quote_) ++i;
        }
        length = kept;
      }
      fields.emplace_back(from, length);
    }
    begin_ = end;
    return true;
  }
}

char sniff_csv_delimiter(std::string_view beginning, int quote, bool whole_file) {
  char best = ',';
  double best_regular = -1;
  size_t best_fields = 1;
  for (char delimiter : {',', ';', '\t', '|'}) {
    std::vector<SniffSpan> fields;
    size_t at = 0, records = 0, regular = 0, header = 0;
    while (at < beginning.size() && records < 200) {
      size_t next = 0;
      int64_t lines = 0;
      if (scan_record(beginning.data(), at, beginning.size(), whole_file, delimiter, quote, fields, &next,
                      &lines) != Outcome::kRecord)
        break;
      at = next;
      if (fields.size() == 1 && fields[0].begin == fields[0].end) continue;
      if (records++ == 0) header = fields.size();
      regular += fields.size() == header;
    }
    if (header < 2) continue;
    const double fraction = static_cast<double>(regular) / static_cast<double>(records);
    if (fraction > best_regular || (fraction == best_regular && header > best_fields)) {
      best = delimiter;
      best_regular = fraction;
      best_fields = header;
    }
  }
  return best;
}

}  // namespace millstream::exec
