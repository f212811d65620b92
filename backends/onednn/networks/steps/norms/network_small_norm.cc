#include "backends/onednn/networks/steps/norms/network_small_norm.h"

#include <cmath>

#include "backends/kernels/operators/elements.h"

namespace convgrad::onednn {
namespace {

// Random programs showed the loss of precision at up to 60 elements; with more
// it is rare.
constexpr int64_t kFewElements = 64;

int64_t ElementsOf(const ChannelBlocks& blocks, int64_t channels) {
  return channels * blocks.batch * blocks.spatial;
}

}  // namespace

bool HasFewElements(const ChannelBlocks& blocks, int64_t channels) {
  return ElementsOf(blocks, channels) <= kFewElements;
}

void WriteSmallGradient(const BatchNorm& norm, int64_t first, int64_t channels,
                        const BatchNormBackward& tensors, const void* y) {
  const ChannelBlocks& blocks = norm.blocks;
  const auto load = [&](const void* tensor, int64_t at) -> double {
    return LoadElement(blocks.dtype, static_cast<const std::byte*>(tensor), at);
  };
  const auto is_masked = [&](int64_t at) {
    const double result = y == nullptr ? 1 : load(y, at);
    return result <= 0 ||
           (tensors.activation == Activation::kRelu6 && result >= 6);
  };
  const double inverse = 1 / std::sqrt(norm.variance[first] + norm.epsilon);
  double gradients[kFewElements], normals[kFewElements];
  int64_t places[kFewElements];
  double sum = 0, product = 0;
  const int64_t count = ElementsOf(blocks, channels);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t s = i % blocks.spatial, n = i / blocks.spatial % blocks.batch;
    const int64_t c = first + i / blocks.spatial / blocks.batch;
    const int64_t block = n * blocks.block_count() + c / blocks.block;
    const int64_t at =
        (block * blocks.spatial + s) * blocks.block + c % blocks.block;
    const double gamma = norm.gamma == nullptr ? 1 : norm.gamma[c];
    places[i] = at;
    gradients[i] = is_masked(at) ? 0 : gamma * load(tensors.dy, at);
    normals[i] = (load(tensors.x, at) - norm.mean[c]) * inverse;
    sum += gradients[i];
    product += gradients[i] * normals[i];
  }
  const auto elements = static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    const double rest =
        gradients[i] - sum / elements - normals[i] * (product / elements);
    StoreElement(blocks.dtype, static_cast<float>(rest * inverse),
                 static_cast<std::byte*>(tensors.dx), places[i]);
  }
}

}  // namespace convgrad::onednn
