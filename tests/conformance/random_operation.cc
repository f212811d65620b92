#include "tests/conformance/random_operation.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tests/conformance/random_problem.h"

namespace convgrad::testing_support {
namespace {

// `Draw` draws the parts of one operation, whose tensors share dtype and c0.
class Draw {
 public:
  Draw(ConvProblem problem, std::mt19937* random)
      : random_(*random),
        problem_(std::move(problem)),
        dtype_(OneOf({DataType::kF32, DataType::kBF16, DataType::kF16})),
        c0_(dtype_ == DataType::kF32 ? OneOf<int64_t>({8, 16}) : 16) {}

  ConvOperation Operation() {
    ConvOperation operation;
    operation.problem = problem_;
    if (Coin()) {
      operation.results = {Request(Result::kOutput)};
    } else {
      operation.direction = Direction::kBackward;
      AddGradients(&operation);
    }
    for (Operand which : kAllOperands) {
      if (IsNeeded(operation, which)) {
        operation.operand(which) = Describe(which);
      }
    }
    return operation;
  }

 private:
  bool Coin() { return random_() % 2 == 0; }

  template <typename Value>
  Value OneOf(std::initializer_list<Value> values) {
    return values.begin()[random_() % values.size()];
  }

  // A backward problem has no residual. It has a bias only if its gradient is
  // asked for, in the shape of that gradient.
  void AddGradients(ConvOperation* operation) {
    std::vector<Result> gradients(kAllResults.begin() + 1, kAllResults.end());
    for (size_t i = gradients.size(); i > 1; --i) {
      std::swap(gradients[i - 1], gradients[random_() % i]);
    }
    gradients.resize(1 + random_() % gradients.size());
    problem_.residual = false;
    const bool wants_bias =
        std::count(gradients.begin(), gradients.end(), Result::kGradBias) > 0;
    if (!wants_bias) problem_.bias.reset();
    if (wants_bias && !problem_.bias) {
      problem_.bias = PerChannelBiasDims(problem_);
    }
    operation->problem = problem_;
    for (Result which : gradients) {
      operation->results.push_back(Request(which));
    }
  }

  DataType Mixed() { return Coin() ? DataType::kF32 : dtype_; }

  ResultRequest Request(Result which) {
    // Scales are powers of two and others, all exact in f32.
    const float scale = OneOf({1.0f, 1.0f, 0.125f, -0.375f, 3.0f});
    return {which,
            Describe(DimsOf(problem_, which), Mixed(),
                     which == Result::kGradWeight, which == Result::kGradBias),
            scale};
  }

  TensorDescriptor Describe(Operand which) {
    const bool primary = which == Operand::kInput ||
                         which == Operand::kWeight ||
                         which == Operand::kGradOutput;
    return Describe(DimsOf(problem_, which), primary ? dtype_ : Mixed(),
                    which == Operand::kWeight, which == Operand::kBias);
  }

  TensorDescriptor Describe(const Dims& dims, DataType dtype, bool weight,
                            bool bias) {
    TensorDescriptor tensor;
    tensor.dtype = dtype;
    tensor.dims = dims;
    if (bias) return tensor;
    tensor.layout =
        weight ? OneOf({Layout::kOIX, Layout::kOXI, Layout::kXIO,
                        Layout::kFractalZ3D})
               : OneOf({Layout::kNCX, Layout::kNXC, Layout::kNDC1HWC0});
    if (!IsRowMajor(tensor.layout)) tensor.c0 = c0_;
    if (tensor.layout == Layout::kFractalZ3D) tensor.groups = problem_.groups;
    return tensor;
  }

  std::mt19937& random_;
  ConvProblem problem_;
  const DataType dtype_;
  const int64_t c0_;
};

}  // namespace

ConvOperation RandomOperation(int64_t max_macs, std::mt19937* random) {
  while (true) {
    ConvProblem problem = RandomProblem(random);
    if (MultiplyAdds(problem) > max_macs) continue;
    ConvOperation operation = Draw(std::move(problem), random).Operation();
    if (Validate(operation).ok()) return operation;
  }
}

}  // namespace convgrad::testing_support
