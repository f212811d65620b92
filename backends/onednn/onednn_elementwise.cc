#include "backends/onednn/onednn_elementwise.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "backends/onednn/onednn_elements.h"
#include "backends/onednn/onednn_loop_nest.h"

namespace convgrad::onednn {
namespace {

// True for positive numbers and +Inf, not for NaN; on the bits, so that
// subnormals count whatever the machine's flush mode.
bool IsPositive(uint32_t bits) { return bits - 1 < 0x7f800000u; }
bool IsPositive(uint16_t bits) {
  return static_cast<uint16_t>(bits - 1) < 0x7f80;
}

template <typename Grad, typename Output>
void MaskRun(const Run& run, const Grad* grad, const Output* output,
             Grad* masked) {
  grad += run.offset[0];
  masked += run.offset[0];
  output += run.offset[1];
  if (run.stride[1] == 1) {
    for (int64_t i = 0; i < run.length; ++i) {
      masked[i] = IsPositive(output[i]) ? grad[i] : Grad{0};
    }
    return;
  }
  for (int64_t i = 0; i < run.length; ++i) {
    masked[i] = IsPositive(output[i * run.stride[1]]) ? grad[i] : Grad{0};
  }
}

// Calls body with a null pointer to an unsigned of the dtype's size.
template <typename Body>
void WithBits(DataType dtype, Body&& body) {
  if (dtype == DataType::kF32) {
    body(static_cast<uint32_t*>(nullptr));
  } else {
    body(static_cast<uint16_t*>(nullptr));
  }
}

// Adds an addend to `count` values in `block`.
template <typename Element>
void AddRun(const Element* addend, int64_t stride, int64_t count,
            float* block) {
  if (stride == 0) {
    const float value = Load(addend);
    for (int64_t i = 0; i < count; ++i) block[i] += value;
  } else if (stride == 1) {
    for (int64_t i = 0; i < count; ++i) block[i] += Load(addend + i);
  } else {
    for (int64_t i = 0; i < count; ++i) block[i] += Load(addend + i * stride);
  }
}

void AddRun(const TensorDescriptor& tensor, const void* data, int64_t offset,
            int64_t stride, int64_t count, float* block) {
  WithElement(tensor.dtype, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    AddRun(static_cast<const Element*>(data) + offset, stride, count, block);
  });
}

// Elements handled at once: a block of f32 stays in the first-level cache.
constexpr int64_t kBlock = 1024;

template <typename Element>
void FinishBlock(const Epilogue& epilogue, const float* block, int64_t count,
                 Element* result) {
  if (epilogue.relu) {
    for (int64_t i = 0; i < count; ++i) {
      const float value = block[i] < 0 ? 0.0f : block[i];
      Store(value * epilogue.scale, result + i);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    Store(block[i] * epilogue.scale, result + i);
  }
}

}  // namespace

void MaskGradient(int threads, const TensorDescriptor& grad,
                  const void* grad_data, const TensorDescriptor& output,
                  const void* output_data, void* masked) {
  const std::array strides = {Strides(grad), Strides(output)};
  const LoopNest nest(grad.dims, strides);
  WithBits(grad.dtype, [&](auto* g) {
    WithBits(output.dtype, [&](auto* y) {
      using Grad = std::remove_pointer_t<decltype(g)>;
      using Output = std::remove_pointer_t<decltype(y)>;
      nest.ForEachRun(threads, [&](const Run& run) {
        MaskRun(run, static_cast<const Grad*>(grad_data),
                static_cast<const Output*>(output_data),
                static_cast<Grad*>(masked));
      });
    });
  });
}

void ApplyEpilogue(int threads, const Epilogue& epilogue, const float* sum,
                   const void* bias, const void* residual,
                   const TensorDescriptor& result, void* result_data) {
  const Dims nothing(result.dims.size(), 0);
  const std::array strides = {
      Strides(result),
      epilogue.bias ? BroadcastStrides(epilogue.bias->dims, result.dims)
                    : nothing,
      epilogue.residual ? Strides(*epilogue.residual) : nothing};
  const LoopNest nest(result.dims, strides);
  nest.ForEachRun(threads, [&](const Run& run) {
    for (int64_t begin = 0; begin < run.length; begin += kBlock) {
      const int64_t count = std::min(kBlock, run.length - begin);
      const int64_t at = run.offset[0] + begin;
      float block[kBlock];
      if (sum != nullptr) {
        std::copy_n(sum + at, count, block);
      } else {
        // -0 is the sum of nothing: it leaves every addend as it is.
        std::fill_n(block, count, -0.0f);
      }
      if (epilogue.bias) {
        AddRun(*epilogue.bias, bias, run.offset[1] + begin * run.stride[1],
               run.stride[1], count, block);
      }
      if (epilogue.residual) {
        AddRun(*epilogue.residual, residual,
               run.offset[2] + begin * run.stride[2], run.stride[2], count,
               block);
      }
      WithElement(result.dtype, [&](auto* element) {
        using Element = std::remove_pointer_t<decltype(element)>;
        FinishBlock(epilogue, block, count,
                    static_cast<Element*>(result_data) + at);
      });
    }
  });
}

void ReluInPlace(int threads, const TensorDescriptor& tensor, void* data) {
  const Dims flat = {ElementCount(tensor)};
  const std::array strides = {Dims{1}};
  const LoopNest nest(flat, strides);
  WithBits(tensor.dtype, [&](auto* bits) {
    using Bits = std::remove_pointer_t<decltype(bits)>;
    // Negative numbers are the bit patterns from sign bit to -Inf.
    constexpr Bits kSign = Bits{1} << (8 * sizeof(Bits) - 1);
    constexpr auto kNegatives =
        static_cast<Bits>(sizeof(Bits) == 4 ? 0x7f800000u : 0x7f80u);
    nest.ForEachRun(threads, [&](const Run& run) {
      Bits* value = static_cast<Bits*>(data) + run.offset[0];
      for (int64_t i = 0; i < run.length; ++i) {
        const auto magnitude = static_cast<Bits>(value[i] ^ kSign);
        value[i] = magnitude <= kNegatives ? Bits{0} : value[i];
      }
    });
  });
}

void ConvertFlat(int threads, DataType from, const void* source, DataType to,
                 void* destination, int64_t count) {
  const std::array strides = {Dims{1}};
  const LoopNest nest(Dims{count}, strides);
  WithElement(from, [&](auto* f) {
    WithElement(to, [&](auto* t) {
      using From = std::remove_pointer_t<decltype(f)>;
      using To = std::remove_pointer_t<decltype(t)>;
      nest.ForEachRun(threads, [&](const Run& run) {
        const From* in = static_cast<const From*>(source) + run.offset[0];
        To* out = static_cast<To*>(destination) + run.offset[0];
        for (int64_t i = 0; i < run.length; ++i) Store(Load(in + i), out + i);
      });
    });
  });
}

}  // namespace convgrad::onednn
