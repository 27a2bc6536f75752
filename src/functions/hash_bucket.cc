// hash_bucket(text, n): a number from 0 to n - 1 by the text's hash. Ours, not DuckDB's: its value is part of every
// bundle that uses it, so it never changes.

#include "base/hash.h"
#include "expr/kernel.h"

namespace millstream::functions {

using namespace expr;

namespace {

struct HashBucket {
  static Maybe<int64_t> body(std::string_view text, int64_t buckets) {
    if (buckets < 1) return {0, false};
    return {static_cast<int64_t>(hash64(text) % static_cast<uint64_t>(buckets)), true};
  }
};

}  // namespace

MILLSTREAM_FUNCTION(hash_bucket) {
  Function f;
  f.name = "hash_bucket";
  f.doc =
      "A number from 0 to n - 1 by the hash (XXH3) of the text's bytes; NULL where n is below 1. "
      "DuckDB has no such function.";
  f.examples = {{"hash_bucket('abc', 1)", "0"}};
  f.overloads = {overload<HashBucket, std::string_view, int64_t>()};
  return define(std::move(f));
}

}  // namespace millstream::functions
