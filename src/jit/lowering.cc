#include "jit/lowering.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/check.h"
#include "expr/function.h"
#include "expr/kernel.h"
#include "expr/type.h"
#include "jit/body_table.h"

namespace millstream::jit {
namespace {

using expr::Expression;
using expr::ExprPtr;
using expr::Fusion;
using expr::Kind;

/// A loop of more operations is cut in two where it has several results: compilers take longer than linear.
constexpr size_t kLoopNodes = 96;
/// Beyond these a call is a kernel.
constexpr size_t kMostItems = 32;
constexpr size_t kMostArms = 64;
constexpr size_t kMostNodes = 1500;

constexpr int kBlocked = -1;

template <class T>
std::string bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

/// The same for the same values: columns by their places, since names need not be unique.
std::string structure(const Expression& e) {
  if (e.kind == Kind::kColumn) return fmt::format("#{}", e.column);
  if (e.kind == Kind::kLiteral) return e.to_sql() + ":" + e.type->ToString();
  std::string text =
      fmt::format("{}{}:{}{}(", static_cast<int>(e.kind), e.name, e.type->ToString(), e.try_cast);
  for (const ExprPtr& argument : e.arguments) text += structure(*argument) + ",";
  return text + ")";
}

class Lowering {
 public:
  explicit Lowering(Lowered& out) : out_(out) {}

  struct GraphNode {
    Node node;
    bool rough = false;     ///< itself or an argument can't become vector code
    std::string parameter;  ///< bytes of the parameter or the state
  };

  int lower(const ExprPtr& e, bool conditional, bool filter = false) {
    const auto type = machine_of(*e->type);
    if (!type) return kernel(e, conditional, fmt::format("values of type {}", expr::sql_type_name(*e->type)));
    if (graph_.size() > kMostNodes) return kernel(e, conditional, "the expression is too large");
    switch (e->kind) {
      case Kind::kLiteral:
        return literal(*e, *type);
      case Kind::kColumn: {
        GraphNode n;
        n.node.op = Op::kColumn;
        n.node.type = *type;
        n.node.index = input({e->column, -1, *type}, e->nullable);
        n.rough = *type == Machine::kText;
        return add(std::move(n), "");
      }
      case Kind::kCast:
      case Kind::kCall:
      case Kind::kIn:
        return call(e, conditional);
      case Kind::kAnd:
        return combine(e, filter ? Op::kFilterAnd : Op::kAnd, conditional);
      case Kind::kOr:
        return combine(e, Op::kOr, conditional);
      case Kind::kCase:
        return combine(e, Op::kCase, conditional);
      case Kind::kCoalesce:
        if (!e->arguments[0]->nullable) return lower(e->arguments[0], conditional);
        return combine(e, Op::kCoalesce, conditional);
    }
    return kernel(e, conditional, "unknown");
  }

  const GraphNode& at(int index) const { return graph_[static_cast<size_t>(index)]; }
  size_t size() const { return graph_.size(); }
  bool input_nullable(int index) const { return input_nullable_[static_cast<size_t>(index)]; }

  int kernel_index(const ExprPtr& e, std::string reason) {
    const auto [known, first] = kernels_.try_emplace(structure(*e), static_cast<int>(out_.kernels.size()));
    if (first) out_.kernels.push_back({e, std::move(reason)});
    return known->second;
  }

 private:
  /// `e` is evaluated by the interpreter, for all rows: where it could fail for rows that never ask for it, all that
  /// decides who asks must be a kernel as well.
  int kernel(const ExprPtr& e, bool conditional, std::string reason) {
    const auto type = machine_of(*e->type);
    if ((conditional && e->can_fail) || !type) {
      blocked_by_ = fmt::format("{}: {}", e->to_sql(), reason);
      return kBlocked;
    }
    GraphNode n;
    n.node.op = Op::kColumn;
    n.node.type = *type;
    n.node.index = input({-1, kernel_index(e, std::move(reason)), *type}, e->nullable);
    n.rough = *type == Machine::kText;
    return add(std::move(n), "");
  }

  int input(LoweredInput wanted, bool nullable) {
    for (size_t i = 0; i < out_.inputs.size(); ++i) {
      if (out_.inputs[i].column == wanted.column && out_.inputs[i].kernel == wanted.kernel)
        return static_cast<int>(i);
    }
    out_.inputs.push_back(wanted);
    input_nullable_.push_back(nullable);
    return static_cast<int>(out_.inputs.size()) - 1;
  }

  /// The node, or the one that is the same.
  int add(GraphNode n, const std::string& parameter) {
    n.parameter = parameter;
    for (int argument : n.node.arguments) n.rough |= at(argument).rough;
    std::string key =
        fmt::format("{}|{}|{}|{}|{}|{}|", static_cast<int>(n.node.op), static_cast<int>(n.node.type),
                    n.node.op == Op::kColumn ? n.node.index : 0, n.node.can_fail, n.node.body, parameter);
    for (int argument : n.node.arguments) key += fmt::format("{},", argument);
    const auto [known, first] = same_.try_emplace(std::move(key), static_cast<int>(graph_.size()));
    if (first) graph_.push_back(std::move(n));
    return known->second;
  }

  int literal(const Expression& e, Machine type) {
    GraphNode n;
    n.node.type = type;
    if (!e.literal->is_valid) {
      n.node.op = Op::kNull;
      return add(std::move(n), "");
    }
    n.node.op = Op::kParameter;
    std::string bytes(static_cast<size_t>(width_of(type)), '\0');
    if (type == Machine::kText) {
      const auto& text = static_cast<const arrow::BaseBinaryScalar&>(*e.literal);
      texts_.emplace_back(text.view());
      bytes = texts_.back();  // the pointer is made when the loop's parameters are
    } else {
      const auto array = arrow::MakeArrayFromScalar(*e.literal, 1).ValueOrDie();
      if (type == Machine::kBool) {
        bytes[0] = static_cast<const arrow::BooleanArray&>(*array).Value(0) ? 1 : 0;
      } else {
        std::memcpy(bytes.data(), array->data()->buffers[1]->data(), bytes.size());
      }
    }
    return add(std::move(n), bytes);
  }

  int call(const ExprPtr& e, bool conditional) {
    const expr::Binding& binding = *e->binding;
    const std::string what = e->kind == Kind::kCast ? "this cast" : fmt::format("'{}'", e->name);
    if (!binding.kernel) return lower(e->arguments[0], conditional);  // the same bytes under another type
    if (binding.fusion == Fusion::kNone) return kernel(e, conditional, what + " has no body over one row");
    GraphNode n;
    n.node.type = *machine_of(*e->type);
    n.node.can_fail = e->can_fail;
    std::string state;
    if (binding.body) {
      n.node.body = bitcode_name(binding.body);
      const uint8_t flags = body_flags(n.node.body);
      if (!(flags & kBodyUsable)) return kernel(e, conditional, what + " keeps something between rows");
      n.rough = !(flags & kBodyStraight);
      if (binding.state) binding.state(*e, state);
    }
    size_t first = binding.first_body_argument;
    size_t count = std::min<size_t>(binding.body_arguments, e->arguments.size() - first);
    switch (binding.fusion) {
      case Fusion::kBody:
        n.node.op = Op::kBody;
        n.node.checked = binding.can_fail;
        n.node.gives_null = binding.gives_null;
        break;
      case Fusion::kNot:
        n.node.op = Op::kNot;
        break;
      case Fusion::kIsNull:
        n.node.op = Op::kIsNull;
        break;
      case Fusion::kIsNotNull:
        n.node.op = Op::kIsNotNull;
        break;
      case Fusion::kIn:
        n.node.op = Op::kIn;
        if (count > kMostItems + 1)
          return kernel(e, conditional, fmt::format("a list of more than {} items", kMostItems));
        break;
      case Fusion::kPick:
        n.node.op = Op::kPick;
        if (count > kMostItems)
          return kernel(e, conditional, fmt::format("more than {} arguments", kMostItems));
        break;
      case Fusion::kDistinct:
        n.node.op = Op::kDistinct;
        break;
      case Fusion::kNotDistinct:
        n.node.op = Op::kNotDistinct;
        break;
      case Fusion::kNone:
        break;
    }
    for (size_t i = first; i < first + count; ++i) {
      const ExprPtr& argument = e->arguments[i];
      if (!machine_of(*argument->type))
        return kernel(e, conditional, fmt::format("values of type {}", expr::sql_type_name(*argument->type)));
      const int lowered = lower(argument, conditional);
      if (lowered == kBlocked) return kBlocked;
      n.node.arguments.push_back(lowered);
    }
    n.node.index = state.empty() ? -1 : 0;
    return add(std::move(n), state);
  }

  int combine(const ExprPtr& e, Op op, bool conditional) {
    if (op == Op::kCase && e->arguments.size() / 2 > kMostArms)
      return kernel(e, conditional, fmt::format("a CASE of more than {} arms", kMostArms));
    GraphNode n;
    n.node.op = op;
    n.node.type = *machine_of(*e->type);
    n.node.can_fail = e->can_fail;
    for (size_t i = 0; i < e->arguments.size(); ++i) {
      const int lowered = lower(e->arguments[i], conditional || i > 0);
      if (lowered == kBlocked)
        return kernel(e, conditional, "a part is a kernel that may fail: " + blocked_by_);
      n.node.arguments.push_back(lowered);
    }
    return add(std::move(n), "");
  }

  Lowered& out_;
  std::deque<GraphNode> graph_;
  std::map<std::string, int> same_;
  std::map<std::string, int> kernels_;
  std::vector<bool> input_nullable_;
  std::deque<std::string> texts_;
  std::string blocked_by_;
};

void collect(const Lowering& graph, int node, std::set<int>& out) {
  if (!out.insert(node).second) return;
  for (int argument : graph.at(node).node.arguments) collect(graph, argument, out);
}

/// The nodes of a loop out of the whole graph, numbered anew.
LoweredLoop make_loop(Lowering& graph, const std::set<int>& nodes,
                      const std::vector<std::pair<int, int>>& results, Destination destination,
                      Lowered& out) {
  LoweredLoop made;
  std::map<int, int> place;
  std::map<int, int> inputs;
  const auto parameter = [&](Machine type, const std::string& bytes, size_t alignment) {
    while (made.parameters.size() % alignment) made.parameters.push_back(0);
    const int index = static_cast<int>(made.loop.parameters.size());
    made.loop.parameters.push_back(type);
    made.loop.parameter_offsets.push_back(static_cast<int>(made.parameters.size()));
    made.parameters.insert(made.parameters.end(), bytes.begin(), bytes.end());
    return index;
  };
  for (int index : nodes) {  // ascending: arguments first
    const auto& from = graph.at(index);
    Node node = from.node;
    for (int& argument : node.arguments) argument = place.at(argument);
    if (node.op == Op::kColumn) {
      const auto [known, first] = inputs.try_emplace(node.index, static_cast<int>(made.inputs.size()));
      if (first) {
        made.inputs.push_back(node.index);
        made.loop.inputs.push_back({node.type, graph.input_nullable(node.index)});
      }
      node.index = known->second;
    } else if (node.op == Op::kParameter && node.type == Machine::kText) {
      out.texts.push_back(from.parameter);
      const std::string_view text = out.texts.back();
      node.index = parameter(node.type, bytes_of(text), 16);
    } else if (node.op == Op::kParameter) {
      node.index = parameter(node.type, from.parameter, static_cast<size_t>(width_of(node.type)));
    } else if (node.index >= 0) {
      node.index = parameter(Machine::k128, from.parameter, 16);
    }
    place[index] = static_cast<int>(made.loop.nodes.size());
    made.loop.nodes.push_back(std::move(node));
  }
  for (const auto& [expression, node] : results) {
    made.outputs.push_back(expression);
    made.loop.outputs.push_back({place.at(node), destination});
  }
  made.loop.infer_nullable();
  return made;
}

}  // namespace

std::optional<Machine> machine_of(const arrow::DataType& type) {
  using arrow::Type;
  switch (type.id()) {
    case Type::BOOL:
      return Machine::kBool;
    case Type::INT8:
      return Machine::kI8;
    case Type::INT16:
      return Machine::kI16;
    case Type::INT32:
    case Type::DATE32:
      return Machine::kI32;
    case Type::INT64:
    case Type::TIME64:
    case Type::TIMESTAMP:
      return Machine::kI64;
    case Type::UINT8:
      return Machine::kU8;
    case Type::UINT16:
      return Machine::kU16;
    case Type::UINT32:
      return Machine::kU32;
    case Type::UINT64:
      return Machine::kU64;
    case Type::FLOAT:
      return Machine::kF32;
    case Type::DOUBLE:
      return Machine::kF64;
    case Type::DECIMAL128:
    case Type::INTERVAL_MONTH_DAY_NANO:
      return Machine::k128;
    case Type::STRING:
    case Type::BINARY:
      return Machine::kText;
    default:
      return std::nullopt;
  }
}

Lowered lower(const std::vector<ExprPtr>& outputs, Destination destination) {
  Lowered out;
  out.whole_kernel.assign(outputs.size(), -1);
  Lowering graph(out);
  struct Group {
    std::set<int> nodes;
    std::vector<std::pair<int, int>> results;
  };
  std::vector<Group> groups;
  int open[2] = {-1, -1};  // the group that takes smooth, rough results
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ExprPtr& e = outputs[i];
    const bool columns = destination == Destination::kColumn;
    if (columns && (e->kind == Kind::kColumn || e->kind == Kind::kLiteral)) continue;
    int node = kBlocked;
    if (!columns || machine_of(*e->type) != Machine::kText)
      node = graph.lower(e, false, destination == Destination::kFilter);
    else
      out.whole_kernel[i] = graph.kernel_index(e, "the result is a text");
    if (node == kBlocked) {
      if (out.whole_kernel[i] < 0)
        out.whole_kernel[i] =
            graph.kernel_index(e, fmt::format("values of type {}", expr::sql_type_name(*e->type)));
      continue;
    }
    if (columns && graph.at(node).node.op == Op::kColumn) {
      const LoweredInput& input = out.inputs[static_cast<size_t>(graph.at(node).node.index)];
      out.whole_kernel[i] = input.kernel >= 0 ? input.kernel : graph.kernel_index(e, "");
      continue;
    }
    std::set<int> nodes;
    collect(graph, node, nodes);
    int& group = open[graph.at(node).rough ? 1 : 0];
    if (group >= 0) {
      std::set<int> together = groups[static_cast<size_t>(group)].nodes;
      together.insert(nodes.begin(), nodes.end());
      if (together.size() > kLoopNodes) {
        group = -1;
      } else {
        groups[static_cast<size_t>(group)].nodes = std::move(together);
      }
    }
    if (group < 0) {
      group = static_cast<int>(groups.size());
      groups.push_back({std::move(nodes), {}});
    }
    groups[static_cast<size_t>(group)].results.emplace_back(static_cast<int>(i), node);
  }
  for (const Group& group : groups)
    out.loops.push_back(make_loop(graph, group.nodes, group.results, destination, out));
  return out;
}

}  // namespace millstream::jit
