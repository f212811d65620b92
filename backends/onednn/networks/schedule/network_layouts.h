// `NetworkTensor` describes an activation's memory between the steps of a
// network. The functions append steps that convert the caller's tensors to it
// and back.
#pragma once

#include <cstdint>

#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/operators/channel_blocks.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_forms.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Value that replaces the number of channels per block.
inline constexpr int64_t kChannelsLast = 0;

// Activations with at most this many channels are never in blocks, which would
// be mostly padding. These are images, and activations before the first
// convolution.
inline constexpr int64_t kFewChannels = 4;

// An activation in a plan. Rows are images of one position whose channels are
// the elements of the last axis; a scalar is one channel.
struct NetworkTensor {
  Dims dims;
  Form form = Form::kImage;
  ChannelBlocks blocks;
  BufferId buffer = kNoBuffer;
};

// Returns an activation of these dims without memory. `block` is 8, 16 or
// kChannelsLast.
NetworkTensor TensorLike(const Dims& dims, DataType dtype, Form form,
                         int64_t block);

// Returns whether the channels are in blocks of `dtype`, also in a single one.
bool IsInBlocks(const NetworkTensor& tensor, DataType dtype);

// Return the layout for the library, and the elements for our Reorder.
// Requires: rank >= 2; for the library not a turned image.
dnnl::memory::desc DescOf(const NetworkTensor& tensor);
PhysicalLayout PhysicalLayoutOf(const NetworkTensor& tensor);
Elements ElementsOf(const NetworkTensor& tensor);

// Append steps that convert `from`, a tensor of the caller, to `to.buffer`; and
// `from` to `to`, which the caller gets in f32 and row-major.
void AddImport(BufferId from, const TensorDescriptor& descriptor,
               const NetworkTensor& to, Schedule* schedule);
void AddExport(const NetworkTensor& from, BufferId to, Schedule* schedule);
// Returns whether both have the same bytes.
bool LiesAlike(const TensorDescriptor& descriptor, const NetworkTensor& tensor);

// Returns the tensor if it has that form; otherwise appends a copy to that form
// and returns the copy.
NetworkTensor InForm(const NetworkTensor& tensor, Form form, int64_t block,
                     Schedule* schedule);

// Returns the tensor if it has that dtype; otherwise appends a conversion in
// the same layout and returns its result.
NetworkTensor Converted(const NetworkTensor& tensor, DataType dtype,
                        Schedule* schedule);
// Returns the tensor to which a step that computes in `dtype` writes, for
// AddConversion to convert to `result`: `result` itself if it has this dtype.
NetworkTensor ComputedIn(DataType dtype, NetworkTensor result,
                         Schedule* schedule);
// Appends the conversion of a tensor to another one with the same layout. Does
// nothing if both are the same tensor.
void AddConversion(const NetworkTensor& from, const NetworkTensor& to,
                   Schedule* schedule);
// Returns row-major f32 weights, rounded to numbers of `dtype`.
BufferId RoundedWeights(BufferId weights, const Dims& dims, DataType dtype,
                        Schedule* schedule);

// Appends a step that writes one f32 number, and returns its buffer.
BufferId AddNumber(absl::string_view kind, float number, Schedule* schedule);
// Append a copy of bytes, and zeros for a whole buffer.
void AddCopy(BufferId from, BufferId to, int64_t bytes, Schedule* schedule);
void AddZeros(absl::string_view kind, BufferId buffer, Schedule* schedule);

}  // namespace convgrad::onednn
