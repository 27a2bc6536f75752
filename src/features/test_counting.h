#pragma once
// For tests: what loader/count_values.h does over ranks, on one.

#include "features/fit.h"

namespace millstream::features {

inline Result<CountedValues> counted(ValueCounter& counter, int64_t min_count, int64_t max_size) {
  counter.finish();
  PartMerge merge(counter.order(), &counter.spill(), counter.memory());
  CountedValues values;
  for (int part = 0; part < kCountParts; ++part) {
    std::string records, combined;
    MILLSTREAM_TRY(counter.part(part, &records));
    int64_t distinct = 0;
    MILLSTREAM_TRY(combine_part({records}, counter.order(), min_count, max_size, &combined, &distinct));
    values.distinct += distinct;
    MILLSTREAM_TRY(merge.add(std::move(combined)));
  }
  MILLSTREAM_ASSIGN(values.values, merge.merged(max_size));
  return values;
}

inline std::vector<std::string> texts_of(const CountedValues& counted) {
  std::vector<std::string> texts;
  for (int64_t i = 0; i < counted.values->size(); ++i) texts.emplace_back((*counted.values)[i]);
  return texts;
}

}  // namespace millstream::features
