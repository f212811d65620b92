// Defines operators whose results are views of an operand.
#include "backends/core/program/operators/views.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/checked_math.h"
#include "backends/core/field_errors.h"
#include "backends/core/program/operators/operator_table.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

std::vector<int64_t> Numbers(const StepDims& step, absl::string_view name) {
  return IntsAttribute(step.step(), name, 1);
}

// Returns the step's `shape`. One size may be -1; it follows from the others.
absl::StatusOr<Dims> Reshape(const StepDims& step) {
  const auto shape = Numbers(step, "shape");
  Dims dims(shape.begin(), shape.end());
  const auto count = CheckedProduct(step.At(0));
  int64_t known = 1;
  for (const int64_t extent : dims) {
    if (extent > 0) known = SaturatingMul(known, extent);
  }
  const auto open = std::find(dims.begin(), dims.end(), -1);
  const bool fits = std::count(dims.begin(), dims.end(), -1) <= 1 &&
                    std::count(dims.begin(), dims.end(), 0) == 0 && count &&
                    (open == dims.end() ? known == *count
                                        : *count % known == 0 && *count > 0);
  if (!fits || dims.size() < kMinValueRank || dims.size() > kMaxValueRank) {
    return BadShape(
        ".shape", dims,
        absl::StrCat("2 to 6 extents of as many elements as ",
                     ToString(step.At(0)), " has, one of them -1 at most"));
  }
  if (open != dims.end()) *open = *count / known;
  return dims;
}

// Returns (N, C * spatial) for (N, C, spatial...).
absl::StatusOr<Dims> Flatten(const StepDims& step) {
  const Dims& x = step.At(0);
  return Dims{x[0], *CheckedProduct(absl::MakeConstSpan(x).subspan(1))};
}

// Returns the permuted dims: axis i of the result is axis dims[i] of the
// operand.
absl::StatusOr<Dims> Permute(const StepDims& step) {
  const auto order = Numbers(step, "dims");
  std::vector<int64_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  bool fits = sorted.size() == step.At(0).size();
  for (size_t i = 0; fits && i < sorted.size(); ++i) {
    fits = sorted[i] == static_cast<int64_t>(i);
  }
  if (!fits) {
    return BadShape(
        ".dims", Dims(order.begin(), order.end()),
        absl::StrCat("each axis of ", ToString(step.At(0)), " once"));
  }
  Dims dims;
  for (const int64_t axis : order) dims.push_back(step.At(0)[axis]);
  return dims;
}

absl::StatusOr<Dims> Slice(const StepDims& step) {
  ASSIGN_OR_RETURN(const size_t axis, step.Axis("axis"));
  const int64_t start = IntAttribute(step.step(), "start");
  const int64_t end = IntAttribute(step.step(), "end");
  if (start >= end || end > step.At(0)[axis]) {
    return OutOfRange(".end", end,
                      absl::StrCat("more than start, ", start, ", and at most ",
                                   step.At(0)[axis]));
  }
  Dims dims = step.At(0);
  dims[axis] = (end - start - 1) / IntAttribute(step.step(), "step") + 1;
  return dims;
}

absl::StatusOr<Dims> Select(const StepDims& step) {
  ASSIGN_OR_RETURN(const size_t axis, step.Axis("axis"));
  const int64_t index = IntAttribute(step.step(), "index");
  if (index >= step.At(0)[axis]) {
    return OutOfRange(".index", index,
                      absl::StrCat("less than ", step.At(0)[axis]));
  }
  Dims dims = step.At(0);
  dims.erase(dims.begin() + static_cast<int64_t>(axis));
  if (dims.size() >= kMinValueRank) return dims;
  return BadShape(".x", step.At(0), "rank 3 at least");
}

// Returns the dims after axes of extent 1 were expanded: the first one to the
// number of items of `like`, the others to their extents in `shape`.
absl::StatusOr<Dims> Expand(const StepDims& step) {
  Dims dims = step.At(0);
  std::vector<int64_t> shape(dims.size(), -1);
  if (HasAttribute(step.step(), "shape")) shape = Numbers(step, "shape");
  if (shape.size() != dims.size()) {
    return BadShape(".shape", Dims(shape.begin(), shape.end()),
                    absl::StrCat("a number for each axis of ", ToString(dims)));
  }
  if (step.Has(1)) shape[0] = step.At(1)[0];
  for (size_t i = 0; i < dims.size(); ++i) {
    if (shape[i] == -1 || shape[i] == dims[i]) continue;
    if (dims[i] != 1 || shape[i] < 1) {
      return BadShape(
          i == 0 && step.Has(1) ? ".like" : ".shape",
          Dims(shape.begin(), shape.end()),
          absl::StrCat(ToString(dims), " or -1, or anything where that is 1"));
    }
    dims[i] = shape[i];
  }
  return dims;
}

// Returns the dims of a parameter that becomes a value.
absl::StatusOr<Dims> Read(const StepDims& step) {
  if (HasAttribute(step.step(), "shape")) return Reshape(step);
  if (step.At(0).size() >= kMinValueRank) return step.At(0);
  return BadShape(".x", step.At(0), "rank 2 at least, or a shape");
}

// Returns a view of all elements in the operand's order.
StepView WholeView(const StepDims& step) {
  return {0, RowMajorStrides(step.result())};
}

StepView PermuteView(const StepDims& step) {
  const Dims rows = RowMajorStrides(step.At(0));
  StepView view;
  for (const int64_t axis : Numbers(step, "dims")) {
    view.strides.push_back(rows[axis]);
  }
  return view;
}

StepView SliceView(const StepDims& step) {
  const size_t axis = *step.Axis("axis");
  StepView view = {0, RowMajorStrides(step.At(0))};
  view.offset = IntAttribute(step.step(), "start") * view.strides[axis];
  view.strides[axis] =
      SaturatingMul(view.strides[axis], IntAttribute(step.step(), "step"));
  return view;
}

StepView SelectView(const StepDims& step) {
  const size_t axis = *step.Axis("axis");
  StepView view = {0, RowMajorStrides(step.At(0))};
  view.offset = IntAttribute(step.step(), "index") * view.strides[axis];
  view.strides.erase(view.strides.begin() + static_cast<int64_t>(axis));
  return view;
}

StepView ExpandView(const StepDims& step) {
  StepView view = {0, RowMajorStrides(step.At(0))};
  for (size_t i = 0; i < view.strides.size(); ++i) {
    if (step.At(0)[i] == 1) view.strides[i] = 0;
  }
  return view;
}

OperatorSpec View(Operator op, absl::string_view name,
                  std::vector<AttributeSpec> attributes,
                  absl::StatusOr<Dims> (*infer)(const StepDims&),
                  StepView (*view)(const StepDims&)) {
  return {.op = op,
          .name = name,
          .attributes = std::move(attributes),
          .features = FeatureAxis::kLast,
          .infer = infer,
          .view = view};
}

}  // namespace

std::vector<OperatorSpec> ViewOperators() {
  const AttributeSpec axis = Required(Int("axis", ""));
  OperatorSpec expand = View(Operator::kExpand, "expand",
                             {Ints("shape", "", -1)}, &Expand, &ExpandView);
  expand.operands.push_back(
      {.name = "like", .optional = true, .keeps_dtype = true});
  OperatorSpec read =
      View(Operator::kRead, "read", {Ints("shape", "", -1)}, &Read, &WholeView);
  read.operands = {{.name = "x",
                    .kind = OperandKind::kWeight,
                    .least_rank = 0,
                    .most_rank = kMaxValueRank}};
  return {{.op = Operator::kFlatten,
           .name = "flatten",
           .features = FeatureAxis::kAny,
           .infer = &Flatten,
           .view = &WholeView},
          View(Operator::kReshape, "reshape", {Required(Ints("shape", "", -1))},
               &Reshape, &WholeView),
          View(Operator::kPermute, "permute", {Required(Ints("dims", "", 0))},
               &Permute, &PermuteView),
          View(Operator::kSlice, "slice",
               {axis, Int("start", "0", 0), Required(Int("end", "", 1)),
                Int("step", "1", 1)},
               &Slice, &SliceView),
          View(Operator::kSelect, "select",
               {axis, Required(Int("index", "", 0))}, &Select, &SelectView),
          expand,
          read,
          {.op = Operator::kDetach,
           .name = "detach",
           .features = FeatureAxis::kAny,
           .has_gradient = false,
           .view = &WholeView}};
}

}  // namespace convgrad
