#include "backends/onednn/networks/steps/norms/network_small_norm.h"

#include <cmath>
#include <cstring>

#include "backends/kernels/operators/elements.h"

namespace convgrad::onednn {
namespace {

// Maximum number of elements per channel. Random programs showed the loss of
// precision at up to 60 elements; with more it is rare.
constexpr int64_t kFewElements = 64;

// One channel's elements.
class SmallChannel {
 public:
  SmallChannel(const BatchNorm& norm, const BatchNormBackward& tensors,
               const void* y, int64_t channel)
      : norm_(norm),
        tensors_(tensors),
        y_(y),
        channel_(channel),
        inv_std_(1 / std::sqrt(norm.variance[channel] + norm.epsilon)) {}

  void Run() const {
    double sum = 0, product = 0;
    for (int64_t i = 0; i < count(); ++i) {
      sum += Gradient(i);
      product += Gradient(i) * Normalized(i);
    }
    const auto elements = static_cast<double>(count());
    const double gamma = norm_.gamma == nullptr ? 1 : norm_.gamma[channel_];
    for (int64_t i = 0; i < count(); ++i) {
      const double gradient = Gradient(i);
      const double dx =
          gamma * inv_std_ *
          (gradient - sum / elements - Normalized(i) * (product / elements));
      Store(dx, tensors_.dx, i);
    }
  }

 private:
  int64_t count() const { return norm_.blocks.batch * norm_.blocks.spatial; }

  int64_t Offset(int64_t i) const {
    const ChannelBlocks& blocks = norm_.blocks;
    const int64_t n = i / blocks.spatial, s = i % blocks.spatial;
    const int64_t block = n * blocks.block_count() + channel_ / blocks.block;
    return (block * blocks.spatial + s) * blocks.block +
           channel_ % blocks.block;
  }
  double Load(const void* tensor, int64_t i) const {
    return LoadElement(norm_.blocks.dtype,
                       static_cast<const std::byte*>(tensor), Offset(i));
  }
  void Store(double value, void* tensor, int64_t i) const {
    StoreElement(norm_.blocks.dtype, static_cast<float>(value),
                 static_cast<std::byte*>(tensor), Offset(i));
  }

  // Returns dy after the activation's mask.
  double Gradient(int64_t i) const {
    if (y_ != nullptr) {
      const double y = Load(y_, i);
      const bool caps = tensors_.activation == Activation::kRelu6;
      if (y <= 0 || (caps && y >= 6)) return 0;
    }
    return Load(tensors_.dy, i);
  }
  double Normalized(int64_t i) const {
    return (Load(tensors_.x, i) - norm_.mean[channel_]) * inv_std_;
  }

  const BatchNorm& norm_;
  const BatchNormBackward& tensors_;
  const void* const y_;
  const int64_t channel_;
  const double inv_std_;
};

}  // namespace

bool HasFewElements(const ChannelBlocks& blocks) {
  return blocks.batch * blocks.spatial <= kFewElements;
}

void RunSmallGradientInput(const BatchNorm& norm,
                           const BatchNormBackward& tensors, const void* y) {
  std::memset(tensors.dx, 0, norm.blocks.bytes());
  for (int64_t c = 0; c < norm.blocks.channels; ++c) {
    SmallChannel(norm, tensors, y, c).Run();
  }
}

}  // namespace convgrad::onednn
