#include "tests/end_to_end/peers/streamed_operation.h"

#include <utility>

#include "absl/time/clock.h"
#include "backends/core/logical_tensor.h"
#include "tests/conformance/tensor_fill.h"

namespace convgrad {

OperationData::OperationData(ConvOperation operation, Values values)
    : operation_(std::move(operation)) {
  for (Operand which : kAllOperands) {
    const auto& tensor = operation_.operand(which);
    if (!tensor) continue;
    const auto i = static_cast<size_t>(which);
    const int64_t count = ElementCount(*tensor);
    values_[i] = values == Values::kIntegers
                     ? testing_support::IntegerFill(count, i)
                     : testing_support::RealFill(count, i, operation_.dtype());
    bytes_[i].resize(*ByteSize(*tensor));
    StoreLogical(*tensor, values_[i], bytes_[i].data());
  }
}

OperationCall OperationData::Call() const {
  OperationCall call;
  call.operation = operation_;
  for (size_t i = 0; i < bytes_.size(); ++i) call.operands[i] = bytes_[i];
  call.deadline = absl::Now() + absl::Seconds(60);
  return call;
}

std::string BytesOf(const OperationReply& reply, Result which) {
  for (const OperationResult& result : reply.results) {
    if (result.which != which) continue;
    return std::string(reinterpret_cast<const char*>(result.bytes.data()),
                       result.bytes.size());
  }
  return "no such result";
}

}  // namespace convgrad
