// Regular expressions: RE2's, which are DuckDB's. Arrow's kernels run them (its own RE2 is in the process already, and
// a second one beside it would share its symbols).
//
// A constant pattern is looked at once, when the query is read. Options are letters: i ignores case, c does not, l takes
// the pattern literally, s lets . match a new line, and g (regexp_replace) replaces all that matches.

#include <algorithm>
#include <mutex>

#include <arrow/compute/api.h>

#include "functions/definition.h"
#include "functions/text_rows.h"

namespace millstream::functions {

using namespace expr;
using Text = std::string_view;

namespace {

std::string escaped(Text text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = next_code_point(text, at);
    const char c = text[at];
    const bool plain = end - at > 1 || static_cast<unsigned char>(c) >= 0x80 || c == '_' ||
                       (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (c == '\0') {
      out += "\\x00";
    } else {
      if (!plain) out += '\\';
      out += text.substr(at, end - at);
    }
    at = end;
  }
  return out;
}

struct Options {
  bool ignore_case = false;
  bool literal = false;
  bool dot_matches_newline = false;
  bool all = false;
};

Result<Options> parse_options(Text letters, bool replaces) {
  Options options;
  for (const char letter : letters) {
    switch (letter) {
      case 'c':
        options.ignore_case = false;
        break;
      case 'i':
        options.ignore_case = true;
        break;
      case 'l':
        options.literal = true;
        break;
      case 'm':
      case 'n':
      case 'p':
        options.dot_matches_newline = false;
        break;
      case 's':
        options.dot_matches_newline = true;
        break;
      case 'g':
        if (!replaces) return query_error("the option g, to replace all, is for regexp_replace");
        options.all = true;
        break;
      case ' ':
      case '\t':
      case '\n':
        break;
      default:
        return query_error("unknown option '{}' of a regular expression; they are c, i, l, n, s{}",
                           std::string(1, letter), replaces ? " and g" : "");
    }
  }
  return options;
}

/// The pattern with the options in it.
std::string compiled(Text pattern, const Options& options) {
  std::string flags;
  if (options.ignore_case) flags += 'i';
  if (options.dot_matches_newline) flags += 's';
  const std::string body = options.literal ? escaped(pattern) : std::string(pattern);
  return flags.empty() ? body : fmt::format("(?{}:{})", flags, body);
}

using Array = std::shared_ptr<arrow::ArrayData>;

Result<Array> call_arrow(const char* function, const Array& texts,
                         const arrow::compute::FunctionOptions& options) {
  auto result = arrow::compute::CallFunction(function, {arrow::Datum(texts)}, &options);
  if (result.ok()) return result->array();
  std::string message = result.status().message();
  if (const size_t end = message.find('\n'); end != std::string::npos) message.resize(end);
  return data_error("{}", message);
}

Result<Array> matches(const Array& texts, const std::string& pattern) {
  return call_arrow("match_substring_regex", texts, arrow::compute::MatchSubstringOptions(pattern));
}
Result<Array> replaced(const Array& texts, const std::string& pattern, const std::string& replacement,
                       bool all) {
  return call_arrow("replace_substring_regex", texts,
                    arrow::compute::ReplaceSubstringOptions(pattern, replacement, all ? -1 : 1));
}

/// What is wrong with a pattern; OK where nothing is.
Status check_pattern(const std::string& pattern) {
  static std::once_flag once;
  static Status initialized;
  std::call_once(once, [] { initialized = arrow::compute::Initialize(); });
  MILLSTREAM_TRY(initialized);
  MILLSTREAM_ASSIGN(const auto one, arrow::MakeArrayFromScalar(arrow::StringScalar(""), 1));
  const Status status = matches(one->data(), pattern).status();
  if (status.ok()) return status;
  return query_error("the regular expression '{}' can't be read: {}", pattern, status.message());
}

int count_groups(Text pattern) {
  int groups = 0;
  bool set = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      if (pattern.substr(i, 2) == "\\Q") {  // literal up to \E
        const size_t end = pattern.find("\\E", i);
        if (end == Text::npos) break;
        i = end;
      }
      ++i;
    } else if (set) {
      set = pattern[i] != ']';
    } else if (pattern[i] == '[') {
      set = true;
      if (pattern.substr(i + 1, 1) == "^") ++i;
      if (pattern.substr(i + 1, 1) == "]") ++i;
    } else if (pattern[i] == '(') {
      groups += pattern.substr(i + 1, 1) != "?" || pattern.substr(i + 1, 2) == "?P" ||
                pattern.substr(i + 1, 2) == "?<";
    }
  }
  return groups;
}

/// The letters of a constant argument of a call.
Text literal_text(const Expression& e) {
  return static_cast<const arrow::StringScalar&>(*e.literal).view();
}

/// The options of a call, which stand in its argument `at`, if there is one.
Result<Options> options_of(const KernelCall& call, size_t at, bool replaces) {
  if (call.arguments.size() <= at) return Options{};
  return parse_options(literal_text(*call.expression.arguments[at]), replaces);
}

/// One text for all rows, or a text a row.
struct Texts {
  explicit Texts(const Value& value) : texts(value), value(&value) {}
  bool constant() const { return value->constant; }
  Text operator[](int64_t row) const { return texts[row]; }
  Strided<Text> texts;
  const Value* value;
};

/// The texts that a call is about, as Arrow's kernels want them: of all rows, or of one.
Result<Array> rows_of(const KernelCall& call) {
  const Value& value = call.arguments[0];
  if (!value.constant || call.rows == 1) return value.data;
  MILLSTREAM_ASSIGN(const auto scalar, arrow::MakeArray(value.data)->GetScalar(0));
  MILLSTREAM_ASSIGN(const auto repeated, arrow::MakeArrayFromScalar(*scalar, call.rows));
  return repeated->data();
}

/// f(texts, row) once for all rows where pattern and what else counts is constant, else for each row by itself; the
/// results behind one another.
template <class F>
Result<Array> by_pattern(const KernelCall& call, bool constant, F&& f) {
  MILLSTREAM_ASSIGN(const Array texts, rows_of(call));
  if (constant) return f(texts, int64_t{0});
  arrow::ArrayVector parts;
  for (int64_t row = 0; row < call.rows; ++row) {
    if (is_set(call.validity, row)) {
      auto part = f(texts->Slice(row, 1), row);
      if (!part.ok())
        return make_error(ErrorCategory::kData, part.status().message(), SourcePosition{0, row});
      parts.push_back(arrow::MakeArray(*part));
    } else {
      MILLSTREAM_ASSIGN(auto null, arrow::MakeArrayOfNull(call.out.type, 1));
      parts.push_back(std::move(null));
    }
  }
  MILLSTREAM_ASSIGN(const auto all, arrow::Concatenate(parts));
  return all->data();
}

/// Buffers of a result without an offset; its NULLs are the arguments', which the evaluator adds.
Status give(KernelCall& call, const Array& result) {
  Array data = result;
  if (data->offset != 0) {
    MILLSTREAM_ASSIGN(const auto copied, arrow::Concatenate({arrow::MakeArray(data)}));
    data = copied->data();
  }
  for (size_t i = 1; i < data->buffers.size(); ++i) {
    if (call.out.buffers.size() <= i) call.out.buffers.resize(i + 1);
    call.out.buffers[i] = data->buffers[i];
  }
  if (call.out.buffers.size() == 3 && !call.out.buffers[2]) {
    MILLSTREAM_ASSIGN(call.out.buffers[2], allocate_values(0));
  }
  return Status::OK();
}

template <bool kWhole>
Status match(KernelCall& call) {
  MILLSTREAM_ASSIGN(const Options options, options_of(call, 2, false));
  const Texts patterns(call.arguments[1]);
  MILLSTREAM_ASSIGN(const Array result,
                    by_pattern(call, patterns.constant(), [&](const Array& texts, int64_t row) {
                      std::string pattern = compiled(patterns[row], options);
                      if (kWhole) pattern = fmt::format("\\A(?:{})\\z", pattern);
                      return matches(texts, pattern);
                    }));
  return give(call, result);
}

Status replace(KernelCall& call) {
  MILLSTREAM_ASSIGN(const Options options, options_of(call, 3, true));
  const Texts patterns(call.arguments[1]), replacements(call.arguments[2]);
  const bool constant = patterns.constant() && replacements.constant();
  MILLSTREAM_ASSIGN(const Array result, by_pattern(call, constant, [&](const Array& texts, int64_t row) {
                      return replaced(texts, compiled(patterns[row], options), std::string(replacements[row]),
                                      options.all);
                    }));
  return give(call, result);
}

/// The group of the first match: the text with all around it replaced. An empty text where nothing matches.
Status extract(KernelCall& call) {
  MILLSTREAM_ASSIGN(const Options options, options_of(call, 3, false));
  int64_t group = 0;
  if (call.arguments.size() > 2) {
    MILLSTREAM_ASSIGN(const auto wide, call.expression.arguments[2]->literal->CastTo(arrow::int64()));
    group = static_cast<const arrow::Int64Scalar&>(*wide).value;
  }
  const Texts patterns(call.arguments[1]);
  MILLSTREAM_ASSIGN(
      const Array result,
      by_pattern(call, patterns.constant(), [&](const Array& texts, int64_t row) -> Result<Array> {
        const Text pattern = patterns[row];
        const bool exists = group <= (options.literal ? 0 : count_groups(pattern));
        // The second alternative takes what the first leaves: a text without a match.
        // The match itself is a group only where it is asked for: there are no more than nine.
        const std::string around = fmt::format("\\A(?s:.*?)({}{})(?s:.*)\\z|\\A(?s:.*)\\z", group ? "?:" : "",
                                               compiled(pattern, options));
        MILLSTREAM_TRY(check_pattern(compiled(pattern, options)));
        return replaced(texts, around, exists ? fmt::format("\\{}", std::max<int64_t>(group, 1)) : "", false);
      }));
  return give(call, result);
}

/// Constant patterns and options are right, or the query is wrong.
Status check_constants(const std::vector<ExprPtr>& arguments, size_t options_at, bool replaces) {
  Options options;
  if (arguments.size() > options_at) {
    const Expression& letters = *arguments[options_at];
    if (letters.kind != Kind::kLiteral || !is_string_type(*letters.type) || !letters.literal->is_valid)
      return query_error("the options of a regular expression must be a literal such as 'i'");
    MILLSTREAM_ASSIGN(options, parse_options(literal_text(letters), replaces));
  }
  const Expression& pattern = *arguments[1];
  if (pattern.kind != Kind::kLiteral || !is_string_type(*pattern.type) || !pattern.literal->is_valid)
    return Status::OK();
  return check_pattern(compiled(literal_text(pattern), options));
}

bool texts(const std::vector<ExprPtr>& arguments, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!is_string_type(*arguments[i]->type) && !is_null_type(*arguments[i]->type)) return false;
  }
  return true;
}

/// Binds to VARCHARs, the third argument being a number where `third` says so.
Binding text_binding(size_t count, TypePtr result, Kernel kernel, TypePtr third = nullptr) {
  Binding binding;
  binding.parameters.assign(count, arrow::utf8());
  if (third && count > 2) binding.parameters[2] = std::move(third);
  binding.result = std::move(result);
  binding.kernel = kernel;
  binding.can_fail = true;
  return binding;
}

template <bool kWhole>
Result<std::optional<Binding>> bind_match(const std::vector<ExprPtr>& arguments) {
  const size_t count = arguments.size();
  if (count < 2 || count > 3 || !texts(arguments, count)) return std::nullopt;
  MILLSTREAM_TRY(check_constants(arguments, 2, false));
  return text_binding(count, arrow::boolean(), match<kWhole>);
}

Result<std::optional<Binding>> bind_replace(const std::vector<ExprPtr>& arguments) {
  const size_t count = arguments.size();
  if (count < 3 || count > 4 || !texts(arguments, count)) return std::nullopt;
  MILLSTREAM_TRY(check_constants(arguments, 3, true));
  return text_binding(count, arrow::utf8(), replace);
}

Result<std::optional<Binding>> bind_extract(const std::vector<ExprPtr>& arguments) {
  const size_t count = arguments.size();
  if (count < 2 || count > 4 || !texts(arguments, 2)) return std::nullopt;
  TypePtr group_type;
  if (count > 2) {
    const Expression& group = *arguments[2];
    if (group.kind != Kind::kLiteral || !is_integer_type(*group.type) || !group.literal->is_valid)
      return query_error("the group of regexp_extract must be a literal number");
    MILLSTREAM_ASSIGN(const auto wide, group.literal->CastTo(arrow::int64()));
    const int64_t number = static_cast<const arrow::Int64Scalar&>(*wide).value;
    if (number < 0 || number > 9) return query_error("the group of regexp_extract lies between 0 and 9");
    group_type = group.type;
  }
  MILLSTREAM_TRY(check_constants(arguments, 3, false));
  return text_binding(count, arrow::utf8(), extract, group_type);
}

struct Escape {
  static void body(StringWriter& out, Text s) { out.append(escaped(s)); }
};

}  // namespace

MILLSTREAM_FUNCTION(regexp) {
  Function escape =
      bound_function("regexp_escape", "With all that has a meaning in regular expressions escaped.",
                     {{"regexp_escape('a.b')", "a\\.b"}}, nullptr, {});
  escape.overloads = {overload<Escape, Text>()};
  return define(
      bound_function(
          "regexp_matches",
          "Does a part of the text match the regular expression (RE2's)? A third argument has options: i "
          "ignores case, l takes the pattern literally, s lets . match a new line. Also text ~ pattern.",
          {{"regexp_matches('banana', 'an+a')", "true"}, {"'banana' ~ '^an'", "false"}}, bind_match<false>,
          {"regexp_matches(VARCHAR, VARCHAR)", "regexp_matches(VARCHAR, VARCHAR, 'options')"}),
      bound_function(
          "regexp_full_match",
          "Does the whole text match the regular expression? Also text SIMILAR TO pattern.",
          {{"regexp_full_match('banana', '(an)+a')", "false"}, {"'abc' SIMILAR TO 'a.c'", "true"}},
          bind_match<true>,
          {"regexp_full_match(VARCHAR, VARCHAR)", "regexp_full_match(VARCHAR, VARCHAR, 'options')"}),
      bound_function(
          "regexp_replace",
          "The first match becomes the third argument, where \\1 stands for the first group; all of them "
          "with the option g.",
          {{"regexp_replace('banana', 'a(n)', '\\1\\1')", "bnnana"},
           {"regexp_replace('banana', 'an', 'o', 'g')", "booa"}},
          bind_replace,
          {"regexp_replace(VARCHAR, VARCHAR, VARCHAR)",
           "regexp_replace(VARCHAR, VARCHAR, VARCHAR, 'options')"}),
      bound_function("regexp_extract",
                     "The first match, or a group of it; an empty text where there is none.",
                     {{"regexp_extract('trip 2024-05', '[0-9]+')", "2024"},
                      {"regexp_extract('2024-05', '([0-9]+)-([0-9]+)', 2)", "05"}},
                     bind_extract,
                     {"regexp_extract(VARCHAR, VARCHAR)", "regexp_extract(VARCHAR, VARCHAR, group)",
                      "regexp_extract(VARCHAR, VARCHAR, group, 'options')"}),
      std::move(escape));
}

}  // namespace millstream::functions
