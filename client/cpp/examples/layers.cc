// Has servers compute the gradients of several layers at once. The program
// sends each operation as soon as its operands exist and waits only when it
// needs the gradients.
//
//   layers SERVER[,SERVER...] [CA.pem]
//
// Uses TLS if CA.pem, the authorities' file, is given.
#include <cstdio>
#include <future>
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

// A layer's operands, all ones, and memory for its weight gradient.
struct Layer {
  explicit Layer(const char* problem) {
    call.operation = convgrad::WholeOperation(
        Must(convgrad::Parse(problem)), convgrad::Direction::kBackward,
        convgrad::DataType::kF32, convgrad::Layout::kNCX);
    // Ask only for the weight gradient, and send only the operands that it
    // needs.
    std::erase_if(call.operation.results, [](const auto& result) {
      return result.which != convgrad::Result::kGradWeight;
    });
    convgrad::DropUnneeded(&call.operation);
    for (Operand operand : convgrad::kAllOperands) {
      const auto& tensor = call.operation.operand(operand);
      if (!tensor) continue;
      auto& values = operands.emplace_back(std::make_unique<std::vector<float>>(
          convgrad::ElementCount(*tensor), 1.0f));
      call.operands[PositionOf(operand)] = {
          reinterpret_cast<const std::byte*>(values->data()),
          values->size() * sizeof(float)};
    }
    grad_weight.resize(
        convgrad::ElementCount(call.operation.results[0].descriptor));
    call.destinations = {{reinterpret_cast<std::byte*>(grad_weight.data()),
                          grad_weight.size() * sizeof(float)}};
    call.deadline = absl::Now() + absl::Seconds(10);
  }

  std::vector<std::unique_ptr<std::vector<float>>> operands;
  std::vector<float> grad_weight;
  convgrad::OperationCall call;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::fprintf(stderr, "usage: layers SERVER[,SERVER...] [CA.pem]\n");
    return 2;
  }
  convgrad::ClientOptions options;
  options.server = argv[1];
  if (argc == 3) options.ca = argv[2];
  options.retries = convgrad::RetryPolicy{};
  const auto client = Must(convgrad::Client::Connect(options));

  constexpr const char* kProblems[] = {"conv2d_n2_c3_o8_i16_k3_p1",
                                       "conv2d_n2_c8_o8_i16_k3_s2_p1",
                                       "conv2d_n2_c8_o4_i8_k1"};
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<std::future<absl::StatusOr<convgrad::OperationReply>>> replies;
  for (const char* problem : kProblems) {
    layers.push_back(std::make_unique<Layer>(problem));
    replies.push_back(client->Submit(layers.back()->call));
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    Must(replies[i].get());
    double sum = 0;
    for (float value : layers[i]->grad_weight) sum += value;
    std::printf("%s: grad_weight sums to %g\n", kProblems[i], sum);
  }
  return 0;
}
