// Functions of each element by itself. NaN goes through all of them.
#include "backends/core/program/operators/operator_table.h"

namespace convgrad {

std::vector<OperatorSpec> ActivationOperators() {
  return OfAnyRank({{.op = Operator::kRelu, .name = "relu"},
                    {.op = Operator::kRelu6, .name = "relu6"},
                    {.op = Operator::kLeakyRelu,
                     .name = "leaky_relu",
                     .attributes = {{.name = "negative_slope",
                                     .kind = AttributeKind::kFloat,
                                     .default_text = "0.01"}}},
                    {.op = Operator::kSigmoid, .name = "sigmoid"},
                    {.op = Operator::kSilu, .name = "silu"},
                    {.op = Operator::kTanh, .name = "tanh"}});
}

}  // namespace convgrad
