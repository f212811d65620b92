// Has a server compute the gradients of one small convolution and prints them.
//
//   gradients HOST:PORT
#include <cstdio>
#include <memory>
#include <vector>

#include "client/cpp/client.h"

namespace {

using convgrad::Operand;

// Ends the program if there was an error.
template <typename T>
T Must(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  std::exit(1);
}

absl::Span<const std::byte> BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(float)};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: gradients HOST:PORT\n");
    return 2;
  }
  const auto client = Must(convgrad::Client::Connect({argv[1]}));

  // Input [1, 1, 3, 3], weight [1, 1, 2, 2], grad_output [1, 1, 2, 2].
  convgrad::OperationCall call;
  call.operation = convgrad::WholeOperation(
      Must(convgrad::Parse("conv2d_n1_c1_o1_i3_k2")),
      convgrad::Direction::kBackward, convgrad::DataType::kF32,
      convgrad::Layout::kNCX);
  const std::vector<float> input = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<float> weight = {0, 1, 2, 3};
  const std::vector<float> grad_output = {1, 1, 1, 1};
  call.operands[PositionOf(Operand::kInput)] = BytesOf(input);
  call.operands[PositionOf(Operand::kWeight)] = BytesOf(weight);
  call.operands[PositionOf(Operand::kGradOutput)] = BytesOf(grad_output);
  call.deadline = absl::Now() + absl::Seconds(10);

  const convgrad::OperationReply reply = Must(client->Run(call));
  for (const convgrad::OperationResult& result : reply.results) {
    std::printf("%s:", std::string(convgrad::NameOf(result.which)).c_str());
    const auto* values = reinterpret_cast<const float*>(result.bytes.data());
    for (size_t i = 0; i < result.bytes.size() / sizeof(float); ++i) {
      std::printf(" %g", values[i]);
    }
    std::printf("\n");
  }
  return 0;
}
