#include "backends/onednn/library/onednn_elementwise.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "backends/kernels/copies/element_convert.h"
#include "backends/onednn/library/onednn_elements.h"
#include "backends/onednn/library/onednn_loop_nest.h"
#include "backends/onednn/library/onednn_threads.h"

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

// Calls `body` with a null pointer to an unsigned integer of the dtype's size.
template <typename Body>
void WithBits(DataType dtype, Body&& body) {
  if (dtype == DataType::kF32) {
    body(static_cast<uint32_t*>(nullptr));
  } else {
    body(static_cast<uint16_t*>(nullptr));
  }
}

// Adds every `stride`-th number from `first` on to the `count` ones of `block`.
void AddRun(const float* first, int64_t stride, int64_t count, float* block) {
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
  const int64_t at = run.offset + begin;
  float block[kBlock];
  if (data.sum != nullptr) {
    std::copy_n(data.sum + at, count, block);
  } else {
    // -0 is the empty sum: adding to it changes no addend.
    std::fill_n(block, count, -0.0f);
  }
  if (epilogue.bias) {
    AddRun(data.bias + run.other + begin * run.stride, run.stride, count,
           block);
  }
  if (residual != nullptr) AddRun(residual->Read(at, count), 1, count, block);
  FinishBlock(epilogue, block, count);
  ConvertRun(DataType::kF32, block, data.result_dtype,
             data.result + at * ByteSizeOf(data.result_dtype), count);
}

}  // namespace

void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, DataType output_dtype,
                  const void* output, void* masked) {
  const int64_t stored = *ByteSize(grad) / ByteSizeOf(grad.dtype);
  WithBits(grad.dtype, [&](auto* g) {
    WithBits(output_dtype, [&](auto* y) {
      using Grad = std::remove_pointer_t<decltype(g)>;
      using Output = std::remove_pointer_t<decltype(y)>;
      const auto* gradients = static_cast<const Grad*>(grad_data);
      const auto* outputs = static_cast<const Output*>(output);
      auto* results = static_cast<Grad*>(masked);
      const auto infinity = static_cast<Output>(InfinityBits(output_dtype));
      ParallelFor(threads, stored, kGrainElements,
                  [=](int, int64_t begin, int64_t end) {
                    for (int64_t i = begin; i < end; ++i) {
                      results[i] = IsPositive(outputs[i], infinity)
                                       ? gradients[i]
                                       : Grad{0};
                    }
                  });
    });
  });
}

void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const float* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data) {
  const LoopNest nest(
      result.dims, Strides(result),
      epilogue.bias
          ? BroadcastStrides(epilogue.bias->descriptor.dims, result.dims)
          : Dims(result.dims.size(), 0));
  const EpilogueData data{epilogue, sum, bias, result.dtype,
                          static_cast<std::byte*>(result_data)};
  std::vector<BlockReader> readers;
  if (epilogue.residual) {
    readers.resize(nest.PartCount(threads),
                   BlockReader(epilogue.residual->descriptor.dtype, residual,
                               ElementCount(result)));
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
  const int64_t stored = *ByteSize(tensor) / ByteSizeOf(tensor.dtype);
  WithBits(tensor.dtype, [&](auto* bits) {
    using Bits = std::remove_pointer_t<decltype(bits)>;
    // Negative numbers are the bit patterns from the sign bit to -Inf.
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    const auto infinity = static_cast<Bits>(InfinityBits(tensor.dtype));
    auto* values = static_cast<Bits*>(data);
    ParallelFor(threads, stored, kGrainElements,
                [=](int, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    const auto magnitude = static_cast<Bits>(values[i] ^ kSign);
                    values[i] = magnitude <= infinity ? Bits{0} : values[i];
                  }
                });
  });
}

}  // namespace convgrad::onednn
