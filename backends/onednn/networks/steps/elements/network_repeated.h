// An operand that is repeated along any axes.
#pragma once

#include <string>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

// Appends what repeats the value to the dims and the form of `like`, and
// returns the result.
BufferId AddRepeated(const std::string& value, const NetworkTensor& like,
                     NetworkBuilder* builder);

// Appends what sums the gradient of the repeated value to the gradient of the
// value.
void AddSumsOfRepeated(const NetworkTensor& gradient, const std::string& value,
                       NetworkBuilder* builder);

}  // namespace convgrad::onednn
