// Implements normalize: (x - mean) / std per channel, of images of any dtype.
#include <memory>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/kernels/operators/channel_scale.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// One number per padded channel; zero for padding.
using Numbers = std::shared_ptr<const std::vector<float>>;

template <typename NumberOf>
Numbers PerChannel(const ChannelBlocks& blocks, const NumberOf& number_of) {
  std::vector<float> numbers(blocks.padded_channels());
  for (int64_t c = 0; c < blocks.channels; ++c) {
    numbers[c] = static_cast<float>(number_of(c));
  }
  return std::make_shared<const std::vector<float>>(std::move(numbers));
}

class Normalize final : public NetworkGroup {
 public:
  explicit Normalize(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    blocks_ = x.blocks;
    const std::vector<double> mean = FloatsAttribute(step_, "mean");
    const std::vector<double> deviation = FloatsAttribute(step_, "std");
    center_ = PerChannel(
        blocks_, [&](int64_t c) { return mean[mean.size() == 1 ? 0 : c]; });
    scale_ = PerChannel(blocks_, [&](int64_t c) {
      return 1 / deviation[deviation.size() == 1 ? 0 : c];
    });
    zeros_ = PerChannel(blocks_, [](int64_t) { return 0; });
    AddScale(x.buffer, center_, builder->AddValue(step_.result).buffer,
             builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    AddScale(dy, zeros_, builder->NewGradient(step_.operands[0]).buffer,
             builder);
  }

 private:
  void AddScale(BufferId x, const Numbers& center, BufferId y,
                NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = "normalize",
         .reads = {x},
         .writes = {y},
         // Center, scale and zero of each channel.
         .table_bytes = 3 * blocks_.padded_channels() * int64_t{sizeof(float)},
         .function = [=, blocks = blocks_, scale = scale_,
                      zeros = zeros_](const RunContext& context) {
           ScaleChannels(blocks, {center->data(), scale->data(), zeros->data()},
                         {.x = context.At(x), .y = context.At(y)},
                         context.parts());
         }});
  }

  const ProgramStep& step_;
  ChannelBlocks blocks_;
  Numbers center_, scale_, zeros_;
};

int64_t TableBytes(const ProgramStep& step, const ProgramShapes& shapes,
                   bool /*has_backward*/) {
  constexpr int64_t kMostPadding = 15;
  const int64_t channels = shapes.dims.at(step.operands[0])[1];
  return SaturatingMul(3 * int64_t{sizeof(float)},
                       SaturatingAdd(channels, kMostPadding));
}

}  // namespace

std::vector<NetworkOperator> NetworkNormalize() {
  return {{.op = Operator::kNormalize,
           .make = &MakeOfStep<Normalize>,
           .table_bytes = &TableBytes}};
}

}  // namespace convgrad::onednn
