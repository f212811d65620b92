// Defines dropout.
#include "backends/core/program/operators/operator_table.h"

namespace convgrad {

std::vector<OperatorSpec> DropoutOperators() {
  return {{.op = Operator::kDropout,
           .name = "dropout",
           .attributes = {{.name = "p",
                           .kind = AttributeKind::kFloat,
                           .default_text = "0.5",
                           .minimum = 0,
                           .maximum = 1},
                          Flag("training", "false"),
                          Flag("by_row", "false")},
           .is_random = true,
           .features = FeatureAxis::kAny}};
}

}  // namespace convgrad
