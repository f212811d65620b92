// `AddRepeated` repeats an operand along any axes.
#pragma once

#include <string>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Appends a step that repeats the value to the dims and the form of `like`.
// Returns the result.
BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder);

// Appends a step that sums the gradient of the repeated value to the value's
// gradient.
void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder);

}  // namespace convgrad::onednn
