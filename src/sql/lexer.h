#pragma once
// Splits the text of a query into tokens.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sql/source_text.h"

namespace millstream::sql {

enum class TokenKind : uint8_t {
  kWord,    ///< keyword or identifier, as written
  kQuoted,  ///< "quoted identifier", the name within
  kString,  ///< 'string', the value
  kBlob,    ///< x'AB', the bytes
  kNumber,  ///< as written without underscores
  kSymbol,  ///< operator or punctuation
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t offset = 0;
  size_t end = 0;
  /// ASCII case is ignored; quoted names are never keywords.
  bool is_word(std::string_view word) const;
  bool is_symbol(std::string_view symbol) const { return kind == TokenKind::kSymbol && text == symbol; }
};

/// The tokens of the text, a kEnd last. Comments are -- to the end of the line and /* nested */.
Result<std::vector<Token>> tokenize(const SourceText& source);

bool equals_ignoring_case(std::string_view a, std::string_view b);
std::string to_lower(std::string_view text);
/// Words that cannot be a name without quotes.
bool is_reserved_word(std::string_view word);

}  // namespace millstream::sql
