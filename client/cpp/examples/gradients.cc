// Has a server compute the gradients of one small convolution and prints them.
//
//   gradients HOST:PORT
#include <cstdio>
#include <string>
#include <vector>

#include "client/cpp/client.h"

absl::Span<const std::byte> BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(float)};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 2) return Fail(absl::InvalidArgumentError("expected HOST:PORT"));
  const auto client = convgrad::Client::Connect({argv[1]});
  if (!client.ok()) return Fail(client.status());
  const auto problem = convgrad::Parse("conv2d_n1_c1_o1_i3_k2");
  if (!problem.ok()) return Fail(problem.status());

  const std::vector<float> input = {0, 1, 2, 3, 4, 5, 6, 7, 8};  // 1x1x3x3
  const std::vector<float> weight = {0, 1, 2, 3};                // 1x1x2x2
  const std::vector<float> grad_output = {1, 1, 1, 1};           // 1x1x2x2
  convgrad::OperationCall call;
  call.operation = convgrad::WholeOperation(
      *problem, convgrad::Direction::kBackward, convgrad::DataType::kF32,
      convgrad::Layout::kNCX);
  call.operands[PositionOf(convgrad::Operand::kInput)] = BytesOf(input);
  call.operands[PositionOf(convgrad::Operand::kWeight)] = BytesOf(weight);
  call.operands[PositionOf(convgrad::Operand::kGradOutput)] =
      BytesOf(grad_output);
  call.deadline = absl::Now() + absl::Seconds(10);

  const auto reply = (*client)->Run(call);
  if (!reply.ok()) return Fail(reply.status());
  for (const convgrad::OperationResult& result : reply->results) {
    std::printf("%s:", std::string(convgrad::NameOf(result.which)).c_str());
    const auto* values = reinterpret_cast<const float*>(result.bytes.data());
    for (size_t i = 0; i < result.bytes.size() / sizeof(float); ++i) {
      std::printf(" %g", values[i]);
    }
    std::printf("\n");
  }
  return 0;
}
