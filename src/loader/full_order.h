#pragma once
// The order of an epoch of shuffle = "full": a permutation of all rows that needs no memory. Which row stands at a
// place is computed from the place, so every rank can ask for its rows alone, and a resumed epoch begins anywhere.
//
// The rows 0 … N - 1 are written as pairs (left, right) of digits below a = ceil(sqrt N) and b = ceil(N / a). A round
// adds to one digit a number drawn for the other: every round, and so all of them, is one to one on the a·b pairs (a
// generalised Feistel network: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA 2002). The fewer
// than a pairs beyond N are walked: the permutation is applied again until the result is a row. The keys of the rounds
// are of Philox(seed, epoch).

#include <array>
#include <cstdint>

namespace millstream::loader {

class FullOrder {
 public:
  /// Of `rows` rows, 0 … 2^62.
  FullOrder(uint64_t seed, int64_t epoch, int64_t rows);
  int64_t rows() const { return rows_; }
  /// The rows at the places first … first + count - 1.
  void rows_at(int64_t first, int64_t count, int64_t* rows) const;

 private:
  static constexpr int kRounds = 8;
  static constexpr int kTogether = 64;
  // The permutation of the pairs, before walking.
  void permute(uint32_t* left, uint32_t* right, int count) const;

  int64_t rows_ = 0;
  uint32_t a_ = 1, b_ = 1;
  std::array<uint32_t, 2 * kRounds> keys_;
};

}  // namespace millstream::loader
