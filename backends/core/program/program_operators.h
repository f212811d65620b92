// The operators that a program's steps may have: names, operands, attributes
// and defaults, those of PyTorch. One table says all of it, and validation,
// text and wire form follow it.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace convgrad {

// Closed list. Formulas: proto/networks.md, "Operators", and PyTorch's.
enum class Operator {
  kConv,             // x, weight, bias?
  kConvTranspose,    // x, weight, bias?
  kLinear,           // x (N, C), weight (O, C), bias?
  kBatchNorm,        // x, weight?, bias?, running_mean?, running_var?,
                     // num_batches_tracked?
  kMaxPool,          // x
  kAvgPool,          // x
  kAdaptiveAvgPool,  // x
  kRelu,             // x; NaN goes through
  kRelu6,            // x
  kLeakyRelu,        // x
  kSigmoid,          // x
  kSilu,             // x
  kAdd,              // a, b: same shape, or b broadcast (N or 1, C or 1, 1...)
  kMul,              // a, b: likewise
  kConcat,           // two or more, along the channels
  kFlatten,          // x: (N, C, spatial...) to (N, C * spatial)
  kUpsample,         // x
  kNormalize,        // x (floating, U8, U16): (x - mean[c]) / std[c]
  kDropout,          // x
  kCrossEntropy,     // logits (N, C, ...), target (N, ...) I64, weight? (C)
  kMse,              // x, target of the same shape
};

enum class AttributeKind { kBool, kInt, kFloat, kWord, kInts, kFloats };

// One attribute of an operator.
struct AttributeSpec {
  absl::string_view name;
  AttributeKind kind;
  // As in the text form; "": none, and what the operator says holds instead.
  absl::string_view default_text;
  bool required = false;
  // The words that it may be instead of, or as, its kind, separated by "|".
  absl::string_view words = {};
  // Of numbers, each of a list: the range, both ends included.
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
};

// One operand of an operator.
struct OperandSpec {
  absl::string_view name;
  bool optional = false;
  // Whether it is a parameter ("weight" of conv) or a value: an input or the
  // result of an earlier step.
  bool is_parameter = false;
};

struct OperatorSpec {
  Operator op;
  absl::string_view name;  // in the text and on the wire: "conv"
  std::vector<OperandSpec> operands;
  std::vector<AttributeSpec> attributes;
  // Whether the last operand may come any number of times (concat).
  bool variadic = false;
};

// Returns the table's row. Lives as long as the process.
const OperatorSpec& SpecOf(Operator op);
absl::string_view NameOf(Operator op);
// Returns nullopt for an unknown name.
std::optional<Operator> ParseOperator(absl::string_view name);
// Returns whether `name` is a planned operator that isn't built ("gelu",
// "hardswish", ...).
bool IsLaterOperator(absl::string_view name);

}  // namespace convgrad
