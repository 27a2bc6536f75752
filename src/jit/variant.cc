#include "jit/variant.h"

#include <set>

namespace millstream::jit {
namespace {

/// What an operation makes of NULLs is more than NULL where an argument, from this one on, is.
size_t first_looked_at(const Node& node) {
  switch (node.op) {
    case Op::kAnd:
    case Op::kOr:
    case Op::kFilterAnd:
    case Op::kIsNull:
    case Op::kIsNotNull:
    case Op::kCase:
    case Op::kCoalesce:
    case Op::kPick:
    case Op::kDistinct:
    case Op::kNotDistinct:
      return 0;
    case Op::kIn:
      return 1;
    case Op::kColumn:
    case Op::kParameter:
    case Op::kNull:
    case Op::kBody:
    case Op::kNot:
      break;
  }
  return node.arguments.size();
}

class Maker {
 public:
  Maker(const LoweredLoop& lowered, NullForm form) : lowered_(lowered), loop_(lowered.loop) {
    if (form == NullForm::kNone) {
      for (LoopInput& input : loop_.inputs) input.nullable = false;
    }
    loop_.infer_nullable();
    shorten_coalesce();
    find_used();
    sources_.resize(loop_.nodes.size());
    const bool floats = !loop_.outputs.empty() && loop_.outputs[0].destination == Destination::kFloat32;
    if (form == NullForm::kByWords && !floats) take_nulls_out();
  }

  Variant make() {
    Variant made;
    std::vector<LoopOutput> outputs;
    std::set<int> kept;
    for (size_t o = 0; o < loop_.outputs.size(); ++o) {
      const LoopOutput& output = loop_.outputs[o];
      const Node& node = at(output.node);
      if (output.destination == Destination::kColumn && node.op == Op::kColumn) {
        made.handed.push_back({lowered_.outputs[o], lowered_.inputs[static_cast<size_t>(node.index)]});
        continue;
      }
      outputs.push_back(output);
      made.outputs.push_back(lowered_.outputs[o]);
      keep(output.node, kept);
    }
    std::vector<int> node_place(loop_.nodes.size(), -1), input_place(loop_.inputs.size(), -1);
    made.loop.parameters = loop_.parameters;
    made.loop.parameter_offsets = loop_.parameter_offsets;
    for (int index : kept) {  // ascending: arguments first
      Node node = at(index);
      for (int& argument : node.arguments) argument = node_place[static_cast<size_t>(argument)];
      if (node.op == Op::kColumn) {
        int& place = input_place[static_cast<size_t>(node.index)];
        if (place < 0) {
          place = static_cast<int>(made.inputs.size());
          made.inputs.push_back(lowered_.inputs[static_cast<size_t>(node.index)]);
          made.loop.inputs.push_back(loop_.inputs[static_cast<size_t>(node.index)]);
        }
        node.index = place;
      }
      made.may_fail_under_nulls |= node.checked && any_taken_out_;
      node_place[static_cast<size_t>(index)] = static_cast<int>(made.loop.nodes.size());
      made.loop.nodes.push_back(std::move(node));
    }
    for (LoopOutput output : outputs) {
      auto& nulls = made.null_inputs.emplace_back();
      for (int input : sources_[static_cast<size_t>(output.node)])
        nulls.push_back(input_place[static_cast<size_t>(input)]);
      output.node = node_place[static_cast<size_t>(output.node)];
      made.loop.outputs.push_back(output);
    }
    made.loop.infer_nullable();
    return made;
  }

 private:
  Node& at(int index) { return loop_.nodes[static_cast<size_t>(index)]; }

  /// Nothing behind an argument that is never NULL is asked for; one alone is that argument.
  void shorten_coalesce() {
    std::vector<int> same(loop_.nodes.size());
    for (size_t i = 0; i < loop_.nodes.size(); ++i) {
      Node& node = loop_.nodes[i];
      for (int& argument : node.arguments) argument = same[static_cast<size_t>(argument)];
      same[i] = static_cast<int>(i);
      if (node.op != Op::kCoalesce) continue;
      size_t wanted = 0;
      while (wanted < node.arguments.size() && at(node.arguments[wanted]).nullable) ++wanted;
      if (wanted < node.arguments.size()) node.arguments.resize(wanted + 1);
      if (node.arguments.size() == 1) same[i] = node.arguments[0];
    }
    for (LoopOutput& output : loop_.outputs) output.node = same[static_cast<size_t>(output.node)];
  }

  void keep(int index, std::set<int>& kept) {
    if (!kept.insert(index).second) return;
    for (int argument : at(index).arguments) keep(argument, kept);
  }
  void find_used() {
    for (const LoopOutput& output : loop_.outputs) keep(output.node, used_);
  }

  /// The inputs whose NULLs get to this node are looked at.
  void look_beneath(int index) {
    const Node& node = at(index);
    if (!node.nullable || !looked_beneath_.insert(index).second) return;
    if (node.op == Op::kColumn) by_rows_.insert(node.index);
    for (int argument : node.arguments) look_beneath(argument);
  }

  void take_nulls_out() {
    // A filter's rows are where all parts of its AND are true: there it does not matter why one is not.
    std::set<int> of_filter, of_others;
    for (const LoopOutput& output : loop_.outputs)
      (output.destination == Destination::kFilter ? of_filter : of_others).insert(output.node);
    for (auto index = used_.rbegin(); index != used_.rend(); ++index) {  // users first
      const Node& node = at(*index);
      const bool joins = (node.op == Op::kAnd || node.op == Op::kFilterAnd) && of_filter.count(*index) &&
                         !of_others.count(*index);
      if (!joins) of_filter.erase(*index);
      (joins ? of_filter : of_others).insert(node.arguments.begin(), node.arguments.end());
    }
    for (int index : used_) {
      const Node& node = at(index);
      if (of_filter.count(index)) continue;
      for (size_t a = first_looked_at(node); a < node.arguments.size(); ++a) look_beneath(node.arguments[a]);
    }
    for (int index : used_) {
      const Node& node = at(index);
      if (!node.nullable) continue;
      std::set<int>& sources = sources_[static_cast<size_t>(index)];
      if (node.op == Op::kColumn && !by_rows_.count(node.index)) sources.insert(node.index);
      for (int argument : node.arguments) {
        const auto& more = sources_[static_cast<size_t>(argument)];
        sources.insert(more.begin(), more.end());
      }
      any_taken_out_ |= !sources.empty();
    }
    for (size_t i = 0; i < loop_.inputs.size(); ++i) {
      if (!by_rows_.count(static_cast<int>(i))) loop_.inputs[i].nullable = false;
    }
    loop_.infer_nullable();
  }

  const LoweredLoop& lowered_;
  Loop loop_;
  std::set<int> used_;            ///< nodes that outputs need
  std::set<int> looked_beneath_;  ///< nodes whose NULLs matter
  std::set<int> by_rows_;         ///< inputs whose NULLs the loop sees
  std::vector<std::set<int>>
      sources_;  ///< of nodes: inputs whose NULLs, which the loop does not see, are its NULLs
  bool any_taken_out_ = false;
};

}  // namespace

Variant make_variant(const LoweredLoop& lowered, NullForm form) {
  return Maker(lowered, form).make();
}

}  // namespace millstream::jit
