#include "jit/loop.h"

#include <algorithm>

#include <fmt/format.h>

namespace millstream::jit {

void Loop::infer_nullable() {
  for (Node& node : nodes) {
    const auto nullable = [&](int argument) { return nodes[static_cast<size_t>(argument)].nullable; };
    const bool any = std::any_of(node.arguments.begin(), node.arguments.end(), nullable);
    const bool all = std::all_of(node.arguments.begin(), node.arguments.end(), nullable);
    switch (node.op) {
      case Op::kColumn:
        node.nullable = inputs[static_cast<size_t>(node.index)].nullable;
        break;
      case Op::kParameter:
      case Op::kIsNull:
      case Op::kIsNotNull:
      case Op::kDistinct:
      case Op::kNotDistinct:
        node.nullable = false;
        break;
      case Op::kNull:
        node.nullable = true;
        break;
      case Op::kBody:
        node.nullable = any || node.gives_null;
        break;
      case Op::kNot:
      case Op::kAnd:
      case Op::kOr:
      case Op::kFilterAnd:
      case Op::kIn:
        node.nullable = any;
        break;
      case Op::kCoalesce:
      case Op::kPick:
        node.nullable = all;
        break;
      case Op::kCase:
        node.nullable = nullable(node.arguments.back());
        for (size_t i = 1; i < node.arguments.size(); i += 2) node.nullable |= nullable(node.arguments[i]);
        break;
    }
  }
}

std::string Loop::shape() const {
  std::string text;
  for (const LoopInput& input : inputs)
    text += fmt::format("i{}{};", static_cast<int>(input.type), input.nullable ? "?" : "");
  for (size_t i = 0; i < parameters.size(); ++i)
    text += fmt::format("p{}@{};", static_cast<int>(parameters[i]), parameter_offsets[i]);
  for (const Node& node : nodes) {
    text += fmt::format("{}:{}:{}{}{}:{}{}(", static_cast<int>(node.op), static_cast<int>(node.type),
                        node.can_fail ? "f" : "", node.checked ? "c" : "", node.gives_null ? "n" : "",
                        node.index, node.body);
    for (int argument : node.arguments) text += fmt::format("{},", argument);
    text += ");";
  }
  for (const LoopOutput& output : outputs)
    text += fmt::format("o{}>{};", output.node, static_cast<int>(output.destination));
  return text;
}

}  // namespace millstream::jit
