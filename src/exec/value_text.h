#pragma once
// Values of arrays as people read them: 12, 1.5, text without quotes, 2024-01-31 10:00:00, [1, 2], {'a': 1}.

#include <string>

#include <arrow/api.h>

namespace millstream::exec {

/// Appends row `row` of `array`, NULL as the word.
void append_value_text(std::string& out, const arrow::Array& array, int64_t row);

}  // namespace millstream::exec
