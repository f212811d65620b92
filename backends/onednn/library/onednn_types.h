// Between the core's types and oneDNN's. The dilation's origin differs (1 is a
// dense kernel here, 0 there), groups are an axis of their own there.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "backends/core/convolution/lowering.h"
#include "backends/core/status.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Activation layouts that a primitive may be asked to work in.
enum class Format { kAny, kNXC, kNCX };

// Returns "any", "nxc" or "ncx".
absl::string_view NameOf(Format format);
std::optional<Format> ParseFormat(absl::string_view name);

// Returns the process's one CPU engine.
const dnnl::engine& CpuEngine();

dnnl::memory::data_type TypeOf(DataType dtype);
// Returns the dtype of the elements. Requires: f32, bf16 or f16.
DataType DtypeOf(const dnnl::memory::desc& desc);

// Returns `dims` as the library wants them: with groups > 1 weights become
// (G, O/G, I, kernel...).
dnnl::memory::dims ActivationDims(const StridedView& view);
dnnl::memory::dims WeightDimsOf(const ConvProblem& problem);

// Return how a view lies in memory, its offset not counted.
dnnl::memory::desc ActivationDesc(const StridedView& view);
dnnl::memory::desc WeightDesc(const StridedView& view, int64_t groups);

// Returns a dense descriptor in `format`.
dnnl::memory::desc FormatDesc(const dnnl::memory::dims& dims, DataType dtype,
                              Format format);

// Returns a dense descriptor with the channels in blocks of 8 or 16, the last
// one padded with zeros.
dnnl::memory::desc BlockedDesc(const dnnl::memory::dims& dims, DataType dtype,
                               int64_t block);

// What a plan is made for.
struct ComputeOptions {
  // Threads of the team that runs the plan.
  int threads = 1;
  // Whether bf16 is computed by the CPU's own instructions where the library
  // has a right way to do so. Otherwise it is converted and computed in f32.
  bool native_bf16 = false;
};
// Returns the same options for a team of one.
inline ComputeOptions OneThread(ComputeOptions options) {
  options.threads = 1;
  return options;
}

// Returns the dtype that tensors of `dtype` are computed in where nothing
// forbids it. f16 is always computed in f32: oneDNN 3.2 has no f16
// backward-weight but plain loops, and its f16 forward gains nothing over f32.
DataType ComputeDtype(DataType dtype, const ComputeOptions& options);

// Whether the library takes the tensor as it is where it computes in `dtype`.
bool IsPlain(const TensorDescriptor& tensor, DataType dtype);
// Returns the descriptor of a copy of `tensor` that it takes.
TensorDescriptor PlainDescriptor(TensorDescriptor tensor, DataType dtype);

// Returns attributes with a caller's scratchpad and strict f32 arithmetic.
dnnl::primitive_attr StrictAttributes();

// Calls `function`, which may throw what oneDNN throws.
// Errors: kInternal (kResourceExhausted if memory ran out) naming `what`.
template <typename Function>
absl::Status Guard(absl::string_view what, Function&& function) {
  try {
    std::forward<Function>(function)();
    return absl::OkStatus();
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
