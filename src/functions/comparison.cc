// = <> < <= > >= and IS [NOT] DISTINCT FROM, of any two values with a common type.

#include "expr/bound_rules.h"
#include "expr/selection.h"
#include "functions/ordering.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct Equal {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return equal_values(a, b);
  }
};
struct NotEqual {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return !equal_values(a, b);
  }
};
struct Less {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return less_value(a, b);
  }
};
struct LessEqual {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return !less_value(b, a);
  }
};
struct Greater {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return less_value(b, a);
  }
};
struct GreaterEqual {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& a, const T& b) {
    return !less_value(a, b);
  }
};

template <class Body>
Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments) {
  if (arguments.size() != 2) return std::nullopt;
  TypePtr type = common_type(arguments);
  if (!type) {
    return query_error("values of type {} and {} can't be compared; cast one of them",
                       sql_type_name(*arguments[0]->type), sql_type_name(*arguments[1]->type));
  }
  if (is_null_type(*type)) type = arrow::int32();
  Binding binding;
  binding.parameters = {type, type};
  binding.result = arrow::boolean();
  bool ordered = with_ordered_type(*type, [&]<class T>(std::type_identity<T>) {
#ifndef MILLSTREAM_BITCODE
    binding.kernel = run<Body, T, T>;
#endif
    fuse<Body, T, T>(binding);
  });
  if (!ordered) return query_error("values of type {} can't be compared", sql_type_name(*type));
  return binding;
}

/// Different, where NULL is a value like others: both known and not equal, or just one known.
template <class T, bool kNegated>
Status distinct(KernelCall& call) {
  MILLSTREAM_TRY((run<NotEqual, T, T>(call)));
  auto* out = reinterpret_cast<uint64_t*>(call.out.buffers[1]->mutable_data());
  // A constant's one bit of validity stands for all rows.
  auto known = [&](const Value& value, int64_t word) -> uint64_t {
    if (value.constant) return has_nulls(*value.data) ? 0 : ~uint64_t{0};
    return BitReader(validity_of(*value.data), value.data->offset, call.rows).word(word);
  };
  for (int64_t w = 0; w < (call.rows + 63) / 64; ++w) {
    uint64_t a = known(call.arguments[0], w), b = known(call.arguments[1], w);
    uint64_t different = (a & b & out[w]) | (a ^ b);
    out[w] = kNegated ? ~different : different;
  }
  return Status::OK();
}

template <bool kNegated>
Result<std::optional<Binding>> bind_distinct(const std::vector<ExprPtr>& arguments) {
  MILLSTREAM_ASSIGN(auto binding, bind<NotEqual>(arguments));
  if (!binding) return std::nullopt;
  with_ordered_type(*binding->parameters[0],
                    [&]<class T>(std::type_identity<T>) { binding->kernel = distinct<T, kNegated>; });
  binding->fusion = kNegated ? Fusion::kNotDistinct : Fusion::kDistinct;
  binding->nulls = NullPolicy::kOwn;
  binding->never_null = true;
  return binding;
}

using Bind = Result<std::optional<Binding>> (*)(const std::vector<ExprPtr>&);

Function comparison(const char* name, Bind bind, std::vector<std::string> aliases, const char* doc,
                    std::vector<Example> examples, const char* symbol = "") {
  Function f;
  f.name = name;
  f.aliases = std::move(aliases);
  f.doc = doc;
  f.examples = std::move(examples);
  f.notation = Notation::kInfix;
  f.symbol = symbol;
  f.bind = bind;
  f.bound = comparison_bounds;
  f.forms = {std::string(name) + "(ANY, ANY)"};
  return f;
}

}  // namespace

MILLSTREAM_FUNCTION(comparison) {
  return define(
      comparison("=", bind<Equal>, {"=="}, "Equal. NaN equals itself.",
                 {{"1 = 1.0", "true"}, {"1 = NULL", "NULL"}}),
      comparison("<>", bind<NotEqual>, {"!="}, "Not equal.", {{"1 <> 2", "true"}}),
      comparison("<", bind<Less>, {}, "Less. NaN is greater than everything else.", {{"1 < 2.5", "true"}}),
      comparison("<=", bind<LessEqual>, {}, "Less or equal.", {{"'a' <= 'B'", "false"}}),
      comparison(">", bind<Greater>, {}, "Greater.", {{"'nan'::DOUBLE > 1", "true"}}),
      comparison(">=", bind<GreaterEqual>, {}, "Greater or equal.", {{"2 >= 2", "true"}}),
      comparison("is_distinct_from", bind_distinct<false>, {},
                 "Not equal, where NULL is a value like others.", {{"1 IS DISTINCT FROM NULL", "true"}},
                 "IS DISTINCT FROM"),
      comparison("is_not_distinct_from", bind_distinct<true>, {}, "Equal, where NULL is a value like others.",
                 {{"NULL IS NOT DISTINCT FROM NULL", "true"}}, "IS NOT DISTINCT FROM"));
}

}  // namespace millstream::functions
