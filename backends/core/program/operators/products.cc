// Defines matmul and attention.
#include "backends/core/program/operators/products.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

Dims LeadingOf(const Dims& dims) { return {dims.begin(), dims.end() - 2}; }

// Returns the dims of the product, with broadcast leading axes.
absl::StatusOr<Dims> Matmul(const StepDims& step) {
  const Dims& a = step.At(0);
  const Dims& b = step.At(1);
  const size_t rank = a.size();
  bool fits = b.size() == rank && b[rank - 2] == a[rank - 1];
  Dims dims = a;
  for (size_t i = 0; fits && i < rank - 2; ++i) {
    fits = a[i] == b[i] || a[i] == 1 || b[i] == 1;
    dims[i] = std::max(a[i], b[i]);
  }
  if (!fits) {
    return BadShape(
        ".y", b,
        absl::StrCat("(..., ", a[rank - 1], ", N), its other axes those of ",
                     ToString(a), " or 1"));
  }
  dims[rank - 1] = b[rank - 1];
  return dims;
}

int64_t MatmulMacs(const StepDims& step) {
  int64_t macs = step.At(0).back();
  for (const int64_t extent : step.result()) macs = SaturatingMul(macs, extent);
  return macs;
}

absl::StatusOr<Dims> Attention(const StepDims& step) {
  const Dims& query = step.At(0);
  const Dims& key = step.At(1);
  const Dims& value = step.At(2);
  const size_t rank = query.size();
  if (key.size() != rank || LeadingOf(key) != LeadingOf(query) ||
      key.back() != query.back()) {
    return BadShape(
        ".key", key,
        absl::StrCat(ToString(query), " with another number of keys at most"));
  }
  if (value.size() != rank || LeadingOf(value) != LeadingOf(key) ||
      value[rank - 2] != key[rank - 2]) {
    return BadShape(
        ".value", value,
        absl::StrCat(ToString(key), " with other features at most"));
  }
  Dims scores = query;
  scores.back() = key[rank - 2];
  if (step.Has(3)) RETURN_IF_ERROR(step.CheckBroadcast(3, scores));
  Dims dims = query;
  dims.back() = value.back();
  return dims;
}

int64_t AttentionMacs(const StepDims& step) {
  const Dims& key = step.At(1);
  int64_t macs = SaturatingAdd(key.back(), step.At(2).back());
  macs = SaturatingMul(macs, key[key.size() - 2]);
  for (size_t i = 0; i + 1 < key.size(); ++i) {
    macs = SaturatingMul(macs, step.At(0)[i]);
  }
  return macs;
}

}  // namespace

std::vector<OperatorSpec> ProductOperators() {
  return {{.op = Operator::kMatmul,
           .name = "matmul",
           .operands = {{.name = "x"}, {.name = "y"}},
           .is_product = true,
           .features = FeatureAxis::kLast,
           .infer = &Matmul,
           .macs = &MatmulMacs},
          {.op = Operator::kAttention,
           .name = "attention",
           .operands = {{.name = "query"},
                        {.name = "key"},
                        {.name = "value"},
                        {.name = "mask", .optional = true}},
           .attributes = {Flag("causal", "false"), Number("scale", "")},
           .is_product = true,
           .features = FeatureAxis::kLast,
           .infer = &Attention,
           .macs = &AttentionMacs}};
}

AttentionProblem AttentionOf(const ProgramStep& step,
                             const ProgramShapes& shapes) {
  const StepDims dims(step, shapes);
  const Dims& query = dims.At(0);
  const Dims& key = dims.At(1);
  AttentionProblem problem{.batch = 1,
                           .queries = query[query.size() - 2],
                           .keys = key[key.size() - 2],
                           .features = query.back(),
                           .out_features = dims.At(2).back(),
                           .scale = FloatAttribute(step, "scale"),
                           .causal = BoolAttribute(step, "causal")};
  for (size_t i = 0; i + 2 < query.size(); ++i) problem.batch *= query[i];
  if (!HasAttribute(step, "scale")) {
    problem.scale = 1 / std::sqrt(static_cast<double>(problem.features));
  }
  return problem;
}

}  // namespace convgrad
