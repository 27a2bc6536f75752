#include "comm/rebalance.h"
