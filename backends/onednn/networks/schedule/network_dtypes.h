// `DtypeOf` chooses the dtype in which a group of steps computes and writes its
// result.
#pragma once

#include "backends/core/data_type.h"
#include "backends/onednn/networks/schedule/network_builder.h"
#include "backends/onednn/networks/schedule/network_groups.h"

namespace convgrad::onednn {

// Returns kF32 if the network is in f32, if the group reads a parameter as a
// value, or if an operand of its first step was written in f32
// (OperandSpec::keeps_dtype lists exceptions): in a bf16 network, values keep
// f32 from parameters on, through sums, norms and views, to the next product
// (OperatorSpec::is_product). So do dtypes that PyTorch promotes under
// autocast. Otherwise, and for all products and groups with a convolution,
// returns the compute dtype. Requires: the groups before have begun their
// forward.
DataType DtypeOf(const GroupSteps& steps, const NetworkBuilder& builder);

}  // namespace convgrad::onednn
