// An `OperatorSpec` describes one operator of programs: its name, operands and
// attributes, and the functions that check and measure a step. Each family of
// operators has a source file here with one OperatorSpec per operator.
// Validation, text, wire form, shapes and the tests' random programs follow
// these rows.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "backends/core/tensor_descriptor.h"

namespace convgrad {

struct ProgramStep;
struct StepView;
class StepDims;

// The names of the operators; an OperatorSpec describes each. Formulas:
// PyTorch's.
enum class Operator {
  kConv,
  kConvTranspose,
  kLinear,
  kBatchNorm,
  kGroupNorm,
  kMaxPool,
  kAvgPool,
  kAdaptiveAvgPool,
  kAdaptiveMaxPool,
  kMean,
  kSum,
  kAmax,
  kNorm,
  kVar,
  kRelu,
  kRelu6,
  kLeakyRelu,
  kElu,
  kSigmoid,
  kSilu,
  kTanh,
  kGelu,
  kMish,
  kSoftplus,
  kHardsigmoid,
  kHardswish,
  kHardtanh,
  kClamp,
  kNeg,
  kAbs,
  kExp,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kLog,
  kPow,
  kSin,
  kCos,
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPrelu,
  kEq,
  kLt,
  kLe,
  kGt,
  kGe,
  kWhere,
  kConcat,
  kFlatten,
  kReshape,
  kPermute,
  kSlice,
  kSelect,
  kExpand,
  kRead,
  kDetach,
  kPad,
  kIndexSelect,
  kUpsample,
  kNormalize,
  kDropout,
  kLayerNorm,
  kRmsNorm,
  kSoftmax,
  kLogSoftmax,
  kMatmul,
  kAttention,
  kCrossEntropy,
  kMse,
  kL1,
  kSmoothL1,
  kBinaryCrossEntropy,
};
inline constexpr Operator kLastOperator = Operator::kBinaryCrossEntropy;

enum class AttributeKind { kBool, kInt, kFloat, kWord, kInts, kFloats };

inline constexpr double kNoMinimum = -std::numeric_limits<double>::infinity();

// One attribute of an operator.
struct AttributeSpec {
  absl::string_view name = {};
  AttributeKind kind = AttributeKind::kBool;
  // The default in the text form. "": no default; the operator's functions
  // define the effect of a missing attribute.
  absl::string_view default_text = {};
  bool required = false;
  // Words that are valid in addition to values of its kind, separated by "|".
  // For kWord: the valid words.
  absl::string_view words = {};
  // The range of a number, or of each number of a list, both ends included.
  double minimum = kNoMinimum;
  double maximum = std::numeric_limits<double>::infinity();
  // Whether it may be infinite. NaN is never valid.
  bool may_be_infinite = false;
};

// The kinds of operands.
enum class OperandKind {
  // An activation: an input or the result of an earlier step.
  kValue,
  // An index input, I64.
  kIndex,
  // A parameter, F32, that may be trainable.
  kParameter,
  // A kParameter that backends round to the compute dtype, as they round
  // values.
  kWeight,
  // A parameter, F32, that is fixed.
  kConstant,
  // A fixed parameter or an index input, I64: indices along an axis.
  kIndices,
  // A kConstant to which a training step writes a new value.
  kStatistic,
  // A count of training steps, I64 []. A training step writes a new value.
  kCount,
};

// The range of operands for which an operator gives finite results. It accepts
// any numbers, but tests and the proof at the start use this range.
enum class OperandRange { kAny, kPositive, kWithinOne };

// One operand of an operator.
struct OperandSpec {
  absl::string_view name = {};
  OperandKind kind = OperandKind::kValue;
  bool optional = false;
  // Ranks that a parameter may have, both included.
  size_t least_rank = 1;
  size_t most_rank = 1;
  OperandRange range = OperandRange::kAny;
  // Only for a kWeight and a kIndex: whether a value of such a rank may replace
  // it.
  bool may_be_value = false;
  // Only for a kValue: whether its dtype has no effect on the result's.
  bool keeps_dtype = false;

  bool is_parameter() const {
    return kind != OperandKind::kValue && kind != OperandKind::kIndex;
  }
  // Returns whether a training step writes a new value of the operand.
  bool is_updated() const {
    return kind == OperandKind::kStatistic || kind == OperandKind::kCount;
  }
};

// Ranks of values.
inline constexpr size_t kMinValueRank = 2;
inline constexpr size_t kMaxValueRank = 6;

// The axis on which an operator has the features of its values.
enum class FeatureAxis {
  kSecond,  // (N, C, spatial...): images
  kLast,    // (N, ..., C): tokens
  kAny,     // element-wise operators
};

// One operator. Each function is pure.
struct OperatorSpec {
  Operator op = Operator::kRelu;
  absl::string_view name = {};  // in the text and on the wire: "conv"
  std::vector<OperandSpec> operands = {{.name = "x"}};
  std::vector<AttributeSpec> attributes = {};
  // True if the last operand may come any number of times (concat).
  bool variadic = false;
  // True if the result is an F32 scalar that no step may use.
  bool is_loss = false;
  // True if backends round its operands and its result to the compute dtype,
  // even where they keep other values in f32.
  bool is_product = false;
  // True if a training step draws random numbers.
  bool is_random = false;
  FeatureAxis features = FeatureAxis::kSecond;
  // True if the derivative jumps somewhere.
  bool has_kink = false;
  // False if no gradient passes to its operands.
  bool has_gradient = true;
  // Returns the axis on which a step has the features of its values. Null:
  // `features`.
  FeatureAxis (*features_of)(const StepDims& step) = nullptr;

  // Returns the result's dims. Null: the first operand's.
  // Errors: kInvalidArgument; the field begins with ".".
  absl::StatusOr<Dims> (*infer)(const StepDims& step) = nullptr;
  // Returns an upper bound of the pairs of an output and an input in its window
  // along the spatial axis `axis`. Null for operators without windows.
  int64_t (*taps)(const StepDims& step, size_t axis) = nullptr;
  // Returns the multiply-adds of the forward. Null: 0 of a view, all pairs of
  // taps, or the elements of the result or the first operand, the larger one.
  int64_t (*macs)(const StepDims& step) = nullptr;
  // Returns where the elements of the result are in the operand. Null: the
  // operator computes them.
  StepView (*view)(const StepDims& step) = nullptr;
  // Checks the rules that tie attributes to each other. Each attribute is valid
  // by itself. Null: there are no such rules.
  absl::Status (*check_attributes)(const ProgramStep& step,
                                   const std::string& path) = nullptr;
  // Checks the rules that tie operands to each other and to attributes. Null:
  // there are no such rules.
  absl::Status (*check_operands)(const ProgramStep& step,
                                 const std::string& path) = nullptr;

  // Returns the largest rank that its values may have.
  size_t max_rank() const {
    return features == FeatureAxis::kSecond ? 5 : kMaxValueRank;
  }
};

}  // namespace convgrad
