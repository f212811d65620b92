#include "backends/core/program/program_operators.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace convgrad {
namespace {

using Kind = AttributeKind;

AttributeSpec Flag(absl::string_view name, absl::string_view fallback) {
  return {name, Kind::kBool, fallback};
}

AttributeSpec Extents(absl::string_view name, absl::string_view fallback,
                      double minimum) {
  return {name, Kind::kInts, fallback, false, {}, minimum};
}

AttributeSpec RequiredExtents(absl::string_view name) {
  return {name, Kind::kInts, "", true, {}, 1};
}

AttributeSpec Reduction() {
  return {"reduction", Kind::kWord, "mean", false, "mean|sum"};
}

// What the mean divides by, where that isn't the count of its own elements.
AttributeSpec Denominator() { return {"denominator", Kind::kFloat, ""}; }

std::vector<OperandSpec> Weighted() {
  return {{"x"}, {"weight", false, true}, {"bias", true, true}};
}

OperatorSpec ConvSpec() {
  AttributeSpec padding = Extents("padding", "0", 0);
  padding.words = "same|valid";
  return {Operator::kConv,
          "conv",
          Weighted(),
          {Extents("stride", "1", 1),
           padding,
           Extents("dilation", "1", 1),
           {"groups", Kind::kInt, "1", false, {}, 1}}};
}

OperatorSpec ConvTransposeSpec() {
  return {Operator::kConvTranspose,
          "conv_transpose",
          Weighted(),
          {Extents("stride", "1", 1),
           Extents("padding", "0", 0),
           Extents("output_padding", "0", 0),
           Extents("dilation", "1", 1),
           {"groups", Kind::kInt, "1", false, {}, 1}}};
}

OperatorSpec BatchNormSpec() {
  return {Operator::kBatchNorm,
          "batch_norm",
          {{"x"},
           {"weight", true, true},
           {"bias", true, true},
           {"running_mean", true, true},
           {"running_var", true, true},
           {"num_batches_tracked", true, true}},
          {Flag("training", "false"),
           {"momentum", Kind::kFloat, "0.1", false, "none"},
           {"eps", Kind::kFloat, "1e-05", false, {}, 0}}};
}

OperatorSpec MaxPoolSpec() {
  return {Operator::kMaxPool,
          "max_pool",
          {{"x"}},
          {RequiredExtents("kernel_size"), Extents("stride", "", 1),
           Extents("padding", "0", 0), Extents("dilation", "1", 1),
           Flag("ceil_mode", "false")}};
}

OperatorSpec AvgPoolSpec() {
  return {Operator::kAvgPool,
          "avg_pool",
          {{"x"}},
          {RequiredExtents("kernel_size"),
           Extents("stride", "", 1),
           Extents("padding", "0", 0),
           Flag("ceil_mode", "false"),
           Flag("count_include_pad", "true"),
           {"divisor_override", Kind::kInt, "", false, {}, 1}}};
}

OperatorSpec UpsampleSpec() {
  return {Operator::kUpsample,
          "upsample",
          {{"x"}},
          {{"scale_factor", Kind::kFloats, "", false, {}, 0},
           Extents("size", "", 1),
           {"mode", Kind::kWord, "nearest", false, "nearest|bilinear"},
           Flag("align_corners", "false")}};
}

OperatorSpec CrossEntropySpec() {
  return {Operator::kCrossEntropy,
          "cross_entropy",
          {{"logits"}, {"target"}, {"weight", true, true}},
          {{"label_smoothing", Kind::kFloat, "0.0", false, {}, 0, 1},
           {"ignore_index", Kind::kInt, "-100"},
           Reduction(),
           Denominator()}};
}

OperatorSpec Pointwise(Operator op, absl::string_view name) {
  return {op, name, {{"x"}}, {}};
}

// By Operator.
std::vector<OperatorSpec> MakeTable() {
  return {
      ConvSpec(),
      ConvTransposeSpec(),
      {Operator::kLinear, "linear", Weighted(), {}},
      BatchNormSpec(),
      MaxPoolSpec(),
      AvgPoolSpec(),
      {Operator::kAdaptiveAvgPool,
       "adaptive_avg_pool",
       {{"x"}},
       {RequiredExtents("output_size")}},
      Pointwise(Operator::kRelu, "relu"),
      Pointwise(Operator::kRelu6, "relu6"),
      {Operator::kLeakyRelu,
       "leaky_relu",
       {{"x"}},
       {{"negative_slope", Kind::kFloat, "0.01"}}},
      Pointwise(Operator::kSigmoid, "sigmoid"),
      Pointwise(Operator::kSilu, "silu"),
      {Operator::kAdd, "add", {{"a"}, {"b"}}, {}},
      {Operator::kMul, "mul", {{"a"}, {"b"}}, {}},
      {Operator::kConcat, "concat", {{"first"}, {"next"}}, {}, true},
      Pointwise(Operator::kFlatten, "flatten"),
      UpsampleSpec(),
      {Operator::kNormalize,
       "normalize",
       {{"x"}},
       {{"mean", Kind::kFloats, "", true}, {"std", Kind::kFloats, "", true}}},
      {Operator::kDropout,
       "dropout",
       {{"x"}},
       {{"p", Kind::kFloat, "0.5", false, {}, 0, 1},
        Flag("training", "false"),
        Flag("by_row", "false")}},
      CrossEntropySpec(),
      {Operator::kMse,
       "mse",
       {{"x"}, {"target"}},
       {Reduction(), Denominator()}},
  };
}

const std::vector<OperatorSpec>& Table() {
  static const auto& table = *new std::vector<OperatorSpec>(MakeTable());
  return table;
}

// Refused as UNIMPLEMENTED, unlike names that mean nothing.
constexpr std::array<absl::string_view, 4> kLaterOperators = {
    "gelu", "hardsigmoid", "hardswish", "tanh"};

}  // namespace

const OperatorSpec& SpecOf(Operator op) {
  return Table()[static_cast<size_t>(op)];
}

absl::string_view NameOf(Operator op) { return SpecOf(op).name; }

std::optional<Operator> ParseOperator(absl::string_view name) {
  for (const OperatorSpec& spec : Table()) {
    if (spec.name == name) return spec.op;
  }
  return std::nullopt;
}

bool IsLaterOperator(absl::string_view name) {
  return std::find(kLaterOperators.begin(), kLaterOperators.end(), name) !=
         kLaterOperators.end();
}

}  // namespace convgrad
