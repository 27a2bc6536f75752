// least and greatest; nullif, if and ifnull, which are short for CASE and COALESCE.

#include "expr/bound_rules.h"
#include "expr/selection.h"
#include "functions/ordering.h"

namespace millstream::functions {

using namespace expr;

namespace {

/// Does `candidate` replace `best`? The first among equals stays.
template <class T, bool kGreatest>
MILLSTREAM_BODY bool better(const T& candidate, const T& best) {
  return kGreatest ? less_value(best, candidate) : less_value(candidate, best);
}

template <bool kGreatest>
struct Better {
  template <class T>
  MILLSTREAM_BODY static bool body(const T& candidate, const T& best) {
    return better<T, kGreatest>(candidate, best);
  }
};

bool known(const Value& value, int64_t row) {
  return is_set(validity_of(*value.data), value.data->offset + (value.constant ? 0 : row));
}

/// Row by row, for types that are not in plain buffers: which argument has the value; -1: all are NULL.
template <class T, bool kGreatest>
Status pick_rows(KernelCall& call) {
  std::vector<Strided<T>> columns;
  std::vector<const Value*> values;
  for (const Value& argument : call.arguments) {
    if (argument.constant && has_nulls(*argument.data)) continue;
    columns.emplace_back(argument);
    values.push_back(&argument);
  }
  auto best_of = [&](int64_t row) {
    int best = -1;
    for (size_t a = 0; a < columns.size(); ++a) {
      if (!known(*values[a], row)) continue;
      auto b = static_cast<size_t>(best);
      if (best < 0 || better<T, kGreatest>(columns[a][row], columns[b][row])) best = static_cast<int>(a);
    }
    return best;
  };
  // A row can be looked up in a loop that ignores arguments: it counts along.
  int64_t row = 0;
  using R = Maybe<T>;
  return loop<R>(call, [&]() -> R {
    int best = best_of(row);
    R result{T{}, best >= 0};
    if (best >= 0) result.value = columns[static_cast<size_t>(best)][row];
    ++row;
    return result;
  });
}

/// Argument after argument over the whole column.
template <class T, bool kGreatest>
Status pick(KernelCall& call) {
  const int64_t rows = call.rows;
  MILLSTREAM_ASSIGN(call.out.buffers[1], allocate_values(rows * static_cast<int64_t>(sizeof(T))));
  T* out = reinterpret_cast<T*>(call.out.buffers[1]->mutable_data());
  MILLSTREAM_ASSIGN(auto validity, allocate_values(bitmap_bytes(rows)));
  uint8_t* valid = validity->mutable_data();
  bool first = true, all_valid = false;
  for (const Value& argument : call.arguments) {
    if (argument.constant && has_nulls(*argument.data)) continue;
    const bool nulls = has_nulls(*argument.data);
    auto fold = [&](auto column) {
      if (first) {
        for (int64_t i = 0; i < rows; ++i) out[i] = column[i];
        for (int64_t i = 0; nulls && i < rows; ++i) arrow::bit_util::SetBitTo(valid, i, known(argument, i));
      } else if (!nulls && all_valid) {
        for (int64_t i = 0; i < rows; ++i) {
          T candidate = column[i];
          out[i] = better<T, kGreatest>(candidate, out[i]) ? candidate : out[i];
        }
      } else {
        if (all_valid) arrow::bit_util::SetBitsTo(valid, 0, rows, true);
        for (int64_t i = 0; i < rows; ++i) {
          if (!known(argument, i)) continue;
          T candidate = column[i];
          if (!arrow::bit_util::GetBit(valid, i) || better<T, kGreatest>(candidate, out[i]))
            out[i] = candidate;
          arrow::bit_util::SetBit(valid, i);
        }
      }
    };
    if (argument.constant) {
      fold(Constant<T>(*argument.data));
    } else {
      fold(Column<T>(*argument.data));
    }
    all_valid = all_valid || !nulls;
    first = false;
  }
  if (first) {  // nothing but NULL
    std::memset(valid, 0, static_cast<size_t>(validity->size()));
    std::memset(out, 0, static_cast<size_t>(rows) * sizeof(T));
  }
  if (!all_valid) {
    call.out.buffers[0] = std::move(validity);
    call.out.null_count = arrow::kUnknownNullCount;
  }
  return Status::OK();
}

template <bool kGreatest>
Result<std::optional<Binding>> bind(const std::vector<ExprPtr>& arguments) {
  if (arguments.empty()) return std::nullopt;
  const char* name = kGreatest ? "greatest" : "least";
  TypePtr type = common_type(arguments);
  if (!type) return query_error("the arguments of {} have types without a common one; cast them", name);
  if (is_null_type(*type)) type = arrow::int32();
  Binding binding;
  binding.parameters.assign(arguments.size(), type);
  binding.result = type;
  binding.nulls = NullPolicy::kOwn;
  bool ordered = with_ordered_type(*type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, bool> || std::is_same_v<T, std::string_view>) {
      binding.kernel = pick_rows<T, kGreatest>;
    } else {
      binding.kernel = pick<T, kGreatest>;
    }
    fuse<Better<kGreatest>, T, T>(binding, Fusion::kPick);
  });
  if (!ordered) return query_error("values of type {} have no {}", sql_type_name(*type), name);
  return binding;
}

Result<ExprPtr> rewrite_nullif(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 2) return query_error("nullif takes two arguments");
  MILLSTREAM_ASSIGN(auto equal, make_call("=", arguments, position));
  auto null = make_literal(arrow::MakeNullScalar(arrow::null()), position);
  return make_case({equal, null}, arguments[0], position);
}

Result<ExprPtr> rewrite_if(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 3) return query_error("if takes three arguments: a condition and two values");
  return make_case({arguments[0], arguments[1]}, arguments[2], position);
}

Result<ExprPtr> rewrite_ifnull(const std::vector<ExprPtr>& arguments, QueryPosition position) {
  if (arguments.size() != 2) return query_error("ifnull takes two arguments");
  return make_coalesce(arguments, position);
}

}  // namespace

MILLSTREAM_FUNCTION(conditional) {
  Function least;
  least.name = "least";
  least.doc = "The smallest argument that is not NULL.";
  least.examples = {{"least(2, 1, NULL)", "1"}};
  least.bind = bind<false>;
  least.bound = least_bounds;
  least.forms = {"least(ANY...)"};

  Function greatest;
  greatest.name = "greatest";
  greatest.doc = "The greatest argument that is not NULL.";
  greatest.examples = {{"greatest(2, 1.5)", "2.0"}};
  greatest.bind = bind<true>;
  greatest.bound = greatest_bounds;
  greatest.forms = {"greatest(ANY...)"};

  Function nullif;
  nullif.name = "nullif";
  nullif.doc = "NULL where both are equal, else the first.";
  nullif.examples = {{"nullif(1, 1)", "NULL"}, {"nullif(1, 2)", "1"}};
  nullif.rewrite = rewrite_nullif;
  nullif.forms = {"nullif(ANY, ANY)"};

  Function choice;
  choice.name = "if";
  choice.doc = "The second argument where the first is true, else the third.";
  choice.examples = {{"if(true, 1, 2)", "1"}};
  choice.rewrite = rewrite_if;
  choice.forms = {"if(BOOLEAN, ANY, ANY)"};

  Function ifnull;
  ifnull.name = "ifnull";
  ifnull.doc = "The second argument where the first is NULL.";
  ifnull.examples = {{"ifnull(NULL, 2)", "2"}};
  ifnull.rewrite = rewrite_ifnull;
  ifnull.forms = {"ifnull(ANY, ANY)"};

  return define(std::move(least), std::move(greatest), std::move(nullif), std::move(choice),
                std::move(ifnull));
}

}  // namespace millstream::functions
