#include "sql/lexer.h"

#include <algorithm>
#include <array>

namespace millstream::sql {
namespace {

// DuckDB's reserved words (duckdb_keywords(), category "reserved") and those of its function-and-type words
// that would begin the next clause.
constexpr std::array kReserved = std::to_array<std::string_view>({
    "all",         "analyse",    "analyze",  "and",        "anti",       "any",       "array",
    "as",          "asc",        "asof",     "asymmetric", "both",       "case",      "cast",
    "check",       "collate",    "column",   "constraint", "create",     "cross",     "default",
    "deferrable",  "desc",       "describe", "distinct",   "do",         "else",      "end",
    "except",      "false",      "fetch",    "for",        "foreign",    "from",      "full",
    "group",       "having",     "ilike",    "in",         "initially",  "inner",     "intersect",
    "into",        "is",         "isnull",   "join",       "lambda",     "lateral",   "leading",
    "left",        "like",       "limit",    "natural",    "not",        "notnull",   "null",
    "offset",      "on",         "only",     "or",         "order",      "outer",     "pivot",
    "placing",     "positional", "primary",  "qualify",    "references", "returning", "right",
    "select",      "semi",       "similar",  "some",       "summarize",  "symmetric", "table",
    "tablesample", "then",       "to",       "trailing",   "true",       "union",     "unique",
    "unpivot",     "using",      "variadic", "when",       "where",      "window",    "with",
});

bool is_word_start(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 0x80;
}
bool is_digit(unsigned char c) {
  return c >= '0' && c <= '9';
}
bool is_word_part(unsigned char c) {
  return is_word_start(c) || is_digit(c) || c == '$';
}
int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Longer ones before their beginnings.
constexpr std::array kSymbols = std::to_array<std::string_view>({
    "!~~*", "!~~", "~~~", "~~*", "!~", "~~", "^@", "<<", ">>", "<=", ">=", "<>", "!=", "==", "||", "::",
    "//",   "**",  ":=",  "=>",  "->", "(",  ")",  "[",  "]",  "{",  "}",  ",",  ";",  ".",  "+",  "-",
    "*",    "/",   "%",   "^",   "<",  ">",  "=",  "|",  "&",  "~",  "@",  "!",  "?",  "$",  ":",  "#",
});

class Lexer {
 public:
  explicit Lexer(const SourceText& source) : source_(source), text_(source.text()) {}

  Result<std::vector<Token>> run() {
    while (true) {
      MILLSTREAM_TRY(skip_blanks());
      Token token;
      token.offset = at_;
      if (at_ == text_.size()) {
        token.end = at_;
        tokens_.push_back(std::move(token));
        return std::move(tokens_);
      }
      MILLSTREAM_TRY(scan(token));
      token.end = at_;
      tokens_.push_back(std::move(token));
    }
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  Status skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
        ++at_;
      } else if (c == '-' && peek(1) == '-') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '/' && peek(1) == '*') {
        const size_t begin = at_;
        int depth = 0;
        do {
          if (at_ + 1 >= text_.size())
            return source_.error(begin, "this comment is never closed; it ends with */");
          if (text_[at_] == '/' && text_[at_ + 1] == '*') {
            ++depth;
            at_ += 2;
          } else if (text_[at_] == '*' && text_[at_ + 1] == '/') {
            --depth;
            at_ += 2;
          } else {
            ++at_;
          }
        } while (depth > 0);
      } else {
        break;
      }
    }
    return Status::OK();
  }

  Status scan(Token& token) {
    const char c = text_[at_];
    if (c == '\'') return scan_string(token);
    if (c == '"') return scan_quoted(token);
    if ((c == 'e' || c == 'E') && peek(1) == '\'') return scan_escaped_string(token);
    if ((c == 'x' || c == 'X') && peek(1) == '\'') return scan_blob(token);
    if (is_digit(c) || (c == '.' && is_digit(peek(1)))) return scan_number(token);
    if (is_word_start(c)) {
      token.kind = TokenKind::kWord;
      while (at_ < text_.size() && is_word_part(text_[at_])) token.text += text_[at_++];
      return Status::OK();
    }
    for (std::string_view symbol : kSymbols) {
      if (std::string_view(text_).substr(at_, symbol.size()) == symbol) {
        token.kind = TokenKind::kSymbol;
        token.text = symbol == "==" ? "=" : symbol == "!=" ? "<>" : symbol;
        at_ += symbol.size();
        return Status::OK();
      }
    }
    return source_.error(at_, fmt::format("SQL has no character '{}'", c));
  }

  Status scan_string(Token& token) {
    const size_t begin = at_++;
    token.kind = TokenKind::kString;
    while (true) {
      if (at_ == text_.size()) return source_.error(begin, "this string is never closed; it ends with '");
      if (text_[at_] == '\'') {
        if (peek(1) != '\'') break;
        ++at_;
      }
      token.text += text_[at_++];
    }
    ++at_;
    return Status::OK();
  }

  Status scan_escaped_string(Token& token) {
    const size_t begin = at_;
    at_ += 2;
    token.kind = TokenKind::kString;
    while (true) {
      if (at_ == text_.size()) return source_.error(begin, "this string is never closed; it ends with '");
      char c = text_[at_];
      if (c == '\'') {
        if (peek(1) != '\'') break;
        ++at_;
      } else if (c == '\\') {
        ++at_;
        switch (peek()) {
          case 'n':
            c = '\n';
            break;
          case 't':
            c = '\t';
            break;
          case 'r':
            c = '\r';
            break;
          case 'b':
            c = '\b';
            break;
          case 'f':
            c = '\f';
            break;
          case '\\':
          case '\'':
          case '"':
            c = peek();
            break;
          default:
            return source_.error(at_ - 1, R"(an escape of an E'…' string is one of \n \t \r \b \f \\ \' \")");
        }
      }
      token.text += c;
      ++at_;
    }
    ++at_;
    return Status::OK();
  }

  Status scan_blob(Token& token) {
    const size_t begin = at_;
    at_ += 2;
    token.kind = TokenKind::kBlob;
    while (peek() != '\'') {
      const int high = hex_value(peek());
      const int low = high < 0 ? -1 : hex_value(peek(1));
      if (low < 0) return source_.error(begin, "a blob is x'…' with pairs of hexadecimal digits");
      token.text += static_cast<char>(high * 16 + low);
      at_ += 2;
    }
    ++at_;
    return Status::OK();
  }

  Status scan_quoted(Token& token) {
    const size_t begin = at_++;
    token.kind = TokenKind::kQuoted;
    while (true) {
      if (at_ == text_.size())
        return source_.error(begin, "this quoted name is never closed; it ends with \"");
      if (text_[at_] == '"') {
        if (peek(1) != '"') break;
        ++at_;
      }
      token.text += text_[at_++];
    }
    ++at_;
    if (token.text.empty()) return source_.error(begin, "a quoted name has at least one character");
    return Status::OK();
  }

  void scan_digits(Token& token) {
    while (is_digit(peek()) || (peek() == '_' && is_digit(peek(1)))) {
      if (peek() != '_') token.text += peek();
      ++at_;
    }
  }

  Status scan_number(Token& token) {
    const size_t begin = at_;
    token.kind = TokenKind::kNumber;
    scan_digits(token);
    if (peek() == '.' && peek(1) != '.') {
      token.text += '.';
      ++at_;
      scan_digits(token);
    }
    if (peek() == 'e' || peek() == 'E') {
      const size_t sign = peek(1) == '+' || peek(1) == '-' ? 1 : 0;
      if (is_digit(peek(1 + sign))) {
        token.text += 'e';
        if (sign == 1) token.text += peek(1);
        at_ += 1 + sign;
        scan_digits(token);
      }
    }
    if (is_word_start(peek())) {
      size_t end = at_;
      while (end < text_.size() && is_word_part(text_[end])) ++end;
      return source_.error(begin,
                           fmt::format("'{}' is no number and no name; a name that begins with a digit is "
                                       "written in double quotes",
                                       text_.substr(begin, end - begin)));
    }
    return Status::OK();
  }

  const SourceText& source_;
  const std::string& text_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && to_lower(a) == to_lower(b);
}

std::string to_lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

bool is_reserved_word(std::string_view word) {
  return std::ranges::binary_search(kReserved, std::string_view(to_lower(word)));
}

bool Token::is_word(std::string_view word) const {
  return kind == TokenKind::kWord && equals_ignoring_case(text, word);
}

Result<std::vector<Token>> tokenize(const SourceText& source) {
  return Lexer(source).run();
}

}  // namespace millstream::sql
