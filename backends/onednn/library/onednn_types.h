// Converts between the core's types and oneDNN's. A dense kernel has dilation 1
// here and 0 in oneDNN, where groups are a separate axis.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/status.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Activation layouts that a plan may request from a primitive.
enum class Format { kAny, kNXC, kNCX };

// Returns "any", "nxc" or "ncx".
absl::string_view NameOf(Format format);
std::optional<Format> ParseFormat(absl::string_view name);

// Returns the CPU engine of the process.
const dnnl::engine& CpuEngine();

dnnl::memory::data_type TypeOf(DataType dtype);
// Returns the dtype of the elements. Requires: f32, bf16 or f16.
DataType DtypeOf(const dnnl::memory::desc& desc);

// Return dims as the library expects them: with groups > 1 weights become (G,
// O/G, I, kernel...).
dnnl::memory::dims ActivationDims(const StridedView& view);
dnnl::memory::dims WeightDimsOf(const ConvProblem& problem);

// Return the layout of a view, without its offset.
dnnl::memory::desc ActivationDesc(const StridedView& view);
dnnl::memory::desc WeightDesc(const StridedView& view, int64_t groups);
// Returns the descriptor of a forward's bias, in f32.
dnnl::memory::desc BiasDesc(const ConvProblem& problem);

// Returns a dense descriptor in `format`.
dnnl::memory::desc FormatDesc(const dnnl::memory::dims& dims, DataType dtype,
                              Format format);

// Returns a dense descriptor with channels in blocks of 8 or 16; the last block
// is padded with zeros.
dnnl::memory::desc BlockedDesc(const dnnl::memory::dims& dims, DataType dtype,
                               int64_t block);

// Returns whether a primitive is the library's reference implementation.
inline bool IsPlainLoop(absl::string_view implementation) {
  return absl::StartsWith(implementation, "ref");
}
inline bool IsPlainLoop(const dnnl::primitive_desc_base& primitive) {
  return IsPlainLoop(primitive.impl_info_str());
}

// Options of a plan.
struct ComputeOptions {
  // Threads of the team that runs the plan.
  int threads = 1;
  // True if bf16 is computed with the CPU's bf16 instructions wherever the
  // library has a correct implementation. Otherwise it is converted and
  // computed in f32.
  bool native_bf16 = false;
};
// Returns the same options for a team of one.
inline ComputeOptions OneThread(ComputeOptions options) {
  options.threads = 1;
  return options;
}

// Returns the dtype in which tensors of `dtype` are computed by default. f16 is
// always computed in f32: oneDNN 3.2 has only plain loops for f16
// backward-weight, and its f16 forward pass isn't faster than f32.
DataType ComputeDtype(DataType dtype, const ComputeOptions& options);

// Returns whether the library takes the tensor unchanged if it computes in
// `dtype`.
bool IsPlain(const TensorDescriptor& tensor, DataType dtype);
// Returns the descriptor of a copy of `tensor` that the library takes.
TensorDescriptor PlainDescriptor(TensorDescriptor tensor, DataType dtype);

// Returns attributes with a scratchpad of the caller and strict f32 arithmetic.
dnnl::primitive_attr StrictAttributes();

// Calls `function`, which may throw oneDNN's exceptions, and returns its Status
// or StatusOr.
// Errors: kInternal (kResourceExhausted if memory ran out) naming `what`.
template <typename Function>
std::invoke_result_t<Function> Guard(absl::string_view what,
                                     Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const dnnl::error& error) {
    return MakeError(error.status == dnnl_out_of_memory
                         ? absl::StatusCode::kResourceExhausted
                         : absl::StatusCode::kInternal,
                     {Reason::kInternal, absl::StrCat("oneDNN ", what),
                      error.what(), "success"});
  } catch (const std::exception& error) {
    return MakeError(absl::StatusCode::kInternal,
                     {Reason::kInternal, absl::StrCat("oneDNN ", what),
                      error.what(), "success"});
  }
}

}  // namespace convgrad::onednn
