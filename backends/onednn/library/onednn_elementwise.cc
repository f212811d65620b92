#include "backends/onednn/library/onednn_elementwise.h"

#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/library/onednn_elements.h"
#include "backends/onednn/library/onednn_loop_nest.h"

namespace convgrad::onednn {
namespace {

// Returns the bits of +Inf. Positive numbers are the patterns from 1 to it.
// Requires: a convolution's dtype.
uint32_t InfinityBits(DataType dtype) {
  if (dtype == DataType::kF32) return 0x7f800000;
  return dtype == DataType::kBF16 ? 0x7f80 : 0x7c00;
}

// Returns true for positive numbers and +Inf, false for NaN. Compares bits, so
// that subnormals count in any flush mode.
template <typename Bits>
bool IsPositive(Bits bits, Bits infinity) {
  return static_cast<Bits>(bits - 1) < infinity;
}

template <typename Grad, typename Output>
void MaskRun(const Run& run, const Grad* grad, const Output* output,
             Output infinity, Grad* masked) {
  grad += run.offset[0];
  masked += run.offset[0];
  output += run.offset[1];
  if (run.stride[1] == 1) {
    for (int64_t i = 0; i < run.length; ++i) {
      masked[i] = IsPositive(output[i], infinity) ? grad[i] : Grad{0};
    }
    return;
  }
  for (int64_t i = 0; i < run.length; ++i) {
    masked[i] =
        IsPositive(output[i * run.stride[1]], infinity) ? grad[i] : Grad{0};
  }
}

// Calls `body` with a null pointer to an unsigned integer of the dtype's size.
template <typename Body>
void WithBits(DataType dtype, Body&& body) {
  if (dtype == DataType::kF32) {
    body(static_cast<uint32_t*>(nullptr));
  } else {
    body(static_cast<uint16_t*>(nullptr));
  }
}

// Adds `addend` to `count` values in `block`.
void AddRun(const FloatRun& addend, int64_t count, float* block) {
  const auto [first, stride] = addend;
  if (stride == 0) {
    const float value = *first;
    for (int64_t i = 0; i < count; ++i) block[i] += value;
  } else if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) block[i] += first[i];
  } else {
    for (int64_t i = 0; i < count; ++i) block[i] += first[i * stride];
  }
}

void FinishBlock(const Epilogue& epilogue, float* block, int64_t count) {
  if (epilogue.relu) {
    for (int64_t i = 0; i < count; ++i) {
      block[i] = block[i] < 0 ? 0.0f : block[i];
    }
  }
  if (epilogue.scale == 1) return;
  for (int64_t i = 0; i < count; ++i) block[i] *= epilogue.scale;
}

// An epilogue and the addresses of its tensors.
struct EpilogueData {
  const Epilogue& epilogue;
  const float* sum;
  const float* bias;
  DataType result_dtype;
  std::byte* result;
};

// Applies the epilogue to `count` elements of a run from its element `begin`
// on.
void ApplyBlock(const EpilogueData& data, const Run& run, int64_t begin,
                int64_t count, BlockReader* residual) {
  const Epilogue& epilogue = data.epilogue;
  const int64_t at = run.offset[0] + begin;
  float block[kBlock];
  if (data.sum != nullptr) {
    std::copy_n(data.sum + at, count, block);
  } else {
    // -0 is the empty sum: adding to it changes no addend.
    std::fill_n(block, count, -0.0f);
  }
  if (epilogue.bias) {
    const int64_t stride = run.stride[1];
    AddRun({data.bias + run.offset[1] + begin * stride, stride}, count, block);
  }
  if (residual != nullptr) {
    const int64_t stride = run.stride[2];
    AddRun(residual->Read(run.offset[2] + begin * stride, stride, count), count,
           block);
  }
  FinishBlock(epilogue, block, count);
  ConvertRun(DataType::kF32, block, data.result_dtype,
             data.result + at * ByteSizeOf(data.result_dtype), count);
}

}  // namespace

void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, const TensorDescriptor& output,
                  const void* output_data, void* masked) {
  const bool flat = grad.layout == output.layout;
  const int64_t stored = *ByteSize(grad) / ByteSizeOf(grad.dtype);
  const std::array strides = {flat ? Dims{1} : Strides(grad),
                              flat ? Dims{1} : Strides(output)};
  const LoopNest nest(flat ? Dims{stored} : grad.dims, strides);
  WithBits(grad.dtype, [&](auto* g) {
    WithBits(output.dtype, [&](auto* y) {
      using Grad = std::remove_pointer_t<decltype(g)>;
      using Output = std::remove_pointer_t<decltype(y)>;
      const auto infinity = static_cast<Output>(InfinityBits(output.dtype));
      nest.ForEachRun(threads, [&](const Run& run) {
        MaskRun(run, static_cast<const Grad*>(grad_data),
                static_cast<const Output*>(output_data), infinity,
                static_cast<Grad*>(masked));
      });
    });
  });
}

void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const float* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data) {
  const Dims nothing(result.dims.size(), 0);
  const std::array strides = {
      Strides(result),
      epilogue.bias
          ? BroadcastStrides(epilogue.bias->descriptor.dims, result.dims)
          : nothing,
      epilogue.residual ? Strides(epilogue.residual->descriptor) : nothing};
  const LoopNest nest(result.dims, strides);
  const EpilogueData data{epilogue, sum, bias, result.dtype,
                          static_cast<std::byte*>(result_data)};
  std::vector<BlockReader> readers;
  if (epilogue.residual) {
    const TensorDescriptor& tensor = epilogue.residual->descriptor;
    readers.resize(nest.PartCount(threads),
                   BlockReader(tensor.dtype, residual, ElementCount(tensor)));
  }
  nest.ForEachRun(threads, [&](const Run& run) {
    BlockReader* reader = readers.empty() ? nullptr : &readers[run.part];
    for (int64_t begin = 0; begin < run.length; begin += kBlock) {
      ApplyBlock(data, run, begin, std::min(kBlock, run.length - begin),
                 reader);
    }
  });
}

void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data) {
  const Dims flat = {*ByteSize(tensor) / ByteSizeOf(tensor.dtype)};
  const std::array strides = {Dims{1}};
  const LoopNest nest(flat, strides);
  WithBits(tensor.dtype, [&](auto* bits) {
    using Bits = std::remove_pointer_t<decltype(bits)>;
    // Negative numbers are the bit patterns from the sign bit to -Inf.
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    const auto infinity = static_cast<Bits>(InfinityBits(tensor.dtype));
    nest.ForEachRun(threads, [&](const Run& run) {
      Bits* value = static_cast<Bits*>(data) + run.offset[0];
      for (int64_t i = 0; i < run.length; ++i) {
        const auto magnitude = static_cast<Bits>(value[i] ^ kSign);
        value[i] = magnitude <= infinity ? Bits{0} : value[i];
      }
    });
  });
}

}  // namespace convgrad::onednn
