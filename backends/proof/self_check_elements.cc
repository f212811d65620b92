#include "backends/proof/self_check_elements.h"

#include <algorithm>
#include <cmath>

#include "backends/core/convolution/error_bound.h"
#include "backends/kernels/copies/element_convert.h"
#include "backends/kernels/copies/reorder.h"

namespace convgrad {
namespace {

// Contiguous elements of an output, and the bias's elements that are added to
// them: a single one, or the same number.
struct BiasRun {
  int64_t output = 0;
  int64_t bias = 0;
  int64_t bias_step = 0;
  int64_t count = 0;
};

// Calls visit(BiasRun) for each row of an output's last axis. `bias` is a shape
// that the contract allows for the problem.
template <typename Visit>
void ForEachBiasRun(const ConvProblem& problem, const Dims& bias, Visit visit) {
  const Dims dims = OutputDims(problem);
  const Dims shape = BroadcastBiasDims(problem, bias);
  const size_t last = dims.size() - 1;
  const Dims steps = BroadcastStrides(shape, dims);
  const int64_t count = ElementCount({DataType::kF32, Layout::kNCX, dims});
  Dims index(dims.size(), 0);
  BiasRun run{.bias_step = steps[last], .count = dims[last]};
  for (; run.output < count; run.output += run.count) {
    visit(run);
    for (size_t axis = last; axis-- > 0;) {
      run.bias += steps[axis];
      if (++index[axis] < dims[axis]) break;
      run.bias -= index[axis] * steps[axis];
      index[axis] = 0;
    }
  }
}

double RowSum(const float* row, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += row[i];
  return sum;
}

}  // namespace

double SumOfAbsolutes(const float* data, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::fabs(data[i]);
  return sum;
}

Products Dot(const CanonicalTensor& a, const CanonicalTensor& b) {
  Products products;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double product = static_cast<double>(a.data[i]) * b.data[i];
    products.sum += product;
    products.absolute += std::fabs(product);
  }
  return products;
}

TensorDescriptor CanonicalOf(const TensorDescriptor& tensor) {
  return {DataType::kF32,
          IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNCX,
          tensor.dims};
}

void LoadCanonical(const TensorDescriptor& tensor, const void* data,
                   const CanonicalTensor& to) {
  if (tensor.dims.size() < 2) {  // a bias, which has no layout
    return ConvertRun(tensor.dtype, data, DataType::kF32, to.data, to.count());
  }
  Reorder::Make(tensor, to.descriptor).Run(data, to.data);
}

double GradBiasError(const FoundResult& found, const CanonicalTensor& g,
                     absl::Span<double> sums) {
  const TensorDescriptor& bias = found.request->descriptor;
  const int64_t count = ElementCount(bias);
  double* sum = sums.data();
  double* absolute = sum + count;
  std::fill_n(sum, 2 * count, 0.0);
  ForEachBiasRun(found.operation->problem, bias.dims, [&](const BiasRun& run) {
    const float* row = g.data + run.output;
    if (run.bias_step == 0) {
      sum[run.bias] += RowSum(row, run.count);
      absolute[run.bias] += SumOfAbsolutes(row, run.count);
      return;
    }
    for (int64_t i = 0; i < run.count; ++i) {
      sum[run.bias + i] += row[i];
      absolute[run.bias + i] += std::fabs(row[i]);
    }
  });
  const ErrorBound bound(*found.operation, *found.request);
  const auto* bytes = static_cast<const char*>(found.data);
  double worst = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double value =
        LoadAsDouble(bias.dtype, bytes + i * ByteSizeOf(bias.dtype));
    worst = std::max(worst, bound.Share(value, sum[i], absolute[i]));
  }
  return worst;
}

double GradResidualError(const FoundResult& found, const CanonicalTensor& g,
                         const CanonicalTensor& space) {
  LoadCanonical(found.request->descriptor, found.data, space);
  const ErrorBound bound(*found.operation, *found.request);
  double worst = 0;
  for (int64_t i = 0; i < g.count(); ++i) {
    worst = std::max(worst, bound.Share(space.data[i], g.data[i], 0));
  }
  return worst;
}

void ExpectedOutput::AddBias(const ConvProblem& problem,
                             const CanonicalTensor& bias) const {
  ForEachBiasRun(problem, bias.descriptor.dims, [&](const BiasRun& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      const float value = bias.data[run.bias + i * run.bias_step];
      sum.data[run.output + i] += value;
      spread.data[run.output + i] += std::fabs(value);
    }
  });
}

void ExpectedOutput::AddResidual(const CanonicalTensor& residual) const {
  for (int64_t i = 0; i < residual.count(); ++i) {
    sum.data[i] += residual.data[i];
    spread.data[i] += std::fabs(residual.data[i]);
  }
}

double OutputError(const FoundResult& found, const ExpectedOutput& expected,
                   const CanonicalTensor& space) {
  LoadCanonical(found.request->descriptor, found.data, space);
  const ErrorBound bound(*found.operation, *found.request);
  const bool relu = found.operation->problem.relu;
  double worst = 0;
  for (int64_t i = 0; i < space.count(); ++i) {
    const float sum = expected.sum.data[i];
    const float value = space.data[i];
    if (!std::isfinite(sum) ||
        (!std::isfinite(value) && !expected.finite_operands)) {
      continue;
    }
    const double ref = relu && sum < 0 ? 0 : sum;
    worst =
        std::max(worst, bound.Share(value, ref, 2.0 * expected.spread.data[i]));
  }
  return worst;
}

}  // namespace convgrad
