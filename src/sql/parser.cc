#include "sql/parser.h"

#include <array>
#include <charconv>

#include "base/nearest_name.h"
#include "expr/type.h"
#include "sql/lexer.h"

namespace millstream::sql {
namespace {

using ast::Expr;
using ast::ExprKind;
using ast::ExprPtr;

// Binding powers. NOT is a prefix between AND and IS; unary minus binds tighter than ^, as in PostgreSQL.
enum Level : int {
  kLevelOr = 1,
  kLevelAnd,
  kLevelNot,
  kLevelIs,
  kLevelComparison,
  kLevelIn,     // IN, BETWEEN, LIKE
  kLevelOther,  // || and the bit operators
  kLevelAdd,
  kLevelMultiply,
  kLevelPower,
  kLevelAt,  // AT TIME ZONE
  kLevelSign,
  kLevelPostfix,  // ::
};

// Trees deeper than this would exhaust the stack of whoever walks them.
constexpr int kMaxDepth = 1000;
constexpr int kMaxUnions = 50;  // where UNION and UNION ALL take turns

// Clauses and joins that DuckDB has and that come with the parallel engine.
struct Unsupported {
  const char* word;
  const char* what;
};
constexpr Unsupported kUnsupportedClauses[] = {
    {"join", "JOIN"},          {"inner", "JOIN"},
    {"left", "JOIN"},          {"right", "JOIN"},
    {"full", "JOIN"},          {"cross", "JOIN"},
    {"natural", "JOIN"},       {"semi", "JOIN"},
    {"anti", "JOIN"},          {"asof", "JOIN"},
    {"positional", "JOIN"},    {"intersect", "INTERSECT"},
    {"except", "EXCEPT"},      {"tablesample", "TABLESAMPLE"},
    {"using", "USING SAMPLE"}, {"pivot", "PIVOT"},
    {"unpivot", "UNPIVOT"},
};

// LIKE and its relatives as symbols, and what they mean.
constexpr std::pair<const char*, const char*> kPatternOperators[] = {
    {"~~", "like"}, {"!~~", "like"}, {"~~*", "ilike"}, {"!~~*", "ilike"}, {"~~~", "glob"}, {"!~", "~"}};

class Parser {
 public:
  Parser(const SourceText& source, std::vector<Token> tokens) : source_(source), tokens_(std::move(tokens)) {}

  Result<std::unique_ptr<ast::Query>> query_text() {
    MILLSTREAM_ASSIGN(auto query, parse_query());
    while (accept(";")) {
    }
    if (peek().kind != TokenKind::kEnd) return unexpected_after_query();
    return query;
  }

  Result<ExprPtr> expression_text() {
    MILLSTREAM_ASSIGN(auto expression, parse_expr());
    if (peek().kind != TokenKind::kEnd) return unexpected("an operator or the end of the expression");
    return expression;
  }

 private:
  // ---- tokens ----

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() {
    const Token& token = peek();
    if (at_ + 1 < tokens_.size()) ++at_;
    return token;
  }
  bool is(std::string_view word_or_symbol, size_t ahead = 0) const {
    const Token& token = peek(ahead);
    return token.is_symbol(word_or_symbol) || token.is_word(word_or_symbol);
  }
  bool accept(std::string_view word_or_symbol) {
    if (!is(word_or_symbol)) return false;
    next();
    return true;
  }
  Status expect(std::string_view word_or_symbol, std::string_view why) {
    if (accept(word_or_symbol)) return Status::OK();
    return unexpected(why);
  }
  bool is_name(size_t ahead = 0) const {
    const Token& token = peek(ahead);
    return token.kind == TokenKind::kQuoted ||
           (token.kind == TokenKind::kWord && !is_reserved_word(token.text));
  }

  std::string found() const {
    const Token& token = peek();
    if (token.kind == TokenKind::kEnd) return "the end of the text";
    return fmt::format("'{}'", source_.text().substr(token.offset, token.end - token.offset));
  }
  Status unexpected(std::string_view expected) const {
    // A misspelt keyword is read as an alias, and what follows it is then out of place.
    std::string hint;
    if (at_ > 0 && alias_at_ == at_ - 1) {
      static const std::vector<std::string> kClauses = {"WHERE", "FROM",    "EXCLUDE", "AND", "OR", "LIMIT",
                                                        "IN",    "BETWEEN", "LIKE",    "IS",  "NOT"};
      if (auto word = nearest_name(tokens_[alias_at_].text, kClauses)) {
        hint = fmt::format("; did you mean {} where '{}' stands?", *word, tokens_[alias_at_].text);
      }
    }
    return source_.error(peek().offset, fmt::format("expected {}, found {}{}", expected, found(), hint));
  }
  Status not_yet(const Token& token, std::string_view what) const {
    return source_.error(token.offset, fmt::format("{} is not supported yet", what));
  }

  Status unexpected_after_query() const {
    const Token& token = peek();
    for (const auto& clause : kUnsupportedClauses) {
      if (token.is_word(clause.word)) return not_yet(token, clause.what);
    }
    if (token.is_symbol(",")) return not_yet(token, "reading several tables at once (a join)");
    return unexpected(seen_where_ ? "an operator or the end of the query" : "WHERE or the end of the query");
  }

  // ---- clauses ----

  Result<std::unique_ptr<ast::Query>> parse_query() {
    if (++nesting_ > kMaxDepth / 4) return source_.error(peek().offset, "queries are nested too deeply");
    auto query = std::make_unique<ast::Query>();
    query->offset = peek().offset;
    if (accept("describe")) {
      if (begins_query() || is("(")) {
        MILLSTREAM_ASSIGN(query->described, parse_query());
      } else {
        ast::TableSource table;
        MILLSTREAM_TRY(parse_table(table));
        query->described = select_all(std::move(table));
      }
      --nesting_;
      return query;
    }
    if (accept("with")) {
      if (is("recursive")) return not_yet(peek(), "WITH RECURSIVE");
      do {
        if (!is_name()) return unexpected("the name of a WITH query");
        ast::CommonTable table;
        table.offset = peek().offset;
        table.name = next().text;
        if (is("(")) return not_yet(peek(), "a column list of a WITH query");
        MILLSTREAM_TRY(expect("as", "AS"));
        if (accept("not")) {
          MILLSTREAM_TRY(expect("materialized", "MATERIALIZED"));
        } else {
          accept("materialized");
        }
        MILLSTREAM_TRY(expect("(", "'(' and a query"));
        MILLSTREAM_ASSIGN(table.query, parse_query());
        MILLSTREAM_TRY(close_query());
        query->with.push_back(std::move(table));
      } while (accept(","));
    }
    std::vector<ast::CommonTable> with = std::move(query->with);
    const bool parentheses = is("(");
    MILLSTREAM_ASSIGN(query, parse_branch());
    int unions = 0;
    while (is("union")) {
      const Token& word = next();
      const bool distinct = !accept("all");
      if (distinct) accept("distinct");
      if (is("by")) return not_yet(peek(), "UNION BY NAME");
      if (unions == 0 || query->distinct != distinct) {
        if (++unions > kMaxUnions)
          return source_.error(word.offset,
                               fmt::format("UNION and UNION ALL take turns more than {} times", kMaxUnions));
        ast::TableSource source;
        source.kind = ast::TableSource::Kind::kUnion;
        source.offset = word.offset;
        source.branches.push_back(std::move(query));
        query = select_all(std::move(source));
        query->distinct = distinct;
        query->distinct_offset = word.offset;
      }
      MILLSTREAM_ASSIGN(auto branch, parse_branch());
      query->from->branches.push_back(std::move(branch));
    }
    bool combined = unions > 0;
    if (parentheses && !combined && (is("order") || is("limit") || is("offset"))) {
      // (SELECT … LIMIT 3) ORDER BY a: of the rows that the parentheses give.
      ast::TableSource source;
      source.kind = ast::TableSource::Kind::kSubquery;
      source.offset = query->offset;
      source.subquery = std::move(query);
      query = select_all(std::move(source));
      combined = true;
    }
    if (!parentheses || combined) {
      MILLSTREAM_TRY(parse_order(*query));
      MILLSTREAM_TRY(parse_limit(*query));
    }
    for (auto& table : query->with) with.push_back(std::move(table));
    query->with = std::move(with);
    --nesting_;
    return query;
  }

  static std::unique_ptr<ast::Query> select_all(ast::TableSource source) {
    auto query = std::make_unique<ast::Query>();
    query->offset = source.offset;
    ast::SelectItem star;
    star.offset = source.offset;
    query->items.push_back(std::move(star));
    query->from = std::move(source);
    return query;
  }

  // What UNION stands between: SELECT … without ORDER BY and LIMIT, or a query in parentheses.
  Result<std::unique_ptr<ast::Query>> parse_branch() {
    if (accept("(")) {
      MILLSTREAM_ASSIGN(auto inner, parse_query());
      MILLSTREAM_TRY(close_query());
      return inner;
    }
    auto query = std::make_unique<ast::Query>();
    query->offset = peek().offset;
    if (is("from")) {
      MILLSTREAM_TRY(parse_from(*query));
      if (is("select")) {
        MILLSTREAM_TRY(parse_select_list(*query));
      } else {
        ast::SelectItem star;
        star.offset = query->offset;
        query->items.push_back(std::move(star));
      }
    } else if (is("select")) {
      MILLSTREAM_TRY(parse_select_list(*query));
      if (is("from")) MILLSTREAM_TRY(parse_from(*query));
    } else {
      const Token& token = peek();
      if (token.is_word("summarize"))
        return not_yet(token, "SUMMARIZE (`millstream profile` looks at files)");
      if (token.is_word("values") || token.is_word("pivot")) return not_yet(token, upper(token.text));
      static const std::vector<std::string> kStarts = {"SELECT", "FROM", "WITH"};
      std::string hint;
      if (token.kind == TokenKind::kWord) {
        if (auto word = nearest_name(token.text, kStarts)) hint = fmt::format("; did you mean {}?", *word);
      }
      return source_.error(
          token.offset, fmt::format("a query begins with SELECT, FROM or WITH, found {}{}", found(), hint));
    }
    seen_where_ = false;
    if (accept("where")) {
      MILLSTREAM_ASSIGN(query->where, parse_expr());
      seen_where_ = true;
    }
    MILLSTREAM_TRY(parse_grouping(*query));
    MILLSTREAM_TRY(parse_windows(*query));
    return query;
  }

  // GROUP BY … and HAVING.
  Status parse_grouping(ast::Query& query) {
    if (is("group")) {
      query.group_offset = next().offset;
      MILLSTREAM_TRY(expect("by", "BY after GROUP"));
      if (accept("all")) {
        query.group_all = true;
      } else {
        do {
          for (std::string_view word : {"rollup", "cube", "grouping"}) {
            if (peek().is_word(word) && (is("(", 1) || is("sets", 1))) return not_yet(peek(), upper(word));
          }
          if (is("(") && is(")", 1)) return not_yet(peek(), "GROUP BY ()");
          MILLSTREAM_ASSIGN(auto key, parse_expr());
          query.group_by.push_back(std::move(key));
        } while (accept(","));
      }
    }
    if (accept("having")) {
      MILLSTREAM_ASSIGN(query.having, parse_expr());
    }
    return Status::OK();
  }

  // ORDER BY …
  Status parse_order(ast::Query& query) {
    if (!is("order")) return Status::OK();
    query.order_offset = next().offset;
    MILLSTREAM_TRY(expect("by", "BY after ORDER"));
    do {
      ast::OrderItem item;
      if (query.order_by.empty() && accept("all")) {
        MILLSTREAM_TRY(parse_direction(item));
        query.order_by.push_back(std::move(item));
        return Status::OK();
      }
      MILLSTREAM_ASSIGN(item.expression, parse_expr());
      MILLSTREAM_TRY(parse_direction(item));
      query.order_by.push_back(std::move(item));
    } while (accept(","));
    return Status::OK();
  }

  // [ASC | DESC] [NULLS FIRST | LAST]
  Status parse_direction(ast::OrderItem& item) {
    item.descending = accept("desc");
    if (!item.descending) accept("asc");
    if (accept("nulls")) {
      item.nulls_first = is("first");
      if (!accept("first")) MILLSTREAM_TRY(expect("last", "FIRST or LAST after NULLS"));
    }
    return Status::OK();
  }

  static bool whole_number(const std::string& text, int64_t* value) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, *value);
    return error == std::errc() && stop == end;
  }

  // LIMIT n | ALL and OFFSET n, in either order.
  Status parse_limit(ast::Query& query) {
    bool limit = false;
    while (is("limit") || is("offset")) {
      const Token& word = next();
      const bool is_limit = word.is_word("limit");
      if (is_limit ? limit : query.offset_rows.has_value()) {
        return source_.error(word.offset, fmt::format("there are two {}s", upper(word.text)));
      }
      if (!limit && !query.offset_rows) query.limit_offset = word.offset;
      if (is_limit) {
        limit = true;
        if (accept("all")) continue;
      }
      const Token& number = peek();
      int64_t rows = 0;
      if (number.kind != TokenKind::kNumber || !whole_number(number.text, &rows)) {
        return unexpected(fmt::format("a whole number of rows after {}", upper(word.text)));
      }
      if (is("%", 1)) return not_yet(peek(1), "LIMIT in per cent");
      next();
      if (!is_limit && (is("rows") || is("row"))) next();
      (is_limit ? query.limit : query.offset_rows) = rows;
    }
    return Status::OK();
  }

  Status close_query() {
    if (accept(")")) return Status::OK();
    const Status status = unexpected_after_query();
    if (peek().kind == TokenKind::kEnd) return unexpected("')' after the query in parentheses");
    return status;
  }

  static std::string upper(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return result;
  }

  Status parse_select_list(ast::Query& query) {
    next();
    query.distinct_offset = peek().offset;
    query.distinct = accept("distinct");
    if (query.distinct && is("on")) return not_yet(peek(), "DISTINCT ON");
    if (!query.distinct) accept("all");
    do {
      if (is("from") && !query.items.empty()) break;  // a comma too many, as DuckDB allows
      ast::SelectItem item;
      item.offset = peek().offset;
      if (is("*") || (is_name() && is(".", 1) && is("*", 2))) {
        MILLSTREAM_TRY(parse_star(item));
      } else {
        MILLSTREAM_ASSIGN(item.expression, parse_expr());
        MILLSTREAM_TRY(parse_alias(item.alias, /*reserved_after_as=*/true));
      }
      query.items.push_back(std::move(item));
    } while (accept(","));
    return Status::OK();
  }

  Status parse_star(ast::SelectItem& item) {
    if (!is("*")) {
      item.star_table = next().text;
      next();
    }
    next();
    if (accept("exclude")) {
      const bool list = accept("(");
      do {
        if (!is_name()) return unexpected("the name of a column to leave out");
        item.exclude.emplace_back(peek().text, peek().offset);
        next();
      } while (list && accept(","));
      if (list) MILLSTREAM_TRY(expect(")", "',' or ')'"));
    }
    if (is("replace") || is("rename") || is("like") || is("similar")) {
      return not_yet(peek(), fmt::format("* {}", upper(peek().text)));
    }
    return Status::OK();
  }

  // [AS] name
  Status parse_alias(std::string& alias, bool reserved_after_as) {
    if (accept("as")) {
      const Token& token = peek();
      const bool name = is_name() || token.kind == TokenKind::kString ||
                        (reserved_after_as && token.kind == TokenKind::kWord);
      if (!name || token.text.empty()) return unexpected("a name after AS");
      alias = next().text;
    } else if (is_name()) {
      alias_at_ = at_;
      alias = next().text;
    }
    return Status::OK();
  }

  Status parse_from(ast::Query& query) {
    next();
    query.from.emplace();
    MILLSTREAM_TRY(parse_table(*query.from));
    if (is(",")) return not_yet(peek(), "a comma between tables (write JOIN … ON)");
    while (true) {
      ast::Join join;
      join.offset = peek().offset;
      for (std::string_view word : {"cross", "natural", "asof", "positional"}) {
        if (peek().is_word(word)) return not_yet(peek(), fmt::format("{} JOIN", upper(word)));
      }
      bool kind = true;
      if (accept("inner")) {
        join.kind = ast::Join::Kind::kInner;
      } else if (accept("left")) {
        join.kind = ast::Join::Kind::kLeft;
        accept("outer");
      } else if (accept("right")) {
        join.kind = ast::Join::Kind::kRight;
        accept("outer");
      } else if (accept("full")) {
        join.kind = ast::Join::Kind::kFull;
        accept("outer");
      } else if (accept("semi")) {
        join.kind = ast::Join::Kind::kSemi;
      } else if (accept("anti")) {
        join.kind = ast::Join::Kind::kAnti;
      } else {
        kind = false;
      }
      if (!kind && !is("join")) return Status::OK();
      MILLSTREAM_TRY(expect("join", "JOIN"));
      MILLSTREAM_TRY(parse_table(join.table));
      if (accept("on")) {
        MILLSTREAM_ASSIGN(join.on, parse_expr());
      } else if (accept("using")) {
        MILLSTREAM_TRY(expect("(", "'(' and columns after USING"));
        do {
          if (!is_name()) return unexpected("the name of a column that both tables have");
          join.using_columns.emplace_back(peek().text, peek().offset);
          next();
        } while (accept(","));
        MILLSTREAM_TRY(expect(")", "',' or ')'"));
      } else {
        return unexpected("ON with a condition, or USING (columns), after JOIN's table");
      }
      query.joins.push_back(std::move(join));
    }
  }

  Status parse_table(ast::TableSource& table) {
    table.offset = peek().offset;
    if (peek().kind == TokenKind::kString) {
      table.files.push_back({peek().text, peek().offset});
      next();
    } else if (is("[")) {
      MILLSTREAM_TRY(parse_file_list(table));
    } else if (accept("(")) {
      table.kind = ast::TableSource::Kind::kSubquery;
      if (!begins_query() && !is("(")) return unexpected("a query in parentheses");
      MILLSTREAM_ASSIGN(table.subquery, parse_query());
      MILLSTREAM_TRY(close_query());
    } else if (is_name()) {
      const Token& name = next();
      if (is("(")) {
        MILLSTREAM_TRY(parse_table_function(table, name));
      } else if (is(".")) {
        return source_.error(name.offset,
                             fmt::format("there are no schemas or databases; a file is named in quotes: "
                                         "FROM '{}.…'",
                                         name.text));
      } else {
        table.kind = ast::TableSource::Kind::kName;
        table.name = name.text;
      }
    } else if (is("lateral") || is("values") || is("table")) {
      return not_yet(peek(), upper(peek().text));
    } else {
      return unexpected("a file in quotes, a WITH name or a query in parentheses after FROM");
    }
    MILLSTREAM_TRY(parse_alias(table.alias, false));
    if (!table.alias.empty() && is("(")) return not_yet(peek(), "a column list after a table's alias");
    return Status::OK();
  }

  Status parse_file_list(ast::TableSource& table) {
    next();
    do {
      if (peek().kind != TokenKind::kString) return unexpected("a file name in quotes");
      table.files.push_back({peek().text, peek().offset});
      next();
    } while (accept(","));
    return expect("]", "',' or ']'");
  }

  // read_parquet('…' | ['…', …], option = value, …)
  Status parse_table_function(ast::TableSource& table, const Token& name) {
    const std::string function = to_lower(name.text);
    const bool parquet = function == "read_parquet" || function == "parquet_scan";
    const bool csv = function == "read_csv" || function == "read_csv_auto";
    if (!parquet && !csv) {
      static const std::vector<std::string> kFunctions = {"read_parquet", "read_csv"};
      return source_.error(name.offset, fmt::format("there is no table function '{}'{}", name.text,
                                                    name_hint(name.text, kFunctions)));
    }
    next();
    if (peek().kind == TokenKind::kString) {
      table.files.push_back({peek().text, peek().offset});
      next();
    } else if (is("[")) {
      MILLSTREAM_TRY(parse_file_list(table));
    } else {
      return unexpected("a file name in quotes or a list of them in brackets");
    }
    if (csv) table.csv.emplace();
    while (accept(",")) MILLSTREAM_TRY(parse_read_option(table, function));
    return expect(")", "',' or ')'");
  }

  // name = value
  Status parse_read_option(ast::TableSource& table, const std::string& function) {
    const Token& option = peek();
    if (option.kind != TokenKind::kWord) return unexpected("an option: name = value");
    next();
    if (!accept("=") && !accept(":=") && !accept("=>")) return unexpected("'=' after an option's name");
    const Token& value = peek();
    // Of DuckDB's options some whose value says what is done anyway.
    if (option.is_word("union_by_name")) {
      MILLSTREAM_ASSIGN(const bool on, option_bool());
      if (on) return Status::OK();
      return source_.error(value.offset, "files are always united by column name: union_by_name = true");
    }
    if (option.is_word("hive_partitioning")) {
      MILLSTREAM_ASSIGN(const bool on, option_bool());
      if (!on) return Status::OK();
      return source_.error(value.offset, "folders of the form name=value are not read as columns yet");
    }
    if (!table.csv) {
      static const std::vector<std::string> kOptions = {"union_by_name", "hive_partitioning"};
      return source_.error(option.offset,
                           fmt::format("{} has no option {}{}", function, to_lower(option.text),
                                       name_hint(option.text, kOptions)));
    }
    return parse_csv_option(*table.csv, option);
  }

  Status parse_csv_option(ast::CsvOptions& csv, const Token& option) {
    const Token& value = peek();
    if (option.is_word("auto_detect")) {
      MILLSTREAM_ASSIGN(const bool on, option_bool());
      if (on) return Status::OK();
      return source_.error(value.offset, "types are found out, or said with types = {'name': 'TYPE'}");
    }
    if (option.is_word("header")) {
      MILLSTREAM_ASSIGN(csv.header, option_bool());
      return Status::OK();
    }
    if (option.is_word("all_varchar")) {
      MILLSTREAM_ASSIGN(csv.all_text, option_bool());
      return Status::OK();
    }
    if (option.is_word("delim") || option.is_word("sep") || option.is_word("delimiter")) {
      MILLSTREAM_ASSIGN(const std::string text, option_string());
      if (text != "\\t" && (text.size() != 1 || text == "\n" || text == "\r" || text == "\""))
        return source_.error(value.offset, "a delimiter is one byte, such as ',', ';', '|' or a tab ('\\t')");
      csv.delimiter = text == "\\t" ? '\t' : text[0];
      return Status::OK();
    }
    if (option.is_word("quote")) {
      MILLSTREAM_ASSIGN(const std::string text, option_string());
      if (text.size() > 1 || text == "\n" || text == "\r")
        return source_.error(value.offset, "a quote is one byte, or nothing ('') where there are none");
      csv.quote = text.empty() ? -1 : static_cast<unsigned char>(text[0]);
      return Status::OK();
    }
    if (option.is_word("nullstr") || option.is_word("null")) {
      MILLSTREAM_ASSIGN(csv.null_texts, option_strings());
      return Status::OK();
    }
    if (option.is_word("names") || option.is_word("column_names")) {
      MILLSTREAM_ASSIGN(csv.names, option_strings());
      return Status::OK();
    }
    if (option.is_word("dateformat") || option.is_word("date_format")) {
      MILLSTREAM_ASSIGN(csv.date_format, option_string());
      return Status::OK();
    }
    if (option.is_word("timestampformat") || option.is_word("timestamp_format")) {
      MILLSTREAM_ASSIGN(csv.timestamp_format, option_string());
      return Status::OK();
    }
    if (option.is_word("types") || option.is_word("dtypes") || option.is_word("column_types"))
      return parse_csv_types(csv);
    static const std::vector<std::string> kOptions = {
        "delim",      "header",          "quote", "nullstr",     "names",         "types",
        "dateformat", "timestampformat", "sep",   "all_varchar", "union_by_name", "auto_detect"};
    return source_.error(option.offset, fmt::format("read_csv has no option {}{}", to_lower(option.text),
                                                    name_hint(option.text, kOptions, kOptions.size())));
  }

  // {'name': 'TYPE', …}
  Status parse_csv_types(ast::CsvOptions& csv) {
    MILLSTREAM_TRY(expect("{", "types = {'column': 'TYPE', …}"));
    do {
      ast::CsvOptions::Column column;
      column.offset = peek().offset;
      if (!is_name() && peek().kind != TokenKind::kString) return unexpected("the name of a column");
      column.name = next().text;
      MILLSTREAM_TRY(expect(":", "':' and a type"));
      const size_t offset = peek().offset;
      MILLSTREAM_ASSIGN(const std::string text, option_string());
      auto type = expr::parse_type(text);
      if (!type.ok()) return source_.place(type.status(), offset);
      column.type = {text, *std::move(type)};
      csv.types.push_back(std::move(column));
    } while (accept(","));
    return expect("}", "',' or '}'");
  }

  Result<bool> option_bool() {
    if (is("true") || is("false")) return next().is_word("true");
    if (peek().kind == TokenKind::kNumber && (peek().text == "0" || peek().text == "1"))
      return next().text == "1";
    return unexpected("true or false");
  }
  Result<std::string> option_string() {
    if (peek().kind != TokenKind::kString) return unexpected("a text in quotes");
    return next().text;
  }
  Result<std::vector<std::string>> option_strings() {
    std::vector<std::string> texts;
    if (!accept("[")) {
      MILLSTREAM_ASSIGN(auto text, option_string());
      return std::vector<std::string>{std::move(text)};
    }
    do {
      MILLSTREAM_ASSIGN(auto text, option_string());
      texts.push_back(std::move(text));
    } while (accept(","));
    MILLSTREAM_TRY(expect("]", "',' or ']'"));
    return texts;
  }

  // ---- expressions ----

  Result<ExprPtr> node(ExprKind kind, size_t offset, std::string text, std::vector<ExprPtr> arguments = {}) {
    auto result = std::make_unique<Expr>();
    result->kind = kind;
    result->offset = offset;
    result->text = std::move(text);
    int depth = 0;
    for (const ExprPtr& argument : arguments) depth = std::max(depth, argument->depth);
    result->depth = depth + 1;
    if (result->depth > kMaxDepth) {
      return source_.error(offset,
                           fmt::format("this expression is nested more than {} levels deep", kMaxDepth));
    }
    result->arguments = std::move(arguments);
    return result;
  }
  template <class... A>
  Result<ExprPtr> node_of(ExprKind kind, size_t offset, std::string text, A... arguments) {
    std::vector<ExprPtr> list;
    (list.push_back(std::move(arguments)), ...);
    return node(kind, offset, std::move(text), std::move(list));
  }

  Result<ExprPtr> parse_expr(int min_level = kLevelOr) {
    if (++nesting_ > kMaxDepth) {
      return source_.error(peek().offset,
                           fmt::format("this expression is nested more than {} levels deep", kMaxDepth));
    }
    auto result = parse_operators(min_level);
    --nesting_;
    return result;
  }

  struct Infix {
    int level = 0;     // 0: no infix operator stands here
    std::string name;  // as functions are called
    bool negated = false;
    int tokens = 1;
  };

  Infix infix() const {
    const Token& token = peek();
    if (token.kind == TokenKind::kSymbol) {
      const std::string& s = token.text;
      if (s == "=" || s == "<>" || s == "<" || s == ">" || s == "<=" || s == ">=")
        return {kLevelComparison, s};
      for (const char* other : {"||", "&", "|", "<<", ">>", "^@", "~"}) {
        if (s == other) return {kLevelOther, s};
      }
      for (const auto& [symbol, meaning] : kPatternOperators) {
        if (s == symbol) return {kLevelOther, meaning, s[0] == '!'};
      }
      if (s == "+" || s == "-") return {kLevelAdd, s};
      if (s == "*" || s == "/" || s == "%" || s == "//") return {kLevelMultiply, s};
      if (s == "^" || s == "**") return {kLevelPower, s};
      if (s == "::") return {kLevelPostfix, s};
      return {};
    }
    if (token.kind != TokenKind::kWord) return {};
    if (is("or")) return {kLevelOr, "or"};
    if (is("and")) return {kLevelAnd, "and"};
    if (is("is") || is("isnull") || is("notnull")) return {kLevelIs, "is"};
    const bool negated = is("not");
    const size_t at = negated ? 1 : 0;
    for (const char* word : {"in", "between", "like", "ilike", "glob"}) {
      if (is(word, at)) return {kLevelIn, word, negated, negated ? 2 : 1};
    }
    if (is("similar", at)) return {kLevelIn, "similar", negated, negated ? 2 : 1};
    if (is("at") && is("time", 1) && is("zone", 2)) return {kLevelAt, "timezone", false, 3};
    return {};
  }

  Result<ExprPtr> parse_operators(int min_level) {
    MILLSTREAM_ASSIGN(ExprPtr left, parse_prefix());
    bool left_is_comparison = false;
    const Expr* open_chain = nullptr;  // the AND or OR that a further one extends
    while (true) {
      const Infix op = infix();
      if (op.level == 0 || op.level < min_level) break;
      const size_t offset = peek().offset;
      if (op.level == kLevelComparison && left_is_comparison) {
        return source_.error(offset, "comparisons do not chain; write a < b AND b < c");
      }
      for (int i = 0; i < op.tokens; ++i) next();
      left_is_comparison = op.level == kLevelComparison;
      switch (op.level) {
        case kLevelOr:
        case kLevelAnd: {
          MILLSTREAM_ASSIGN(auto right, parse_expr(op.level + 1));
          const ExprKind kind = op.level == kLevelOr ? ExprKind::kOr : ExprKind::kAnd;
          if (open_chain == left.get() && left->kind == kind) {
            left->depth = std::max(left->depth, right->depth + 1);
            left->arguments.push_back(std::move(right));
          } else {
            MILLSTREAM_ASSIGN(left, node_of(kind, offset, op.name, std::move(left), std::move(right)));
          }
          open_chain = left.get();
          break;
        }
        case kLevelIs: {
          MILLSTREAM_ASSIGN(left, parse_is(std::move(left), offset));
          break;
        }
        case kLevelIn: {
          if (op.name == "in") {
            MILLSTREAM_ASSIGN(left, parse_in(std::move(left), offset));
          } else if (op.name == "between") {
            if (is("symmetric")) return not_yet(peek(), "BETWEEN SYMMETRIC");
            MILLSTREAM_ASSIGN(auto low, parse_expr(kLevelOther));
            MILLSTREAM_TRY(expect("and", "AND and the upper end of BETWEEN"));
            MILLSTREAM_ASSIGN(auto high, parse_expr(kLevelOther));
            MILLSTREAM_ASSIGN(left, node_of(ExprKind::kBetween, offset, "between", std::move(left),
                                            std::move(low), std::move(high)));
          } else if (op.name == "similar") {
            MILLSTREAM_TRY(expect("to", "TO after SIMILAR"));
            MILLSTREAM_ASSIGN(auto pattern, parse_expr(kLevelOther));
            MILLSTREAM_ASSIGN(left, node_of(ExprKind::kCall, offset, "regexp_full_match", std::move(left),
                                            std::move(pattern)));
          } else {
            MILLSTREAM_ASSIGN(auto pattern, parse_expr(kLevelOther));
            MILLSTREAM_ASSIGN(
                left, node_of(ExprKind::kBinary, offset, op.name, std::move(left), std::move(pattern)));
            if (accept("escape")) {
              MILLSTREAM_ASSIGN(auto escape, parse_expr(kLevelOther));
              left->depth = std::max(left->depth, escape->depth + 1);
              left->arguments.push_back(std::move(escape));
            }
          }
          left->negated = op.negated;
          break;
        }
        case kLevelPostfix: {
          MILLSTREAM_ASSIGN(auto type, parse_type());
          const size_t begin = left->offset;
          MILLSTREAM_ASSIGN(left, node_of(ExprKind::kCast, begin, "", std::move(left)));
          left->type = std::move(type);
          break;
        }
        case kLevelAt: {  // x AT TIME ZONE z is timezone(z, x)
          MILLSTREAM_ASSIGN(auto zone, parse_expr(op.level + 1));
          MILLSTREAM_ASSIGN(left,
                            node_of(ExprKind::kCall, offset, op.name, std::move(zone), std::move(left)));
          break;
        }
        default: {
          MILLSTREAM_ASSIGN(auto right, parse_expr(op.level + 1));
          if (op.name == "~") {
            MILLSTREAM_ASSIGN(
                left, node_of(ExprKind::kCall, offset, "regexp_matches", std::move(left), std::move(right)));
          } else {
            MILLSTREAM_ASSIGN(left,
                              node_of(ExprKind::kBinary, offset, op.name, std::move(left), std::move(right)));
          }
          left->negated = op.negated;
        }
      }
    }
    if (is("[")) return not_yet(peek(), "taking an element of a list");
    for (const char* symbol : {"->", "!", "@"}) {
      if (is(symbol)) return not_yet(peek(), fmt::format("the operator {}", symbol));
    }
    if (peek().is_word("collate")) return not_yet(peek(), "COLLATE");
    return left;
  }

  Result<ExprPtr> parse_is(ExprPtr left, size_t offset) {
    const Token& word = tokens_[at_ - 1];
    if (!word.is_word("is")) {
      MILLSTREAM_ASSIGN(auto result, node_of(ExprKind::kIsNull, offset, "", std::move(left)));
      result->negated = word.is_word("notnull");
      return result;
    }
    const bool negated = accept("not");
    if (accept("null")) {
      MILLSTREAM_ASSIGN(auto result, node_of(ExprKind::kIsNull, offset, "", std::move(left)));
      result->negated = negated;
      return result;
    }
    if (is("true") || is("false") || is("unknown")) {
      const std::string value = to_lower(next().text);
      MILLSTREAM_ASSIGN(auto result, node_of(ExprKind::kIsTrue, offset, value, std::move(left)));
      result->negated = negated;
      return result;
    }
    if (accept("distinct")) {
      MILLSTREAM_TRY(expect("from", "FROM after IS DISTINCT"));
      MILLSTREAM_ASSIGN(auto right, parse_expr(kLevelComparison));
      return node_of(ExprKind::kBinary, offset, negated ? "is_not_distinct_from" : "is_distinct_from",
                     std::move(left), std::move(right));
    }
    return unexpected("NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM after IS");
  }

  Result<ExprPtr> parse_in(ExprPtr left, size_t offset) {
    MILLSTREAM_TRY(expect("(", "'(' and a list after IN"));
    std::vector<ExprPtr> arguments;
    arguments.push_back(std::move(left));
    if (is_query()) return parse_subquery(ExprKind::kInQuery, offset, std::move(arguments));
    do {
      if (is(")") && arguments.size() > 1) break;
      MILLSTREAM_ASSIGN(auto value, parse_expr());
      arguments.push_back(std::move(value));
    } while (accept(","));
    MILLSTREAM_TRY(expect(")", "',' or ')' in the list of IN"));
    return node(ExprKind::kIn, offset, "", std::move(arguments));
  }

  bool begins_query(size_t ahead = 0) const {
    return is("select", ahead) || is("from", ahead) || is("with", ahead) || is("describe", ahead);
  }

  // Behind a parenthesis: does a query stand in it? ((SELECT 1) + 1) begins like one and is none, ((SELECT 1) UNION …)
  // is one.
  bool is_query() const {
    if (begins_query()) return true;
    size_t ahead = 0;
    while (ahead < kMaxDepth / 4 && is("(", ahead)) ++ahead;
    if (ahead == 0 || !begins_query(ahead)) return false;
    for (size_t open = ahead; open > 0 && peek(ahead).kind != TokenKind::kEnd; ++ahead) {
      if (is("(", ahead)) ++open;
      if (is(")", ahead)) --open;
    }
    return is("union", ahead) || is("order", ahead) || is("limit", ahead) || is("offset", ahead);
  }

  // A query and its closing parenthesis; the opening one was read.
  Result<ExprPtr> parse_subquery(ExprKind kind, size_t offset, std::vector<ExprPtr> arguments = {}) {
    const size_t begin = peek().offset;
    MILLSTREAM_ASSIGN(auto query, parse_query());
    const size_t end = tokens_[at_ - 1].end;
    MILLSTREAM_TRY(close_query());
    MILLSTREAM_ASSIGN(auto result,
                      node(kind, offset, source_.text().substr(begin, end - begin), std::move(arguments)));
    result->subquery = std::move(query);
    return result;
  }

  Result<ExprPtr> parse_prefix() {
    const Token& token = peek();
    if (token.is_word("not")) {
      next();
      MILLSTREAM_ASSIGN(auto operand, parse_expr(kLevelIs));
      return node_of(ExprKind::kUnary, token.offset, "not", std::move(operand));
    }
    if (token.is_symbol("-") || token.is_symbol("+")) {
      next();
      MILLSTREAM_ASSIGN(auto operand, parse_expr(kLevelSign));
      if (token.text == "-" && operand->kind == ExprKind::kNumber && operand->text[0] != '-') {
        operand->text = "-" + operand->text;
        operand->offset = token.offset;
        return operand;
      }
      return node_of(ExprKind::kUnary, token.offset, token.text, std::move(operand));
    }
    if (token.is_symbol("~") || token.is_symbol("@")) {
      next();
      MILLSTREAM_ASSIGN(auto operand, parse_expr(kLevelOther + 1));
      return node_of(ExprKind::kUnary, token.offset, token.text, std::move(operand));
    }
    return parse_primary();
  }

  Result<ExprPtr> parse_primary() {
    const Token& token = peek();
    switch (token.kind) {
      case TokenKind::kNumber:
        next();
        return node(ExprKind::kNumber, token.offset, token.text);
      case TokenKind::kString:
        next();
        return node(ExprKind::kString, token.offset, token.text);
      case TokenKind::kBlob:
        next();
        return node(ExprKind::kBlob, token.offset, token.text);
      case TokenKind::kQuoted:
        return parse_name();
      case TokenKind::kWord:
        return parse_word();
      case TokenKind::kSymbol:
        if (token.text == "(") return parse_parenthesis();
        if (token.text == "[" || token.text == "{") return not_yet(token, "a list or struct literal");
        if (token.text == "?" || token.text == "$")
          return not_yet(token, "a parameter of a prepared statement");
        if (token.text == "*") {
          return source_.error(token.offset,
                               "* stands alone in a SELECT list; it is no part of an expression");
        }
        return unexpected("an expression");
      case TokenKind::kEnd:
        break;
    }
    return unexpected("an expression");
  }

  Result<ExprPtr> parse_parenthesis() {
    const size_t offset = next().offset;
    if (is_query()) return parse_subquery(ExprKind::kSubquery, offset);
    MILLSTREAM_ASSIGN(auto inner, parse_expr());
    if (is(",")) return not_yet(peek(), "a row of several values");
    MILLSTREAM_TRY(expect(")", "')'"));
    return inner;
  }

  Result<ExprPtr> parse_word() {
    const Token& token = peek();
    if (token.is_word("true") || token.is_word("false")) {
      next();
      return node(ExprKind::kBoolean, token.offset, to_lower(token.text));
    }
    if (token.is_word("null")) {
      next();
      return node(ExprKind::kNull, token.offset, "");
    }
    if (token.is_word("case")) return parse_case();
    if ((token.is_word("cast") || token.is_word("try_cast")) && is("(", 1)) return parse_cast();
    if (token.is_word("extract") && is("(", 1)) return parse_extract();
    if (token.is_word("position") && is("(", 1)) return parse_position();
    if (token.is_word("trim") && is("(", 1)) return parse_trim();
    if (token.is_word("interval") && !is("(", 1) &&
        (peek(1).kind == TokenKind::kString || peek(1).kind == TokenKind::kNumber || is("-", 1))) {
      return parse_interval();
    }
    if (token.is_word("interval") && is("(", 1)) return parse_interval();
    if (token.is_word("exists") && is("(", 1)) {
      const size_t offset = next().offset;
      next();
      if (!begins_query() && !is("(")) return unexpected("a query after EXISTS (");
      return parse_subquery(ExprKind::kExists, offset);
    }
    if (token.is_word("array") && is("[", 1)) return not_yet(token, "a list literal");
    if (token.is_word("distinct")) return not_yet(token, "DISTINCT");
    if (is_reserved_word(token.text) && !is_callable_reserved()) return unexpected("an expression");
    // DATE '2024-01-01', TIMESTAMP '…': a cast of the string.
    if (peek(1).kind == TokenKind::kString && expr::parse_type(token.text).ok()) {
      MILLSTREAM_ASSIGN(auto type, parse_type());
      const Token& value = next();
      MILLSTREAM_ASSIGN(auto string, node(ExprKind::kString, value.offset, value.text));
      MILLSTREAM_ASSIGN(auto cast, node_of(ExprKind::kCast, token.offset, "", std::move(string)));
      cast->type = std::move(type);
      return cast;
    }
    return parse_name();
  }

  // left('abc', 2) and right(…) are functions in spite of the joins of those names.
  bool is_callable_reserved() const { return (is("left") || is("right")) && is("(", 1); }

  Result<ExprPtr> parse_name() {
    const Token& token = next();
    if (is("(")) return parse_call(token);
    MILLSTREAM_ASSIGN(auto column, node(ExprKind::kColumn, token.offset, ""));
    column->parts.push_back(token.text);
    while (is(".")) {
      next();
      if (is("*"))
        return source_.error(token.offset, "* stands alone in a SELECT list; it is no part of an expression");
      if (peek().kind != TokenKind::kWord && peek().kind != TokenKind::kQuoted)
        return unexpected("a column's name after '.'");
      column->parts.push_back(next().text);
    }
    return column;
  }

  Result<ExprPtr> parse_call(const Token& name) {
    next();
    const std::string function = to_lower(name.text);
    std::vector<ExprPtr> arguments;
    bool star = false;
    const bool distinct = accept("distinct");
    if (is("*") && is(")", 1)) {
      next();
      star = true;
    } else if (!is(")")) {
      do {
        if (is_query())
          return source_.error(peek().offset,
                               "a query inside an expression stands in parentheses of its own");
        if (peek().kind == TokenKind::kWord && (is(":=", 1) || is("=>", 1)))
          return not_yet(peek(), "an argument by name");
        MILLSTREAM_ASSIGN(auto argument, parse_expr());
        arguments.push_back(std::move(argument));
        MILLSTREAM_TRY(parse_keyword_arguments(function, arguments));
      } while (accept(","));
    }
    if (is("order")) return not_yet(peek(), "ORDER BY inside a function");
    if ((is("ignore") || is("respect")) && is("nulls", 1))
      return not_yet(peek(), upper(peek().text) + " NULLS");
    MILLSTREAM_TRY(expect(")", fmt::format("',' or ')' in the arguments of {}", function)));
    ExprPtr filter;
    if (is("filter") && is("(", 1)) {
      next();
      next();
      MILLSTREAM_TRY(expect("where", "WHERE in FILTER (WHERE …)"));
      MILLSTREAM_ASSIGN(filter, parse_expr());
      MILLSTREAM_TRY(expect(")", "')' after FILTER's condition"));
    }
    if (is("within")) return not_yet(peek(), "WITHIN GROUP");
    std::shared_ptr<ast::Window> over;
    if (is("over")) {
      over = std::make_shared<ast::Window>();
      over->offset = next().offset;
      if (is_name()) {
        over->base = next().text;
      } else {
        MILLSTREAM_TRY(parse_window(*over));
      }
    }
    MILLSTREAM_ASSIGN(auto call, node(ExprKind::kCall, name.offset, function, std::move(arguments)));
    if (star) call->unit = "*";
    call->distinct = distinct;
    call->over = std::move(over);
    if (filter != nullptr) call->depth = std::max(call->depth, filter->depth + 1);
    call->filter = std::move(filter);
    return call;
  }

  // ([name] [PARTITION BY …] [ORDER BY …] [frame])
  Status parse_window(ast::Window& window) {
    MILLSTREAM_TRY(expect("(", "a window's name or '(' after OVER"));
    const bool begins = (is("partition") && is("by", 1)) || is_frame_unit();
    if (!begins && is_name()) window.base = next().text;
    if (is("partition") && is("by", 1)) {
      next();
      next();
      do {
        MILLSTREAM_ASSIGN(auto key, parse_expr());
        window.partition_by.push_back(std::move(key));
      } while (accept(","));
    }
    if (accept("order")) {
      MILLSTREAM_TRY(expect("by", "BY after ORDER"));
      if (is("all")) return not_yet(peek(), "ORDER BY ALL in a window");
      do {
        ast::OrderItem item;
        MILLSTREAM_ASSIGN(item.expression, parse_expr());
        MILLSTREAM_TRY(parse_direction(item));
        window.order_by.push_back(std::move(item));
      } while (accept(","));
    }
    if (is_frame_unit()) MILLSTREAM_TRY(parse_frame(window));
    return expect(")", "PARTITION BY, ORDER BY, a frame or ')' in the window");
  }

  bool is_frame_unit() const {
    if (!is("rows") && !is("range") && !is("groups")) return false;
    return is("between", 1) || is("unbounded", 1) || is("current", 1) || peek(1).kind == TokenKind::kNumber ||
           is("-", 1) || is("interval", 1);
  }

  Status parse_frame(ast::Window& window) {
    expr::WindowFrame frame;
    if (is("rows")) frame.unit = expr::FrameUnit::kRows;
    if (is("groups")) frame.unit = expr::FrameUnit::kGroups;
    next();
    const size_t offset = peek().offset;
    const bool between = accept("between");
    MILLSTREAM_TRY(parse_frame_end(frame.unit, frame.begin));
    if (between) {
      MILLSTREAM_TRY(expect("and", "AND and the end of the frame"));
      MILLSTREAM_TRY(parse_frame_end(frame.unit, frame.end));
    }
    using Edge = expr::FrameEdge;
    if (frame.begin.edge == Edge::kUnboundedFollowing)
      return source_.error(offset, "a frame does not begin with UNBOUNDED FOLLOWING");
    if (frame.end.edge == Edge::kUnboundedPreceding)
      return source_.error(offset, "a frame does not end with UNBOUNDED PRECEDING");
    if ((frame.begin.edge == Edge::kCurrentRow && frame.end.edge == Edge::kPreceding) ||
        (frame.begin.edge == Edge::kFollowing && frame.end.edge <= Edge::kCurrentRow)) {
      return source_.error(offset, "this frame ends before it begins");
    }
    if (is("exclude")) return not_yet(peek(), "EXCLUDE in a frame");
    window.frame = frame;
    return Status::OK();
  }

  Status parse_frame_end(expr::FrameUnit unit, expr::FrameEnd& end) {
    const Token& token = peek();
    if (accept("unbounded")) {
      const bool preceding = is("preceding");
      if (!accept("preceding")) MILLSTREAM_TRY(expect("following", "PRECEDING or FOLLOWING after UNBOUNDED"));
      end.edge = preceding ? expr::FrameEdge::kUnboundedPreceding : expr::FrameEdge::kUnboundedFollowing;
      return Status::OK();
    }
    if (accept("current")) {
      end.edge = expr::FrameEdge::kCurrentRow;
      return expect("row", "ROW after CURRENT");
    }
    if (unit == expr::FrameUnit::kRange)
      return not_yet(token, "RANGE with a distance (ROWS and GROUPS take one)");
    if (token.kind != TokenKind::kNumber || !whole_number(token.text, &end.count))
      return unexpected("UNBOUNDED, CURRENT ROW or a whole number of rows that is not negative");
    next();
    const bool preceding = is("preceding");
    if (!accept("preceding")) MILLSTREAM_TRY(expect("following", "PRECEDING or FOLLOWING after the number"));
    end.edge = preceding ? expr::FrameEdge::kPreceding : expr::FrameEdge::kFollowing;
    return Status::OK();
  }

  // WINDOW name AS (…), … and QUALIFY.
  Status parse_windows(ast::Query& query) {
    if (accept("window")) {
      do {
        ast::NamedWindow named;
        if (!is_name()) return unexpected("the name of a window");
        named.offset = peek().offset;
        named.name = next().text;
        MILLSTREAM_TRY(expect("as", "AS and a window in parentheses"));
        named.window.offset = peek().offset;
        MILLSTREAM_TRY(parse_window(named.window));
        query.windows.push_back(std::move(named));
      } while (accept(","));
    }
    if (accept("qualify")) {
      MILLSTREAM_ASSIGN(query.qualify, parse_expr());
    }
    return Status::OK();
  }

  Result<ExprPtr> parse_case() {
    const size_t offset = next().offset;
    std::vector<ExprPtr> arguments;
    bool has_operand = false;
    bool has_else = false;
    if (!is("when")) {
      MILLSTREAM_ASSIGN(auto operand, parse_expr());
      arguments.push_back(std::move(operand));
      has_operand = true;
    }
    if (!is("when")) return unexpected("WHEN");
    while (accept("when")) {
      MILLSTREAM_ASSIGN(auto when, parse_expr());
      MILLSTREAM_TRY(expect("then", "THEN"));
      MILLSTREAM_ASSIGN(auto then, parse_expr());
      arguments.push_back(std::move(when));
      arguments.push_back(std::move(then));
    }
    if (accept("else")) {
      MILLSTREAM_ASSIGN(auto otherwise, parse_expr());
      arguments.push_back(std::move(otherwise));
      has_else = true;
    }
    MILLSTREAM_TRY(expect("end", has_else ? "END" : "WHEN, ELSE or END"));
    MILLSTREAM_ASSIGN(auto result, node(ExprKind::kCase, offset, "", std::move(arguments)));
    result->has_operand = has_operand;
    result->has_else = has_else;
    return result;
  }

  Result<ExprPtr> parse_cast() {
    const Token& word = next();
    next();
    MILLSTREAM_ASSIGN(auto operand, parse_expr());
    MILLSTREAM_TRY(expect("as", "AS and a type"));
    MILLSTREAM_ASSIGN(auto type, parse_type());
    MILLSTREAM_TRY(expect(")", "')' after the type"));
    MILLSTREAM_ASSIGN(auto cast, node_of(ExprKind::kCast, word.offset, "", std::move(operand)));
    cast->type = std::move(type);
    cast->try_cast = word.is_word("try_cast");
    return cast;
  }

  // EXTRACT(part FROM x) is date_part('part', x).
  Result<ExprPtr> parse_extract() {
    const size_t offset = next().offset;
    next();
    const Token& part = peek();
    if (part.kind != TokenKind::kWord && part.kind != TokenKind::kString)
      return unexpected("a part such as hour or year");
    next();
    MILLSTREAM_ASSIGN(auto name, node(ExprKind::kString, part.offset, to_lower(part.text)));
    MILLSTREAM_TRY(expect("from", "FROM in EXTRACT(part FROM value)"));
    MILLSTREAM_ASSIGN(auto operand, parse_expr());
    MILLSTREAM_TRY(expect(")", "')' after EXTRACT's value"));
    return node_of(ExprKind::kCall, offset, "date_part", std::move(name), std::move(operand));
  }

  // substring(text FROM start FOR count), overlay(text PLACING other FROM start FOR count).
  Status parse_keyword_arguments(const std::string& function, std::vector<ExprPtr>& arguments) {
    const bool substring = function == "substring", overlay = function == "overlay";
    if (!(substring || overlay) || arguments.size() != 1) return Status::OK();
    const auto take = [&](const char* word) -> Status {
      if (!accept(word)) return Status::OK();
      MILLSTREAM_ASSIGN(auto argument, parse_expr());
      arguments.push_back(std::move(argument));
      return Status::OK();
    };
    if (overlay) MILLSTREAM_TRY(take("placing"));
    if (substring && is("for")) {
      MILLSTREAM_ASSIGN(auto first, node(ExprKind::kNumber, peek().offset, "1"));
      arguments.push_back(std::move(first));
    } else {
      MILLSTREAM_TRY(take("from"));
    }
    return take("for");
  }

  // position(part IN text) is position(text, part).
  Result<ExprPtr> parse_position() {
    const size_t offset = next().offset;
    next();
    MILLSTREAM_ASSIGN(auto part, parse_expr(kLevelOther));
    MILLSTREAM_TRY(expect("in", "IN in POSITION(part IN text)"));
    MILLSTREAM_ASSIGN(auto text, parse_expr());
    MILLSTREAM_TRY(expect(")", "')' after POSITION's text"));
    return node_of(ExprKind::kCall, offset, "position", std::move(text), std::move(part));
  }

  // trim(BOTH 'x' FROM text); LEADING and TRAILING are ltrim and rtrim.
  Result<ExprPtr> parse_trim() {
    const Token& name = peek();
    const char* function = is("leading", 2) ? "ltrim" : is("trailing", 2) ? "rtrim" : "trim";
    const bool side = is("both", 2) || is("leading", 2) || is("trailing", 2);
    if (!side && !is("from", 2)) {
      next();
      return parse_call(name);
    }
    for (int i = 0; i < (side ? 3 : 2); ++i) next();
    ExprPtr characters;
    if (!is("from")) {
      MILLSTREAM_ASSIGN(characters, parse_expr());
    }
    MILLSTREAM_TRY(expect("from", "FROM and the text to TRIM"));
    MILLSTREAM_ASSIGN(auto text, parse_expr());
    MILLSTREAM_TRY(expect(")", "')' after TRIM's text"));
    if (characters == nullptr) return node_of(ExprKind::kCall, name.offset, function, std::move(text));
    return node_of(ExprKind::kCall, name.offset, function, std::move(text), std::move(characters));
  }

  // INTERVAL '3' DAY, INTERVAL 3 DAY, INTERVAL (n) DAY, INTERVAL '3 days 4 hours'.
  Result<ExprPtr> parse_interval() {
    const size_t offset = next().offset;
    ExprPtr quantity;
    const bool string = peek().kind == TokenKind::kString;
    if (is("(")) {
      MILLSTREAM_ASSIGN(quantity, parse_parenthesis());
    } else {
      MILLSTREAM_ASSIGN(quantity, is("-") ? parse_prefix() : parse_primary());
    }
    static const std::vector<std::string> kUnits = {
        "year",        "month",       "day",     "hour",   "minute",  "second",    "week",
        "millisecond", "microsecond", "quarter", "decade", "century", "millennium"};
    std::string unit;
    if (peek().kind == TokenKind::kWord && !is_reserved_word(peek().text)) {
      std::string word = to_lower(peek().text);
      if (word == "centuries") word = "century";
      if (word == "millennia") word = "millennium";
      if (word.size() > 1 && word.back() == 's') word.pop_back();
      if (std::ranges::find(kUnits, word) != kUnits.end()) {
        unit = word;
        next();
      } else if (!string) {
        return source_.error(peek().offset, fmt::format("there is no interval unit '{}'{}", peek().text,
                                                        name_hint(word, kUnits, kUnits.size())));
      }
    }
    if (unit.empty() && !string) return unexpected("a unit such as DAY after INTERVAL's number");
    if (!unit.empty() && peek().is_word("to")) return not_yet(peek(), "an interval of two units");
    MILLSTREAM_ASSIGN(auto result, node_of(ExprKind::kInterval, offset, "", std::move(quantity)));
    result->unit = unit;
    return result;
  }

  Result<ast::TypeName> parse_type() {
    const Token& token = peek();
    if (token.kind != TokenKind::kWord && token.kind != TokenKind::kQuoted) return unexpected("a type");
    next();
    std::string word = to_lower(token.text);
    ast::TypeName result;
    if (const auto type = expr::parse_type(word); type.ok()) {
      result.type = *type;
    } else {
      for (const char* known :
           {"bignum", "varint", "json", "uuid", "bit", "enum", "struct", "map", "union", "list", "timetz"}) {
        if (word == known) return not_yet(token, fmt::format("the type {}", upper(word)));
      }
      return source_.place(type.status(), token.offset);
    }
    // Types that are words of the grammar are shown by their standard name, others as written.
    static const std::vector<std::pair<const char*, const char*>> kShown = {
        {"bigint", "BIGINT"},     {"boolean", "BOOLEAN"}, {"char", "VARCHAR"},
        {"character", "VARCHAR"}, {"dec", "DECIMAL"},     {"decimal", "DECIMAL"},
        {"numeric", "DECIMAL"},   {"float", "FLOAT"},     {"int", "INTEGER"},
        {"integer", "INTEGER"},   {"real", "FLOAT"},      {"interval", "INTERVAL"},
        {"smallint", "SMALLINT"}, {"time", "TIME"},       {"timestamp", "TIMESTAMP"},
        {"varchar", "VARCHAR"}};
    result.text = token.text;
    for (const auto& [name, shown] : kShown) {
      if (word == name) result.text = shown;
    }
    if (word == "double" && accept("precision")) result.text = "DOUBLE";
    if (is("(")) {
      MILLSTREAM_TRY(parse_type_modifiers(token, result));
    } else if ((word == "timestamp" || word == "time") && (is("with") || is("without"))) {
      const bool zoned = next().is_word("with");
      MILLSTREAM_TRY(expect("time", "TIME ZONE"));
      MILLSTREAM_TRY(expect("zone", "ZONE"));
      if (zoned && word == "time") return not_yet(token, "the type TIME WITH TIME ZONE");
      if (zoned) {
        result.type = expr::timestamp_with_zone_type();
        result.text = "TIMESTAMP WITH TIME ZONE";
      }
    }
    if (is("[")) return not_yet(peek(), "a list type");
    return result;
  }

  Status parse_type_modifiers(const Token& name, ast::TypeName& result) {
    next();
    std::vector<int> numbers;
    std::vector<size_t> offsets;
    do {
      if (peek().kind != TokenKind::kNumber || peek().text.size() > 9 ||
          peek().text.find_first_not_of("0123456789") != std::string::npos) {
        return unexpected("a whole number in a type's parentheses");
      }
      offsets.push_back(peek().offset);
      numbers.push_back(std::stoi(next().text));
    } while (accept(","));
    MILLSTREAM_TRY(expect(")", "',' or ')'"));
    if (expr::is_decimal_type(*result.type)) {
      const int precision = numbers[0];
      const int scale = numbers.size() > 1 ? numbers[1] : 0;
      if (numbers.size() > 2) return source_.error(offsets[2], "DECIMAL has a width and a scale, no more");
      if (precision < 1 || precision > 38)
        return source_.error(offsets[0], "the width of a DECIMAL lies between 1 and 38");
      if (scale > precision) return source_.error(offsets[1], "the scale of a DECIMAL is at most its width");
      result.type = expr::decimal_type(precision, scale);
      result.text = fmt::format("DECIMAL({}, {})", precision, scale);
      return Status::OK();
    }
    if (expr::is_string_type(*result.type) && numbers.size() == 1) {
      // As in DuckDB a length is allowed and means nothing.
      result.text += fmt::format("({})", numbers[0]);
      return Status::OK();
    }
    return source_.error(offsets[0], fmt::format("the type {} takes nothing in parentheses", name.text));
  }

  const SourceText& source_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t alias_at_ = SIZE_MAX;  // the last alias without AS, perhaps a misspelt keyword
  int nesting_ = 0;
  bool seen_where_ = false;
};

}  // namespace

Result<std::unique_ptr<ast::Query>> parse_query(const SourceText& source) {
  MILLSTREAM_ASSIGN(auto tokens, tokenize(source));
  return Parser(source, std::move(tokens)).query_text();
}

Result<ast::ExprPtr> parse_expression(const SourceText& source) {
  MILLSTREAM_ASSIGN(auto tokens, tokenize(source));
  return Parser(source, std::move(tokens)).expression_text();
}

}  // namespace millstream::sql
