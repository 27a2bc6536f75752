#include "base/progress.h"

namespace millstream {

Progress& progress() {
  static Progress* progress = new Progress;
  return *progress;
}

}  // namespace millstream
