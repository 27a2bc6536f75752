#pragma once
// A greatest matching of ranks to devices, grown one rank at a time (Kuhn's augmenting paths).

#include <vector>

namespace millstream::comm {

class Matching {
 public:
  /// sees[i]: the devices (0 .. num_devices-1) that i can have, in order of preference.
  Matching(const std::vector<std::vector<int>>& sees, int num_devices)
      : sees_(sees), owner_(num_devices, -1), visited_(num_devices, 0) {}

  /// Gives i a device, moving others to different ones where needed; false where that can't be.
  bool add(int i) {
    ++round_;
    if (!augment(i)) return false;
    ++size_;
    return true;
  }
  int size() const { return size_; }
  /// The device of i, -1: none.
  int of(int i) const {
    for (size_t d = 0; d < owner_.size(); ++d) {
      if (owner_[d] == i) return static_cast<int>(d);
    }
    return -1;
  }

 private:
  bool augment(int i) {
    for (int d : sees_[i]) {
      if (owner_[d] < 0) {
        owner_[d] = i;
        return true;
      }
    }
    for (int d : sees_[i]) {
      if (visited_[d] == round_) continue;
      visited_[d] = round_;
      if (augment(owner_[d])) {
        owner_[d] = i;
        return true;
      }
    }
    return false;
  }

  const std::vector<std::vector<int>>& sees_;
  std::vector<int> owner_;
  std::vector<int> visited_;
  int round_ = 0;
  int size_ = 0;
};

}  // namespace millstream::comm
