#include "backends/proof/exact_run.h"

#include <cstring>

#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"
#include "backends/proof/proof_data.h"

namespace convgrad {
namespace {

NanBuffer Fill(const TensorDescriptor& tensor, uint64_t seed) {
  NanBuffer buffer(*ByteSize(tensor));
  const int64_t width = ByteSizeOf(tensor.dtype);
  uint64_t position = 0;
  for (int64_t offset : LogicalOffsets(tensor)) {
    StoreRounded(tensor.dtype, IntegerAt(seed, position++),
                 buffer.data() + offset * width);
  }
  return buffer;
}

std::vector<NanBuffer> ResultsOf(const ConvOperation& operation,
                                 RunBuffers* buffers) {
  std::vector<NanBuffer> results;
  buffers->results.clear();
  for (const ResultRequest& request : operation.results) {
    results.emplace_back(*ByteSize(request.descriptor));
    buffers->results.push_back(results.back().data());
  }
  return results;
}

template <typename Bits>
bool AreEqual(absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
  for (size_t i = 0; i < a.size(); i += sizeof(Bits)) {
    Bits x, y;
    std::memcpy(&x, &a[i], sizeof(Bits));
    std::memcpy(&y, &b[i], sizeof(Bits));
    // A zero without its sign bit is 0.
    const bool are_zeros =
        static_cast<Bits>(x << 1) == 0 && static_cast<Bits>(y << 1) == 0;
    if (x != y && !are_zeros) return false;
  }
  return true;
}

bool AreEqual(DataType dtype, const NanBuffer& a, const NanBuffer& b) {
  return ByteSizeOf(dtype) == 4 ? AreEqual<uint32_t>(a.span(), b.span())
                                : AreEqual<uint16_t>(a.span(), b.span());
}

}  // namespace

absl::StatusOr<std::vector<Result>> WrongResults(const ConvOperation& operation,
                                                 const Plan& plan,
                                                 const Backend& reference) {
  std::vector<NanBuffer> operands;
  RunBuffers buffers(kOperandCount);
  for (size_t i = 0; i < kOperandCount; ++i) {
    if (!operation.operands[i]) continue;
    operands.push_back(Fill(*operation.operands[i], i));
    buffers.operands[i] = operands.back().data();
  }
  const std::vector<NanBuffer> wanted = ResultsOf(operation, &buffers);
  ASSIGN_OR_RETURN(const auto exact, reference.MakePlan(operation, {}));
  RETURN_IF_ERROR(exact->Run(buffers).status());
  const std::vector<NanBuffer> got = ResultsOf(operation, &buffers);
  const NanBuffer scratch(plan.scratch_bytes());
  buffers.scratch = scratch.span();
  const bool ran = plan.Run(buffers).ok();
  std::vector<Result> wrong;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    if (!ran || !AreEqual(request.descriptor.dtype, got[i], wanted[i])) {
      wrong.push_back(request.which);
    }
  }
  return wrong;
}

}  // namespace convgrad
