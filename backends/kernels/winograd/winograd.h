// Winograd's F(2x2,3x3) computes 2-D convolutions with 3x3 kernels and stride
// 1. It takes 16 products where the definition takes 36: it transforms tiles of
// 4x4 input elements, multiplies them by transformed weights, and transforms
// the products to tiles of 2x2 output elements. With a dilation, the elements
// of a tile have that distance: the image is taken as dilation^2 interleaved
// ones. A 3-D image is a stack of 2-D planes. Each plane of the output is the
// sum of as many 2-D convolutions as the kernel is deep.
//
// The constants are powers of two, so sums of small integers stay exact.
// Elements of one tile share rounding errors, and Inf or NaN would spread over
// the tile. The passes therefore return false, and leave their result
// undefined, if an element that they read isn't below kLimit in magnitude. The
// caller then computes the pass in another way.
//
// Activations are f32, their channels in blocks of 8 or 16 (ChannelBlocks).
// Work is divided by shape alone, as for RunParts.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/kernels/operators/pointwise.h"

namespace convgrad::winograd {

// Integers below this magnitude are exact in f32, and sums of 2^20 transformed
// products can't overflow.
inline constexpr float kLimit = 0x1p24F;

// A pass that reads an input and writes an output, or that computes the
// weights' gradient from both. Units: elements.
struct Shape {
  int64_t batch = 0;
  int64_t in_channels = 0, out_channels = 0;
  int64_t in_height = 0, in_width = 0;
  int64_t out_height = 0, out_width = 0;
  // In front of the input; may be negative.
  int64_t pad_top = 0, pad_left = 0;
  int64_t block = 16;  // channels per block: 8 or 16
  int64_t dilation = 1;
  // Planes of a 3-D image and of its kernel, at stride and dilation 1.
  int64_t in_depth = 1, out_depth = 1, kernel_depth = 1;
  int64_t pad_front = 0;
  // A pass may compute a part of an image's output channels: those from this
  // block on, of so many blocks. 0: all blocks.
  int64_t first_out_block = 0;
  int64_t image_out_blocks = 0;

  int64_t in_blocks() const { return (in_channels + block - 1) / block; }
  // The planes of the input that each plane of the output depends on.
  int64_t in_planes() const { return kernel_depth * in_blocks(); }
  int64_t out_blocks() const { return (out_channels + block - 1) / block; }
  int64_t tile_rows() const { return TilesAlong(out_height); }
  int64_t tile_columns() const { return TilesAlong(out_width); }
  int64_t tiles() const {
    return batch * out_depth * tile_rows() * tile_columns();
  }

 private:
  // Returns the tiles along an axis of this output size. Some of the
  // interleaved images have an element more than the others.
  int64_t TilesAlong(int64_t size) const {
    const int64_t longer = size % dilation, least = size / dilation;
    return longer * ((least + 2) / 2) + (dilation - longer) * ((least + 1) / 2);
  }
};

// Returns the pass that computes `count` blocks of output channels, or the
// gradient of their weights. It has the whole pass's tensors and bits.
Shape SomeOutputs(const Shape& shape, int64_t first_block, int64_t count);

// Returns the pass that computes the input's gradient from the output's. It is
// a Forward with weights that are turned.
Shape BackwardDataShape(const Shape& forward);

// Weights of the forward: (O, C, 3, 3) or (O, C, kernel_depth, 3, 3),
// row-major.
struct Weights {
  const float* values = nullptr;
  int64_t out_channels = 0, in_channels = 0;
  // Factors of the output channels; null: none. Requires: not `is_turned`.
  const float* scales = nullptr;
  // Whether they are transformed for the backward-data pass: input and output
  // channels exchanged, kernels turned by 180 degrees.
  bool is_turned = false;
  int64_t block = 16;
  // The blocks of the pass's output channels to transform. -1: all.
  int64_t first_out_block = 0;
  int64_t out_blocks = -1;
  int64_t kernel_depth = 1;
};

// The operations of Forward on a result before it writes it, in this order:
// adds a bias for each channel, adds a tensor like the output, and applies an
// activation:
// kNone, kRelu, kRelu6, kLeakyRelu, kSilu or kHardswish.
struct Epilogue {
  const float* bias = nullptr;    // out_channels of them; null: none
  const float* addend = nullptr;  // null: none
  Pointwise function = {};
};

// Calls its second argument once with each part in [0, count) and the number of
// the thread that runs the part, counted from 0.
using RunThreadParts = absl::FunctionRef<void(
    int64_t count, absl::FunctionRef<void(int64_t part, int64_t thread)>)>;

// Return the floats of transformed weights.
int64_t TransformedFloats(const Weights& weights);

// Writes transformed weights. Returns whether all elements are below kLimit.
// Requires: `transformed` is aligned to 64 bytes.
bool TransformWeights(const Weights& weights, float* transformed,
                      RunThreadParts run);

// The memory of a pass. Buffers of scratch are aligned to 64 bytes.
struct ForwardTensors {
  const float* x;
  const float* transformed;  // weights
  float* y;
  float* scratch;  // ForwardScratch floats for each thread
};
struct GradientTensors {
  const float* x;
  const float* dy;
  float* dw;       // as Weights::values
  float* sums;     // GradientSums floats
  float* scratch;  // GradientScratch floats for each thread
};

// Returns the parts into which Forward is divided.
int64_t ForwardParts(const Shape& shape);
int64_t ForwardScratch(const Shape& shape);
int64_t GradientScratch(const Shape& shape);
int64_t GradientSums(const Shape& shape);

// Computes an output, or the gradient of the weights. Returns whether it did.
bool Forward(const Shape& shape, const Epilogue& epilogue,
             const ForwardTensors& tensors, RunThreadParts run);
// `threads` is the number of threads of `run`; the bits don't depend on it.
bool BackwardWeight(const Shape& shape, const GradientTensors& tensors,
                    int64_t threads, RunThreadParts run);

}  // namespace convgrad::winograd
