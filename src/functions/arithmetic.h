#pragma once
// + - and * exist for numbers, dates and intervals. The latter are defined beside the other functions of
// time.

#include <vector>

#include "expr/function.h"

namespace millstream::functions {

std::vector<expr::Binding> time_additions();
std::vector<expr::Binding> time_subtractions();
std::vector<expr::Binding> interval_products();
std::vector<expr::Binding> interval_quotients();
expr::Binding interval_negation();

}  // namespace millstream::functions
