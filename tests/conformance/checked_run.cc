#include "tests/conformance/checked_run.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "gtest/gtest.h"

namespace convgrad::testing_support {
namespace {

// Returns `values` in the descriptor's layout; pad lanes are NaN.
GuardedBuffer PackOperand(const TensorDescriptor& descriptor,
                          const std::vector<double>& values) {
  GuardedBuffer buffer(*ByteSize(descriptor));
  const int64_t width = ByteSizeOf(descriptor.dtype);
  const std::vector<int64_t> offsets = LogicalOffsets(descriptor);
  for (size_t i = 0; i < offsets.size(); ++i) {
    StoreRounded(descriptor.dtype, values[i],
                 buffer.data() + offsets[i] * width);
  }
  return buffer;
}

using PackedOperands = std::array<std::optional<GuardedBuffer>, kOperandCount>;

PackedOperands PackAll(const ConvOperation& operation,
                       const ExactOperands& operands) {
  PackedOperands packed;
  for (Operand which : kAllOperands) {
    if (!operation.operand(which)) continue;
    const auto i = static_cast<size_t>(which);
    packed[i].emplace(PackOperand(*operation.operand(which), operands[i]));
  }
  return packed;
}

// Returns the number of threads of plans: CONVGRAD_TEST_THREADS, otherwise 1.
int TestThreads() {
  const char* text = std::getenv("CONVGRAD_TEST_THREADS");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

// Expects that CheckSupport and MakePlan agree.
absl::StatusOr<std::unique_ptr<Plan>> MakePlan(const Backend& backend,
                                               const ConvOperation& operation) {
  const absl::Status support = backend.CheckSupport(operation);
  auto plan = backend.MakePlan(operation, {.threads = TestThreads()});
  if (support.ok()) {
    EXPECT_FALSE(absl::IsUnimplemented(plan.status()))
        << ToString(operation) << ": claimed by CheckSupport, but "
        << plan.status();
    return plan;
  }
  EXPECT_EQ(support.code(), absl::StatusCode::kUnimplemented)
      << ToString(operation) << ": " << support;
  EXPECT_FALSE(support.message().empty()) << ToString(operation);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kUnimplemented)
      << ToString(operation) << ": refused by CheckSupport but not by MakePlan";
  return support;
}

// Runs with memory for the prepared weight, then with the prepared weight of
// the first run. Neither changes a bit of the results in `buffers`.
absl::Status RunPrepared(const Plan& plan, RunBuffers buffers,
                         const std::vector<GuardedBuffer>& results,
                         const std::string& text) {
  if (plan.prepared_weight_bytes() == 0) return absl::OkStatus();
  std::vector<std::vector<std::byte>> bytes;
  for (const GuardedBuffer& result : results) bytes.push_back(result.Bytes());
  GuardedBuffer weight(plan.prepared_weight_bytes());
  buffers.prepared_weight = absl::MakeSpan(weight.data(), weight.size());
  for (const bool is_prepared : {false, true}) {
    buffers.weight_is_prepared = is_prepared;
    RETURN_IF_ERROR(plan.Run(buffers).status());
    EXPECT_TRUE(weight.GuardsIntact())
        << text << ": wrote beyond its prepared weight";
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].Bytes(), bytes[i])
          << text << ": a prepared weight changes results";
    }
    // A later run needs nothing of the weight except its prepared form.
    buffers.operands[static_cast<size_t>(Operand::kWeight)] = nullptr;
    std::fill(buffers.scratch.begin(), buffers.scratch.end(), std::byte{0xff});
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<GuardedBuffer>> RunChecked(
    const Backend& backend, const ConvOperation& operation,
    const ExactOperands& operands) {
  RETURN_IF_ERROR(Validate(operation));
  ASSIGN_OR_RETURN(const auto plan, MakePlan(backend, operation));
  const PackedOperands packed = PackAll(operation, operands);
  std::array<std::vector<std::byte>, kOperandCount> before;
  RunBuffers buffers(kOperandCount);
  for (size_t i = 0; i < packed.size(); ++i) {
    if (!packed[i]) continue;
    before[i] = packed[i]->Bytes();
    buffers.operands[i] = packed[i]->data();
  }
  std::vector<GuardedBuffer> results;
  for (const ResultRequest& request : operation.results) {
    results.emplace_back(*ByteSize(request.descriptor));
    buffers.results.push_back(results.back().data());
  }
  GuardedBuffer scratch(plan->scratch_bytes());
  buffers.scratch = absl::MakeSpan(scratch.data(), scratch.size());
  RETURN_IF_ERROR(plan->Run(buffers).status());

  const std::string text = ToString(operation);
  RETURN_IF_ERROR(RunPrepared(*plan, buffers, results, text));
  EXPECT_TRUE(scratch.GuardsIntact()) << text << ": wrote beyond its scratch";
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_TRUE(results[i].GuardsIntact())
        << text << ": wrote beyond " << NameOf(operation.results[i].which);
  }
  for (size_t i = 0; i < packed.size(); ++i) {
    if (!packed[i]) continue;
    EXPECT_TRUE(packed[i]->GuardsIntact() && packed[i]->Bytes() == before[i])
        << text << ": wrote to the operand " << NameOf(kAllOperands[i]);
  }
  return results;
}

}  // namespace convgrad::testing_support
