#include "backends/onednn/networks/schedule/network_layouts.h"

#include <algorithm>
#include <cstring>

#include "backends/core/checked_math.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Returns whether an image and rows of the same dims have the same bytes.
bool LiesInRows(const NetworkTensor& a, const NetworkTensor& b) {
  const bool has_rows = a.form == Form::kRows || b.form == Form::kRows;
  const NetworkTensor& image = a.form == Form::kRows ? b : a;
  const ChannelBlocks& blocks = image.blocks;
  const bool is_whole = blocks.block == blocks.channels;
  return has_rows && blocks.padded_channels() == blocks.channels &&
         (blocks.spatial == 1 ||
          (is_whole &&
           (blocks.channels == 1 || image.form == Form::kTurnedImage)));
}

bool IsScalar(const NetworkTensor& tensor) { return tensor.dims.empty(); }

// Calls body(offset, count) for chunks of `bytes` bytes on the run's team.
void ForChunks(int64_t bytes, const RunContext& context,
               absl::FunctionRef<void(int64_t, int64_t)> body) {
  constexpr int64_t kChunk = 1 << 18;
  context.ForParts(CeilDiv(bytes, kChunk), [&](int64_t i) {
    body(i * kChunk, std::min(kChunk, bytes - i * kChunk));
  });
}

}  // namespace

NetworkTensor TensorLike(const Dims& dims, DataType dtype, Form form,
                         int64_t block) {
  NetworkTensor tensor = {dims, dims.size() <= 2 ? Form::kRows : form, {}};
  ChannelBlocks& blocks = tensor.blocks;
  blocks.dtype = dtype;
  blocks.spatial = 1;
  if (tensor.form == Form::kRows) {
    blocks.batch = 1;
    for (size_t i = 0; i + 1 < dims.size(); ++i) blocks.batch *= dims[i];
    if (dims.size() == 1) blocks.batch = dims[0];
    blocks.channels = dims.size() < 2 ? 1 : dims.back();
    blocks.block = blocks.channels;
    return tensor;
  }
  const size_t channels = form == Form::kImage ? 1 : dims.size() - 1;
  blocks.batch = dims[0];
  blocks.channels = dims[channels];
  for (size_t i = 1; i < dims.size(); ++i) {
    if (i != channels) blocks.spatial *= dims[i];
  }
  const bool is_blocked =
      block != kChannelsLast && blocks.channels > kFewChannels;
  blocks.block = is_blocked ? block : blocks.channels;
  return tensor;
}

bool IsInBlocks(const NetworkTensor& tensor, DataType dtype) {
  const ChannelBlocks& blocks = tensor.blocks;
  return blocks.dtype == dtype && (blocks.block == 8 || blocks.block == 16);
}

dnnl::memory::desc DescOf(const NetworkTensor& tensor) {
  const ChannelBlocks& blocks = tensor.blocks;
  if (tensor.form == Form::kRows) {
    return {{blocks.batch, blocks.channels},
            TypeOf(blocks.dtype),
            dnnl::memory::format_tag::ab};
  }
  const dnnl::memory::dims dims(tensor.dims.begin(), tensor.dims.end());
  // A single block has the same bytes as channels last. The library has fast
  // convolutions for it only if its layout is named like its neighbours'.
  const bool is_block = blocks.block == 8 || blocks.block == 16;
  return is_block ? BlockedDesc(dims, blocks.dtype, blocks.block)
                  : FormatDesc(dims, blocks.dtype, Format::kNXC);
}

PhysicalLayout PhysicalLayoutOf(const NetworkTensor& tensor) {
  const ChannelBlocks& blocks = tensor.blocks;
  if (blocks.block != blocks.channels) {
    Dims dims = tensor.dims;
    const bool is_turned = tensor.form == Form::kTurnedImage;
    if (is_turned) std::rotate(dims.begin() + 1, dims.end() - 1, dims.end());
    PhysicalLayout layout = ChannelBlocked(dims, blocks.block);
    auto& axes = layout.axes;
    if (is_turned) std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
    return layout;
  }
  const Layout layout =
      tensor.form == Form::kImage ? Layout::kNXC : Layout::kNCX;
  return convgrad::PhysicalLayoutOf({blocks.dtype, layout, tensor.dims, 0, 1});
}

Elements ElementsOf(const NetworkTensor& tensor) {
  return {PhysicalLayoutOf(tensor), tensor.blocks.dtype, tensor.buffer};
}

bool LiesAlike(const TensorDescriptor& descriptor,
               const NetworkTensor& tensor) {
  if (descriptor.dtype != tensor.blocks.dtype) return false;
  if (tensor.dims.size() <= 2) return true;
  if (tensor.form == Form::kRows) return descriptor.layout == Layout::kNCX;
  const bool is_whole = tensor.blocks.block == tensor.blocks.channels;
  if (tensor.form == Form::kTurnedImage) {
    return is_whole && descriptor.layout == Layout::kNCX;
  }
  return is_whole &&
         (descriptor.layout == Layout::kNXC || tensor.blocks.spatial == 1 ||
          tensor.blocks.channels == 1);
}

BufferId AddNumber(absl::string_view kind, float number, Schedule* schedule) {
  const BufferId buffer = schedule->AddArray<float>(1);
  schedule->Add(kind, {}, {buffer}, [=](const RunContext& context) {
    *context.Write<float>(buffer) = number;
  });
  return buffer;
}

void AddCopy(BufferId from, BufferId to, int64_t bytes, Schedule* schedule) {
  schedule->Add(kLayoutKind, {from}, {to}, [=](const RunContext& context) {
    ForChunks(bytes, context, [&](int64_t at, int64_t count) {
      std::memcpy(context.At(to) + at, context.At(from) + at, count);
    });
  });
}

void AddZeros(absl::string_view kind, BufferId buffer, Schedule* schedule) {
  const int64_t bytes = schedule->buffers()[buffer].bytes;
  schedule->Add(kind, {}, {buffer}, [=](const RunContext& context) {
    ForChunks(bytes, context, [&](int64_t at, int64_t count) {
      std::memset(context.At(buffer) + at, 0, count);
    });
  });
}

void AddImport(BufferId from, const TensorDescriptor& descriptor,
               const NetworkTensor& to, Schedule* schedule) {
  if (IsScalar(to) || LiesAlike(descriptor, to)) {
    AddCopy(from, to.buffer, to.blocks.bytes(), schedule);
    return;
  }
  AddReorder({convgrad::PhysicalLayoutOf(descriptor), descriptor.dtype, from},
             ElementsOf(to), schedule);
}

void AddExport(const NetworkTensor& from, BufferId to, Schedule* schedule) {
  const TensorDescriptor descriptor = {.dims = from.dims};
  if (IsScalar(from) || LiesAlike(descriptor, from)) {
    AddCopy(from.buffer, to, from.blocks.bytes(), schedule);
    return;
  }
  AddReorder(ElementsOf(from),
             {convgrad::PhysicalLayoutOf(descriptor), descriptor.dtype, to},
             schedule);
}

NetworkTensor InForm(const NetworkTensor& tensor, Form form, int64_t block,
                     Schedule* schedule) {
  NetworkTensor other =
      TensorLike(tensor.dims, tensor.blocks.dtype, form, block);
  if (other.form == tensor.form || LiesInRows(tensor, other)) {
    other.buffer = tensor.buffer;
    return other;
  }
  other.buffer = schedule->AddBuffer(other.blocks.bytes());
  AddConversion(tensor, other, schedule);
  return other;
}

NetworkTensor ComputedIn(DataType dtype, NetworkTensor result,
                         Schedule* schedule) {
  if (result.blocks.dtype == dtype) return result;
  result.blocks.dtype = dtype;
  result.buffer = schedule->AddBuffer(result.blocks.bytes());
  return result;
}

void AddConversion(const NetworkTensor& from, const NetworkTensor& to,
                   Schedule* schedule) {
  if (from.buffer == to.buffer) return;
  AddReorder(ElementsOf(from), ElementsOf(to), schedule);
}

NetworkTensor Converted(const NetworkTensor& tensor, DataType dtype,
                        Schedule* schedule) {
  NetworkTensor converted = ComputedIn(dtype, tensor, schedule);
  AddConversion(tensor, converted, schedule);
  return converted;
}

BufferId RoundedWeights(BufferId weights, const Dims& dims, DataType dtype,
                        Schedule* schedule) {
  if (dtype == DataType::kF32) return weights;
  const TensorDescriptor wide = {DataType::kF32, Layout::kOIX, dims, 0, 1};
  const TensorDescriptor narrow = {dtype, Layout::kOIX, dims, 0, 1};
  const BufferId rounded = schedule->AddBuffer(*ByteSize(narrow));
  const BufferId widened = schedule->AddBuffer(*ByteSize(wide));
  AddReorder(Reorder::Make(wide, narrow), weights, rounded, schedule);
  AddReorder(Reorder::Make(narrow, wide), rounded, widened, schedule);
  return widened;
}

}  // namespace convgrad::onednn
