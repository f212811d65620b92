// Implements normalize: (x - mean) / std per channel, of images of any dtype.
#include <algorithm>
#include <vector>

#include "backends/kernels/operators/channel_scale.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

class Normalize final : public NetworkGroup {
 public:
  explicit Normalize(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    blocks_ = x.blocks;
    AddScale(x.buffer, FloatsAttribute(step_, "mean"),
             builder->AddValue(step_.result).buffer, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    AddScale(dy, {0}, builder->NewGradient(step_.operands[0]).buffer, builder);
  }

 private:
  // Appends y = (x - mean) / std. `mean` has a number for each channel, or one
  // for all.
  void AddScale(BufferId x, const std::vector<double>& mean, BufferId y,
                NetworkBuilder* builder) const {
    const int64_t padded = blocks_.padded_channels();
    // Center, scale and shift; zeros for padding.
    const BufferId numbers = builder->AddArray<float>(3 * padded);
    builder->Add(
        "normalize", {x}, {y, numbers},
        [=, blocks = blocks_,
         deviation = FloatsAttribute(step_, "std")](const RunContext& context) {
          auto* const center = context.Write<float>(numbers);
          float* const scale = center + padded;
          std::fill_n(center, 3 * padded, 0.0F);
          for (int64_t c = 0; c < blocks.channels; ++c) {
            center[c] = static_cast<float>(mean[mean.size() == 1 ? 0 : c]);
            scale[c] = static_cast<float>(
                1 / deviation[deviation.size() == 1 ? 0 : c]);
          }
          ScaleChannels(blocks, {center, scale, scale + padded},
                        {.x = context.At(x), .y = context.At(y)},
                        context.parts());
        });
  }

  const ProgramStep& step_;
  ChannelBlocks blocks_;
};

}  // namespace

std::vector<NetworkOperator> NetworkNormalize() {
  return {{Operator::kNormalize, &MakeOfStep<Normalize>}};
}

}  // namespace convgrad::onednn
