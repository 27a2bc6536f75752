// Functions of strings. Positions and lengths count code points; comparison and patterns go by bytes.

#include <cstring>

#include <arrow/compute/api.h>

#include "expr/selection.h"
#include "functions/definition.h"
#include "functions/text_rows.h"

namespace millstream::functions {

using namespace expr;
using Text = std::string_view;

namespace {

struct Length {
  MILLSTREAM_BODY static int64_t body(Text s) { return count_code_points(s); }
};
struct ByteLength {
  MILLSTREAM_BODY static int64_t body(Text s) { return static_cast<int64_t>(s.size()); }
};

/// Code points from the 1-based `offset`; a negative one counts from the end, a negative length goes backwards.
struct Substring {
  static Text body(Text s, int64_t offset, int64_t length) {
    if (length == 0) return {};
    // Positions outside of the string count too, then what lies outside is cut off.
    constexpr int64_t kFar = int64_t{1} << 40;
    offset = std::clamp(offset, -kFar, kFar);
    length = std::clamp(length, -2 * kFar, 2 * kFar);
    const int64_t size = count_code_points(s);
    int64_t start = offset > 0 ? offset - 1 : offset < 0 ? size + offset : -1;
    int64_t end = start + length;
    if (length < 0) std::swap(start, end);
    start = std::clamp<int64_t>(start, 0, size);
    end = std::clamp<int64_t>(end, 0, size);
    if (size == static_cast<int64_t>(s.size()))
      return s.substr(static_cast<size_t>(start), static_cast<size_t>(end - start));
    size_t from = byte_of(s, start);
    return s.substr(from, byte_of(s.substr(from), end - start));
  }
  static Text body(Text s, int64_t offset) { return body(s, offset, INT64_MAX / 2); }
};

template <bool kLeft, bool kRight>
struct Trim {
  static Text body(Text s) { return body(s, " "); }
  /// Without the code points of `characters` at the ends.
  static Text body(Text s, Text characters) {
    auto one_of = [&](Text code_point) {
      for (size_t at = 0; at < characters.size();) {
        size_t next = at + 1;
        while (next < characters.size() && !starts_code_point(characters[next])) ++next;
        if (characters.substr(at, next - at) == code_point) return true;
        at = next;
      }
      return false;
    };
    while (kLeft && !s.empty()) {
      size_t end = 1;
      while (end < s.size() && !starts_code_point(s[end])) ++end;
      if (!one_of(s.substr(0, end))) break;
      s.remove_prefix(end);
    }
    while (kRight && !s.empty()) {
      size_t start = s.size() - 1;
      while (start > 0 && !starts_code_point(s[start])) --start;
      if (!one_of(s.substr(start))) break;
      s.remove_suffix(s.size() - start);
    }
    return s;
  }
};

/// Whether `size` bytes are the same; without a call where they are few.
MILLSTREAM_BODY bool same_bytes(const char* a, const char* b, size_t size) {
  const auto differ = [&]<class T>(T, size_t at) {
    T x, y;
    std::memcpy(&x, a + at, sizeof x);
    std::memcpy(&y, b + at, sizeof y);
    return static_cast<uint64_t>(x ^ y);
  };
  if (size > 16) return std::memcmp(a, b, size) == 0;
  if (size >= 8) return (differ(uint64_t{}, 0) | differ(uint64_t{}, size - 8)) == 0;
  if (size >= 4) return (differ(uint32_t{}, 0) | differ(uint32_t{}, size - 4)) == 0;
  if (size >= 2) return (differ(uint16_t{}, 0) | differ(uint16_t{}, size - 2)) == 0;
  return size == 0 || *a == *b;
}

struct StartsWith {
  MILLSTREAM_BODY static bool body(Text s, Text start) {
    return s.size() >= start.size() && same_bytes(s.data(), start.data(), start.size());
  }
};
struct EndsWith {
  MILLSTREAM_BODY static bool body(Text s, Text end) {
    return s.size() >= end.size() && same_bytes(s.data() + s.size() - end.size(), end.data(), end.size());
  }
};
struct Contains {
  MILLSTREAM_BODY static bool body(Text s, Text part) { return s.find(part) != Text::npos; }
};

/// LIKE: % is any text, _ one code point; `escape` (none where empty) makes the next character stand for itself.
/// It fails where the pattern ends with the escape character.
Checked<bool> like(Text s, Text pattern, Text escape) {
  if (escape.size() > 1) return {false, Failure::kInvalid};
  size_t at = 0, p = 0;
  // Where to go on after the last %: it swallows one more byte each time.
  size_t retry_pattern = Text::npos, retry_at = 0;
  while (at < s.size() || p < pattern.size()) {
    if (p < pattern.size()) {
      char c = pattern[p];
      if (!escape.empty() && c == escape[0]) {
        if (p + 1 == pattern.size() && at < s.size()) return {false, Failure::kInvalid};
        if (p + 1 < pattern.size() && at < s.size() && s[at] == pattern[p + 1]) {
          p += 2;
          ++at;
          continue;
        }
      } else if (c == '%') {
        retry_pattern = ++p;
        retry_at = at;
        continue;
      } else if (c == '_' && at < s.size()) {
        ++at;
        while (at < s.size() && !starts_code_point(s[at])) ++at;
        ++p;
        continue;
      } else if (c != '_' && at < s.size() && s[at] == c) {
        ++p;
        ++at;
        continue;
      }
    }
    if (retry_pattern == Text::npos || retry_at >= s.size()) return {false};
    // Code points are not divided.
    ++retry_at;
    while (retry_at < s.size() && !starts_code_point(s[retry_at])) ++retry_at;
    at = retry_at;
    p = retry_pattern;
  }
  return {true};
}

template <bool kNegated>
struct Like {
  static bool body(Text s, Text pattern) { return like(s, pattern, {}).value != kNegated; }
  static Checked<bool> body(Text s, Text pattern, Text escape) {
    Checked<bool> result = like(s, pattern, escape);
    result.value = result.value != kNegated;
    return result;
  }
};

struct Concatenate {
  MILLSTREAM_BODY static void body(StringWriter& out, Text a, Text b) {
    out.append(a);
    out.append(b);
  }
};

/// GLOB, as of file names: * is any text, ? one code point, [a-z] one of a set, [!a] one that is not in it, \ takes
/// the next character as it is.
struct Glob {
  static bool body(Text s, Text pattern) {
    Text retry, retry_pattern;
    bool starred = false;
    while (true) {
      if (!pattern.empty() && pattern[0] == '*') {
        pattern.remove_prefix(1);
        starred = true;
        retry = s;
        retry_pattern = pattern;
        continue;
      }
      if (s.empty() && pattern.empty()) return true;
      if (!s.empty() && !pattern.empty() && one(s, pattern)) continue;
      if (!starred || retry.empty()) return false;
      retry.remove_prefix(next_code_point(retry, 0));
      s = retry;
      pattern = retry_pattern;
    }
  }

 private:
  /// Takes one code point of the text and what stands for it in the pattern.
  static bool one(Text& s, Text& pattern) {
    const int32_t code = take_code_point(s);
    if (pattern[0] == '?') {
      pattern.remove_prefix(1);
      return true;
    }
    if (pattern[0] == '[') {
      pattern.remove_prefix(1);
      return one_of(code, pattern);
    }
    if (pattern[0] == '\\') pattern.remove_prefix(1);
    return !pattern.empty() && take_code_point(pattern) == code;
  }
  /// Takes a set and its closing bracket, which may be the set's first member.
  static bool one_of(int32_t code, Text& set) {
    const bool inverted = !set.empty() && set[0] == '!';
    if (inverted) set.remove_prefix(1);
    bool found = false;
    for (bool first = true; !set.empty(); first = false) {
      if (set[0] == ']' && !first) {
        set.remove_prefix(1);
        return found != inverted;
      }
      const int32_t low = take_code_point(set);
      int32_t high = low;
      if (set.size() > 1 && set[0] == '-') {
        set.remove_prefix(1);
        high = take_code_point(set);
      }
      found |= code >= low && code <= high;
    }
    return false;  // it is never closed
  }
};

/// ILIKE is LIKE of both in lower case; the escape character stays as it is.
Result<ExprPtr> rewrite_ilike(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 2 && arguments.size() != 3)
    return query_error("ILIKE takes a text and a pattern, and perhaps an escape character");
  std::vector<ExprPtr> lowered = arguments;
  for (size_t i = 0; i < 2; ++i) {
    MILLSTREAM_ASSIGN(lowered[i], make_call("lower", {arguments[i]}, position));
  }
  return make_call("like", std::move(lowered), position);
}

/// ASCII letters here; where a column has others, Arrow's tables (utf8proc's, which are DuckDB's) do it.
template <bool kUpper>
Status change_case(KernelCall& call) {
  const arrow::ArrayData& in = *call.arguments[0].data;
  const auto* offsets = in.GetValues<int32_t>(1);
  const Column<Text> column(in);
  const char* bytes = column.bytes + offsets[0];
  const auto size = static_cast<size_t>(offsets[call.rows] - offsets[0]);
  char high = 0;
  for (size_t i = 0; i < size; ++i) high |= bytes[i];
  if (high & 0x80) {
    MILLSTREAM_ASSIGN(auto changed, arrow::compute::CallFunction(kUpper ? "utf8_upper" : "utf8_lower",
                                                                 {arrow::Datum(call.arguments[0].data)}));
    const arrow::ArrayData& result = *changed.array();
    if (result.offset != 0)
      return bug_error("Arrow's {} gives a slice", kUpper ? "utf8_upper" : "utf8_lower");
    call.out.buffers = {nullptr, result.buffers[1], result.buffers[2]};
    return Status::OK();
  }
  MILLSTREAM_ASSIGN(auto out_bytes, allocate_values(static_cast<int64_t>(size)));
  auto* out = reinterpret_cast<char*>(out_bytes->mutable_data());
  for (size_t i = 0; i < size; ++i) {
    char c = bytes[i];
    bool letter = kUpper ? c >= 'a' && c <= 'z' : c >= 'A' && c <= 'Z';
    out[i] = static_cast<char>(letter ? c ^ 0x20 : c);
  }
  MILLSTREAM_ASSIGN(auto out_offsets, allocate_values((call.rows + 1) * 4));
  auto* to = reinterpret_cast<int32_t*>(out_offsets->mutable_data());
  for (int64_t i = 0; i <= call.rows; ++i) to[i] = offsets[i] - offsets[0];
  call.out.buffers = {nullptr, std::move(out_offsets), std::move(out_bytes)};
  return Status::OK();
}

template <bool kUpper>
Binding case_overload() {
  Binding binding;
  binding.parameters = {arrow::utf8()};
  binding.result = arrow::utf8();
  binding.kernel = change_case<kUpper>;
  return binding;
}

/// concat: NULLs are left out.
Status concatenate_all(KernelCall& call) {
  std::vector<Strided<Text>> columns;
  std::vector<const Value*> values;
  for (const Value& argument : call.arguments) {
    if (argument.constant && has_nulls(*argument.data)) continue;
    columns.emplace_back(argument);
    values.push_back(&argument);
  }
  StringWriter writer;
  MILLSTREAM_TRY(writer.start(call.rows, call.rows * 16));
  for (int64_t i = 0; i < call.rows; ++i) {
    for (size_t a = 0; a < columns.size(); ++a) {
      const arrow::ArrayData& data = *values[a]->data;
      if (is_set(validity_of(data), data.offset + (values[a]->constant ? 0 : i)))
        writer.append(columns[a][i]);
    }
    writer.end_row();
  }
  return writer.finish(call.out);
}

/// concat_ws: with a separator between; NULLs are left out, and with a NULL separator the result is NULL.
Status join_all(KernelCall& call) {
  const Value& separator = call.arguments[0];
  if (separator.constant && has_nulls(*separator.data)) {
    StringWriter writer;
    MILLSTREAM_TRY(writer.start(call.rows, 0));
    for (int64_t i = 0; i < call.rows; ++i) writer.end_row();
    MILLSTREAM_TRY(writer.finish(call.out));
    MILLSTREAM_ASSIGN(call.out.buffers[0], allocate_values(bitmap_bytes(call.rows)));
    std::memset(call.out.buffers[0]->mutable_data(), 0, static_cast<size_t>(call.out.buffers[0]->size()));
    call.out.null_count = call.rows;
    return Status::OK();
  }
  const auto known = [&](const Value& value, int64_t row) {
    return is_set(validity_of(*value.data), value.data->offset + (value.constant ? 0 : row));
  };
  std::vector<Strided<Text>> columns;
  for (const Value& argument : call.arguments) columns.emplace_back(argument);
  StringWriter writer;
  MILLSTREAM_TRY(writer.start(call.rows, call.rows * 16));
  for (int64_t i = 0; i < call.rows; ++i) {
    bool first = true;
    for (size_t a = 1; a < columns.size() && known(separator, i); ++a) {
      if (!known(call.arguments[a], i)) continue;
      if (!first) writer.append(columns[0][i]);
      writer.append(columns[a][i]);
      first = false;
    }
    writer.end_row();
  }
  MILLSTREAM_TRY(writer.finish(call.out));
  if (!has_nulls(*separator.data)) return Status::OK();
  MILLSTREAM_ASSIGN(call.out.buffers[0], allocate_values(bitmap_bytes(call.rows)));
  fill_bits(call.out.buffers[0]->mutable_data(), call.rows,
            [&](int64_t i) -> uint8_t { return known(separator, i); });
  call.out.null_count = arrow::kUnknownNullCount;
  return Status::OK();
}

Result<std::optional<Binding>> bind_join_all(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() < 2) return std::nullopt;
  Binding binding;
  binding.parameters.assign(arguments.size(), arrow::utf8());
  binding.result = arrow::utf8();
  binding.kernel = join_all;
  binding.nulls = NullPolicy::kOwn;
  binding.gives_null = true;  // where the separator is NULL
  return binding;
}

Result<std::optional<Binding>> bind_concat(const std::vector<ExprPtr>& arguments) {
  if (arguments.empty()) return std::nullopt;
  Binding binding;
  binding.parameters.assign(arguments.size(), arrow::utf8());
  binding.result = arrow::utf8();
  binding.kernel = concatenate_all;
  binding.nulls = NullPolicy::kOwn;
  binding.never_null = true;
  return binding;
}

/// ||: whatever stands beside a string is written out; two that are none can't be joined.
Result<std::optional<Binding>> bind_join(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return std::nullopt;
  bool string = false;
  for (const ExprPtr& argument : arguments)
    string |= is_string_type(*argument->type) || is_null_type(*argument->type);
  if (!string) return std::nullopt;
  return overload<Concatenate, Text, Text>();
}

}  // namespace

MILLSTREAM_FUNCTION(string) {
  Function concat = overloaded_function("concat", {}, "All arguments as one string; NULLs are left out.",
                                        {{"concat('a', NULL, 5)", "a5"}}, {});
  concat.bind = bind_concat;
  concat.forms = {"concat(ANY...)"};

  Function join = overloaded_function("||", {}, "Both strings behind one another; NULL where one is NULL.",
                                      {{"'a' || 5", "a5"}}, {});
  join.notation = Notation::kInfix;
  join.bind = bind_join;
  join.forms = {"||(VARCHAR, ANY)", "||(ANY, VARCHAR)"};

  Function like = overloaded_function(
      "like", {"~~"},
      "Does the text match the pattern? % stands for any text, _ for one character. A third "
      "argument is the escape character; without it there is none.",
      {{"'abc' LIKE 'a%'", "true"}, {"'abc' LIKE 'a_'", "false"}},
      {overload<Like<false>, Text, Text>(), overload<Like<false>, Text, Text, Text>()});
  like.notation = Notation::kInfix;
  like.symbol = "LIKE";

  Function not_like = overloaded_function(
      "not_like", {"!~~"}, "Does the text not match the pattern?", {{"'abc' NOT LIKE 'a%'", "false"}},
      {overload<Like<true>, Text, Text>(), overload<Like<true>, Text, Text, Text>()});
  not_like.notation = Notation::kInfix;
  not_like.symbol = "NOT LIKE";

  Function concat_ws =
      overloaded_function("concat_ws", {}, "The arguments with the first between them; NULLs are left out.",
                          {{"concat_ws(', ', 'a', NULL, 'b')", "a, b"}}, {});
  concat_ws.bind = bind_join_all;
  concat_ws.forms = {"concat_ws(VARCHAR, ANY...)"};

  Function ilike = overloaded_function("ilike", {"~~*"}, "LIKE, whatever the case of letters.",
                                       {{"'aBc' ILIKE 'AB%'", "true"}}, {});
  ilike.notation = Notation::kInfix;
  ilike.symbol = "ILIKE";
  ilike.rewrite = rewrite_ilike;
  ilike.forms = {"ilike(VARCHAR, VARCHAR)", "ilike(VARCHAR, VARCHAR, VARCHAR)"};

  Function glob = overloaded_function(
      "glob", {"~~~"},
      "Does the text match a pattern of the kind that file names have? * is any text, ? one "
      "character, [a-z] one of those, [!a-z] another.",
      {{"'abc' GLOB 'a*'", "true"}, {"'abc' GLOB '[x-z]?c'", "false"}}, {overload<Glob, Text, Text>()});
  glob.notation = Notation::kInfix;
  glob.symbol = "GLOB";

  return define(
      std::move(concat_ws), std::move(ilike), std::move(glob),
      overloaded_function("lower", {"lcase"}, "In lower case.", {{"lower('ABC')", "abc"}},
                          {case_overload<false>()}),
      overloaded_function("upper", {"ucase"}, "In upper case.", {{"upper('abc')", "ABC"}},
                          {case_overload<true>()}),
      overloaded_function("length", {"len", "char_length", "character_length"},
                          "Number of characters (code points).", {{"length('abc')", "3"}},
                          {overload<Length, Text>()}),
      overloaded_function("strlen", {}, "Number of bytes.", {{"strlen('abc')", "3"}},
                          {overload<ByteLength, Text>()}),
      overloaded_function(
          "substring", {"substr"},
          "Characters from a position on, the first is 1 and -1 the last; a third argument is how many.",
          {{"substring('hello', 2, 3)", "ell"}, {"substring('hello', -3)", "llo"}},
          {overload<Substring, Text, int64_t>(), overload<Substring, Text, int64_t, int64_t>()}),
      overloaded_function("trim", {},
                          "Without spaces, or the characters of the second argument, at both ends.",
                          {{"trim('  a b ')", "a b"}, {"trim('xxaxx', 'x')", "a"}},
                          {overload<Trim<true, true>, Text>(), overload<Trim<true, true>, Text, Text>()}),
      overloaded_function("ltrim", {},
                          "Without spaces, or the characters of the second argument, at the beginning.",
                          {{"ltrim('  a ')", "a "}},
                          {overload<Trim<true, false>, Text>(), overload<Trim<true, false>, Text, Text>()}),
      overloaded_function("rtrim", {},
                          "Without spaces, or the characters of the second argument, at the end.",
                          {{"rtrim('  a ')", "  a"}},
                          {overload<Trim<false, true>, Text>(), overload<Trim<false, true>, Text, Text>()}),
      overloaded_function("starts_with", {"prefix", "^@"}, "Does the text begin with the second?",
                          {{"starts_with('abc', 'ab')", "true"}}, {overload<StartsWith, Text, Text>()}),
      overloaded_function("ends_with", {"suffix"}, "Does the text end with the second?",
                          {{"ends_with('abc', 'bc')", "true"}}, {overload<EndsWith, Text, Text>()}),
      overloaded_function("contains", {}, "Is the second a part of the text?",
                          {{"contains('abc', 'b')", "true"}}, {overload<Contains, Text, Text>()}),
      std::move(concat), std::move(join), std::move(like), std::move(not_like));
}

}  // namespace millstream::functions
