// The selection, where the layer looks for it (plan/selection.h).
#pragma once

#include "lrmoe/plan/selection.h"

namespace lrmoe::moe {

using plan::CellSelection;
using plan::select_in_cell;
using plan::select_pairs;

}  // namespace lrmoe::moe
