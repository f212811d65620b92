// The adjoint check passes on right gradients of every kind and fails on wrong
// ones.
#include "backends/core/self_check.h"

#include "backends/reference/reference_backend.h"
#include "gtest/gtest.h"
#include "tests/conformance/operation_spec.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad::testing_support {
namespace {

// An operation with its buffers, run once.
class CheckedBackward {
 public:
  CheckedBackward(const std::string& problem, DataType dtype)
      : backend_(*MakeReferenceBackend()) {
    OperationSpec spec;
    spec.problem = *Parse(problem);
    spec.results = {Result::kGradInput, Result::kGradWeight};
    spec.dtype = spec.result_dtype = dtype;
    operation = MakeOperation(spec);
    for (Operand operand : kAllOperands) {
      if (!operation.operand(operand)) continue;
      const TensorDescriptor& tensor = *operation.operand(operand);
      const auto values = RealFill(ElementCount(tensor),
                                   static_cast<uint64_t>(operand) + 1, dtype);
      memory_.emplace_back(*ByteSize(tensor));
      for (size_t i = 0; i < values.size(); ++i) {
        StoreRounded(tensor.dtype, values[i],
                     memory_.back().data() + i * ByteSizeOf(tensor.dtype));
      }
      buffers.operands[static_cast<size_t>(operand)] = memory_.back().data();
    }
    for (const ResultRequest& request : operation.results) {
      memory_.emplace_back(*ByteSize(request.descriptor));
      buffers.results.push_back(memory_.back().data());
    }
    const auto plan = backend_->MakePlan(operation, {});
    EXPECT_TRUE((*plan)->Run(buffers).ok());
  }

  SelfCheckReport Check() {
    const auto check = SelfCheck::Make(*backend_, operation, {});
    EXPECT_TRUE(check.ok()) << check.status();
    GuardedBuffer scratch((*check)->scratch_bytes());
    RunBuffers with_scratch = buffers;
    with_scratch.scratch = absl::MakeSpan(scratch.data(), scratch.size());
    const auto report = (*check)->Run(with_scratch);
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(scratch.GuardsIntact());
    return *report;
  }

  ConvOperation operation;
  RunBuffers buffers;

 private:
  std::unique_ptr<Backend> backend_;
  std::vector<GuardedBuffer> memory_;
};

constexpr const char* kProblems[] = {
    "conv2d_n2_c3_o4_i5x6_k3x2_p1x1", "conv1d_n2_c4_o6_g2_i9_k3_s2_d2_p2",
    "convtranspose2d_n2_c4_o3_i4x4_k3x3_s2x2_op1x1", "linear_n5_c7_o3",
    "conv3d_n1_c2_o2_i3x3x3_k2x2x2"};

TEST(SelfCheckTest, PassesRightGradients) {
  for (const char* problem : kProblems) {
    for (DataType dtype : {DataType::kF32, DataType::kBF16, DataType::kF16}) {
      CheckedBackward backward(problem, dtype);
      const SelfCheckReport report = backward.Check();
      EXPECT_TRUE(report.passed) << problem << " " << NameOf(dtype);
      EXPECT_GT(report.bound, 0);
      EXPECT_NEAR(*report.grad_input, report.forward, report.bound);
    }
  }
}

TEST(SelfCheckTest, PassesMaskedGradients) {
  CheckedBackward backward("conv2d_n2_c3_o4_i5x6_k3x2_p1x1_relu",
                           DataType::kF32);
  EXPECT_TRUE(backward.Check().passed);
}

TEST(SelfCheckTest, FailsWrongGradients) {
  for (const char* problem : kProblems) {
    for (size_t result : {0, 1}) {
      CheckedBackward backward(problem, DataType::kF32);
      auto* values = static_cast<float*>(backward.buffers.results[result]);
      values[0] += 1;
      EXPECT_FALSE(backward.Check().passed) << problem << " result " << result;
    }
  }
}

TEST(SelfCheckTest, ScalesBack) {
  CheckedBackward backward(kProblems[0], DataType::kF32);
  for (ResultRequest& request : backward.operation.results) request.scale = 2;
  auto* values = static_cast<float*>(backward.buffers.results[0]);
  for (int i = 0; i < 2 * 3 * 5 * 6; ++i) values[i] *= 2;
  values = static_cast<float*>(backward.buffers.results[1]);
  for (int i = 0; i < 4 * 3 * 3 * 2; ++i) values[i] *= 2;
  EXPECT_TRUE(backward.Check().passed);
}

TEST(SelfCheckTest, RefusesWhatHasNothingToCheck) {
  OperationSpec spec;
  spec.problem = *Parse(kProblems[0]);
  spec.results = {Result::kGradInput};
  const auto backend = MakeReferenceBackend();
  const auto check = SelfCheck::Make(**backend, MakeOperation(spec), {});
  EXPECT_EQ(check.status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace convgrad::testing_support
