#pragma once
// What differs between the versions of libtorch that we build with (2.11 to 2.15): the one place for it.

#include <memory>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/reducer.hpp>

namespace millstream::train {

namespace detail {
template <class Reducer>
std::unique_ptr<Reducer> make_reducer(std::vector<at::Tensor> parameters,
                                      std::vector<std::vector<size_t>> buckets,
                                      c10::intrusive_ptr<c10d::ProcessGroup> group, int64_t bucket_bytes,
                                      int64_t first_bucket_bytes,
                                      std::unordered_map<size_t, std::string> names) {
  using Indices = std::vector<std::vector<size_t>>;
  using Names = std::unordered_map<size_t, std::string>;
  using Group = c10::intrusive_ptr<c10d::ProcessGroup>;
  std::vector<bool> sparse(parameters.size(), false);
  // The constructor has grown: a list of bucket sizes came after 2.11. Which one there is, is asked of the
  // type.
  if constexpr (std::is_constructible_v<Reducer, std::vector<at::Tensor>, Indices, Group, std::vector<bool>,
                                        int64_t, bool, bool, Names, int64_t, bool, bool,
                                        std::vector<int64_t>>) {
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), std::move(group),
                                     std::move(sparse), bucket_bytes, false, true, std::move(names),
                                     first_bucket_bytes, false, false, std::vector<int64_t>{});
  } else {
    return std::make_unique<Reducer>(std::move(parameters), std::move(buckets), std::move(group),
                                     std::move(sparse), bucket_bytes, false, true, std::move(names),
                                     first_bucket_bytes, false, false);
  }
}
}  // namespace detail

/// A Reducer of dense gradients that live in its buckets, without a search for unused parameters.
inline std::unique_ptr<c10d::Reducer> make_reducer(std::vector<at::Tensor> parameters,
                                                   std::vector<std::vector<size_t>> buckets,
                                                   c10::intrusive_ptr<c10d::ProcessGroup> group,
                                                   int64_t bucket_bytes, int64_t first_bucket_bytes,
                                                   std::unordered_map<size_t, std::string> names) {
  return detail::make_reducer<c10d::Reducer>(std::move(parameters), std::move(buckets), std::move(group),
                                             bucket_bytes, first_bucket_bytes, std::move(names));
}

}  // namespace millstream::train
