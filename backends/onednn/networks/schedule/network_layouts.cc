#include "backends/onednn/networks/schedule/network_layouts.h"

#include <algorithm>
#include <cstring>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {
namespace {

// Appends what widens images of bytes, whose few channels no reorder is for.
void AddImportOfBytes(BufferId from, const TensorDescriptor& descriptor,
                      const NetworkTensor& to, Schedule* schedule) {
  const bool is_last = descriptor.layout == Layout::kNXC;
  schedule->Add(
      {.kind = kLayoutKind,
       .reads = {from},
       .writes = {to.buffer},
       .function = [=](const RunContext& context) {
         const ChannelBlocks& blocks = to.blocks;
         const int64_t at_channel = is_last ? 1 : blocks.spatial;
         const int64_t at_position = is_last ? blocks.channels : 1;
         context.ForParts(
             blocks.batch * blocks.block_count(), [&](int64_t part) {
               const int64_t n = part / blocks.block_count();
               const int64_t first = part % blocks.block_count() * blocks.block;
               const auto* image = context.Read<uint8_t>(from) +
                                   n * blocks.channels * blocks.spatial;
               std::byte* out = context.At(to.buffer) +
                                part * blocks.spatial * blocks.block *
                                    ByteSizeOf(blocks.dtype);
               for (int64_t s = 0; s < blocks.spatial; ++s) {
                 for (int64_t c = first; c < first + blocks.block; ++c) {
                   const double value =
                       c < blocks.channels
                           ? image[c * at_channel + s * at_position]
                           : 0;
                   StoreRounded(blocks.dtype, value, out);
                   out += ByteSizeOf(blocks.dtype);
                 }
               }
             });
       }});
}

bool IsScalar(const NetworkTensor& tensor) { return tensor.dims.empty(); }

}  // namespace

ChannelBlocks BlocksOf(const Dims& dims, DataType dtype, int64_t block) {
  ChannelBlocks blocks;
  blocks.dtype = dtype;
  blocks.batch = dims.empty() ? 1 : dims[0];
  blocks.channels = dims.size() < 2 ? 1 : dims[1];
  blocks.spatial = 1;
  for (size_t i = 2; i < dims.size(); ++i) blocks.spatial *= dims[i];
  const bool is_blocked = dims.size() > 2 && block != kChannelsLast &&
                          blocks.channels > kFewChannels;
  blocks.block = is_blocked ? block : blocks.channels;
  return blocks;
}

dnnl::memory::desc DescOf(const NetworkTensor& tensor) {
  const dnnl::memory::dims dims(tensor.dims.begin(), tensor.dims.end());
  const ChannelBlocks& blocks = tensor.blocks;
  if (dims.size() == 2) {
    return {dims, TypeOf(blocks.dtype), dnnl::memory::format_tag::ab};
  }
  // One block lies as channels last do. The library has fast convolutions for
  // it only if it is called what its neighbours are.
  const bool is_block = blocks.block == 8 || blocks.block == 16;
  return is_block ? BlockedDesc(dims, blocks.dtype, blocks.block)
                  : FormatDesc(dims, blocks.dtype, Format::kNXC);
}

PhysicalLayout PhysicalLayoutOf(const NetworkTensor& tensor) {
  const ChannelBlocks& blocks = tensor.blocks;
  if (blocks.block != blocks.channels) {
    return ChannelBlocked(tensor.dims, blocks.block);
  }
  return convgrad::PhysicalLayoutOf(
      {blocks.dtype, Layout::kNXC, tensor.dims, 0, 1});
}

bool LiesAlike(const TensorDescriptor& descriptor,
               const NetworkTensor& tensor) {
  if (descriptor.dtype != tensor.blocks.dtype) return false;
  if (tensor.dims.size() <= 2) return true;
  const bool is_whole = tensor.blocks.block == tensor.blocks.channels;
  return is_whole &&
         (descriptor.layout == Layout::kNXC || tensor.blocks.spatial == 1 ||
          tensor.blocks.channels == 1);
}

void AddCopy(BufferId from, BufferId to, int64_t bytes, Schedule* schedule) {
  constexpr int64_t kPart = 1 << 18;
  schedule->Add(
      {.kind = kLayoutKind,
       .reads = {from},
       .writes = {to},
       .function = [=](const RunContext& context) {
         context.ForParts((bytes + kPart - 1) / kPart, [&](int64_t i) {
           std::memcpy(context.At(to) + i * kPart, context.At(from) + i * kPart,
                       std::min(kPart, bytes - i * kPart));
         });
       }});
}

void AddImport(BufferId from, const TensorDescriptor& descriptor,
               const NetworkTensor& to, Schedule* schedule) {
  if (IsScalar(to) || LiesAlike(descriptor, to)) {
    AddCopy(from, to.buffer, to.blocks.bytes(), schedule);
    return;
  }
  if (descriptor.dtype == DataType::kU8) {
    AddImportOfBytes(from, descriptor, to, schedule);
    return;
  }
  AddReorder(
      Reorder::Make(convgrad::PhysicalLayoutOf(descriptor), descriptor.dtype,
                    PhysicalLayoutOf(to), to.blocks.dtype),
      from, to.buffer, schedule);
}

void AddExport(const NetworkTensor& from, BufferId to,
               const TensorDescriptor& descriptor, Schedule* schedule) {
  if (IsScalar(from) || LiesAlike(descriptor, from)) {
    AddCopy(from.buffer, to, from.blocks.bytes(), schedule);
    return;
  }
  AddReorder(
      Reorder::Make(PhysicalLayoutOf(from), from.blocks.dtype,
                    convgrad::PhysicalLayoutOf(descriptor), descriptor.dtype),
      from.buffer, to, schedule);
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
  AddReorder(Reorder::Make(PhysicalLayoutOf(from), from.blocks.dtype,
                           PhysicalLayoutOf(to), to.blocks.dtype),
             from.buffer, to.buffer, schedule);
}

NetworkTensor Converted(const NetworkTensor& tensor, DataType dtype,
                        Schedule* schedule) {
  const NetworkTensor converted = ComputedIn(dtype, tensor, schedule);
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
