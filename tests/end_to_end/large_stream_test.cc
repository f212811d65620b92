// Tests a tensor that is too large for a message, with a server that has far
// less memory.
#include <algorithm>
#include <cstring>
#include <vector>

#include "client/cpp/client.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/child_server.h"

namespace convgrad {
namespace {

constexpr int64_t kChannels = 16;
constexpr int64_t kPixels = 256 * 256;
constexpr int64_t kBatch = 560;  // 2.19 GiB in, as much out.

float InputAt(int64_t element) { return static_cast<float>(element % 13 - 6); }

// Returns an element of the output of a 1x1 convolution whose weight is W[o][c]
// = o + c.
float OutputAt(int64_t item, int64_t channel, int64_t pixel) {
  float sum = 0;
  for (int64_t c = 0; c < kChannels; ++c) {
    sum += static_cast<float>(channel + c) *
           InputAt((item * kChannels + c) * kPixels + pixel);
  }
  return sum;
}

TEST(LargeStream, IsRightInBoundedMemory) {
  ChildServer server({"--memory_budget_bytes=1073741824"});
  const auto client = *Client::Connect({server.address()});
  OperationCall call;
  call.operation =
      WholeOperation(*Parse("conv2d_n560_c16_o16_i256_k1"), Direction::kForward,
                     DataType::kF32, Layout::kNCX);
  std::vector<float> input(kBatch * kChannels * kPixels);
  ASSERT_GT(input.size() * sizeof(float), size_t{1} << 31);
  for (size_t i = 0; i < input.size(); ++i) {
    input[i] = InputAt(static_cast<int64_t>(i));
  }
  std::vector<float> weight(kChannels * kChannels);
  for (int64_t o = 0; o < kChannels; ++o) {
    for (int64_t c = 0; c < kChannels; ++c) {
      weight[o * kChannels + c] = static_cast<float>(o + c);
    }
  }
  const auto bytes = [](const std::vector<float>& values) {
    return absl::MakeConstSpan(
        reinterpret_cast<const std::byte*>(values.data()),
        values.size() * sizeof(float));
  };
  call.operands[static_cast<size_t>(Operand::kInput)] = bytes(input);
  call.operands[static_cast<size_t>(Operand::kWeight)] = bytes(weight);

  const auto reply = client->Run(call);
  ASSERT_TRUE(reply.ok()) << reply.status();
  const absl::Span<const std::byte> output = reply->results[0].bytes;
  ASSERT_EQ(output.size(), input.size() * sizeof(float));
  for (int64_t item = 0; item < kBatch; ++item) {
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      for (int64_t pixel : {int64_t{0}, int64_t{4321}, kPixels - 1}) {
        float value;
        std::memcpy(&value,
                    &output[((item * kChannels + channel) * kPixels + pixel) *
                            sizeof(float)],
                    sizeof(value));
        ASSERT_EQ(value, OutputAt(item, channel, pixel))
            << item << " " << channel << " " << pixel;
      }
    }
  }
  EXPECT_LT(server.MemoryBytes("VmHWM"), int64_t{1} << 30);
}

}  // namespace
}  // namespace convgrad
