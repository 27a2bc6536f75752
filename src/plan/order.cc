// What order rows have without being sorted.

#include "plan/logical_plan.h"

namespace millstream::plan {

RowOrder order_of(const Node& node) {
  RowOrder order;
  switch (node.kind) {
    case NodeKind::kAggregate:
      for (int key = 0; key < node.num_keys; ++key) order.keys.push_back({key, false, false});
      order.is_total = true;
      return order;
    case NodeKind::kSort:
      order.keys = node.sort_keys;
      return order;
    case NodeKind::kFilter:
    case NodeKind::kLimit:
    case NodeKind::kAttach:
    case NodeKind::kWindow:
      return order_of(*node.input);
    case NodeKind::kProject: {
      // Keys that the projection keeps, up to the first that it does not.
      const RowOrder below = order_of(*node.input);
      for (SortKey key : below.keys) {
        int place = -1;
        for (size_t i = 0; i < node.expressions.size() && place < 0; ++i) {
          const expr::Expression& expression = *node.expressions[i];
          if (expression.kind == expr::Kind::kColumn && expression.column == key.column)
            place = static_cast<int>(i);
        }
        if (place < 0) return order;
        key.column = place;
        order.keys.push_back(key);
      }
      order.is_total = below.is_total;
      return order;
    }
    default:
      return order;
  }
}

bool is_ordered(const RowOrder& known, const std::vector<SortKey>& wanted, const arrow::Schema& schema) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (i == known.keys.size()) return known.is_total;
    const SortKey& key = known.keys[i];
    if (wanted[i].column != key.column || wanted[i].descending != key.descending) return false;
    if (wanted[i].nulls_first != key.nulls_first && schema.field(wanted[i].column)->nullable()) return false;
  }
  return true;
}

}  // namespace millstream::plan
