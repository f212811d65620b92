// `NetworkTensor` describes how an activation lies between the steps of a
// network. The functions append the steps that bring tensors of the caller
// there and back.
#pragma once

#include <cstdint>

#include "backends/core/physical_layout.h"
#include "backends/core/tensor_descriptor.h"
#include "backends/kernels/operators/channel_blocks.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_forms.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace convgrad::onednn {

// Instead of the channels per block.
inline constexpr int64_t kChannelsLast = 0;

// What has no more channels than this is never in blocks, which would be mostly
// padding: images, and what becomes of them before the first convolution.
inline constexpr int64_t kFewChannels = 4;

// An activation as a plan has it. Rows are images of one position, whose
// channels are the elements of the last axis; a scalar is one channel.
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

// Returns the same for the library, and for our Reorder. Requires: rank >= 2;
// for the library no turned image.
dnnl::memory::desc DescOf(const NetworkTensor& tensor);
PhysicalLayout PhysicalLayoutOf(const NetworkTensor& tensor);

// Appends steps that bring `from`, a row-major tensor of the caller or for it,
// to `to.buffer`, or the other way around.
void AddImport(BufferId from, const TensorDescriptor& descriptor,
               const NetworkTensor& to, Schedule* schedule);
void AddExport(const NetworkTensor& from, BufferId to,
               const TensorDescriptor& descriptor, Schedule* schedule);
// Whether the bytes are the same in both.
bool LiesAlike(const TensorDescriptor& descriptor, const NetworkTensor& tensor);

// Returns the tensor if it has that form, else a copy that a step makes of it.
NetworkTensor InForm(const NetworkTensor& tensor, Form form, int64_t block,
                     Schedule* schedule);

// Returns the tensor if it has that dtype, else one that a step makes of it in
// the same layout.
NetworkTensor Converted(const NetworkTensor& tensor, DataType dtype,
                        Schedule* schedule);
// Returns where a step that computes in `dtype` writes what AddConversion then
// makes `result`: that itself if it has the dtype.
NetworkTensor ComputedIn(DataType dtype, NetworkTensor result,
                         Schedule* schedule);
// Appends the conversion of a tensor to another one of the same layout, if it
// isn't the same one.
void AddConversion(const NetworkTensor& from, const NetworkTensor& to,
                   Schedule* schedule);
// Returns f32 weights, row-major, rounded to what `dtype` can hold.
BufferId RoundedWeights(BufferId weights, const Dims& dims, DataType dtype,
                        Schedule* schedule);

// Appends a copy of bytes.
void AddCopy(BufferId from, BufferId to, int64_t bytes, Schedule* schedule);

}  // namespace convgrad::onednn
