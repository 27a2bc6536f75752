#pragma once
// A function's definition from its parts, for the files that define many.

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "expr/bounds.h"
#include "expr/function.h"

namespace millstream::functions {

/// A function that exists for certain types.
inline expr::Function overloaded_function(const char* name, std::vector<std::string> aliases, const char* doc,
                                          std::vector<expr::Example> examples,
                                          std::vector<expr::Binding> overloads) {
  expr::Function f;
  f.name = name;
  f.aliases = std::move(aliases);
  f.doc = doc;
  f.examples = std::move(examples);
  f.overloads = std::move(overloads);
  return f;
}

/// A function whose types, or whose kernel, `bind` finds from the arguments; `forms` say what it takes.
inline expr::Function bound_function(
    const char* name, const char* doc, std::vector<expr::Example> examples,
    Result<std::optional<expr::Binding>> (*bind)(const std::vector<expr::ExprPtr>&),
    std::vector<std::string> forms) {
  expr::Function f;
  f.name = name;
  f.doc = doc;
  f.examples = std::move(examples);
  f.bind = bind;
  f.forms = std::move(forms);
  return f;
}

/// The bound of counts, lengths and places.
inline expr::Bounds not_negative(const expr::Expression&, std::span<const expr::Bounds>) {
  expr::Bounds result;
  result.whole.low = expr::Limit<__int128>{0};
  return result;
}

}  // namespace millstream::functions
