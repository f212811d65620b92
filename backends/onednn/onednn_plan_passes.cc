// PlanBuilder's lower half: one pass with its reorders.
#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Below, starting a loop of ours costs more than it gains.
constexpr int64_t kLargeTensor = int64_t{1} << 20;

// What the library reads and writes without help: row-major, in a dtype that it
// computes in.
bool IsPlain(const TensorDescriptor& tensor) {
  return IsRowMajor(tensor.layout) &&
         tensor.dtype == ComputeDtype(tensor.dtype);
}

TensorDescriptor PlainDescriptor(TensorDescriptor tensor) {
  tensor.dtype = ComputeDtype(tensor.dtype);
  if (!IsRowMajor(tensor.layout)) {
    tensor.layout = IsWeightLayout(tensor.layout) ? Layout::kOIX : Layout::kNXC;
  }
  return tensor;
}

}  // namespace

StridedView PlanBuilder::ViewOf(Role role,
                                const TensorDescriptor& tensor) const {
  switch (role) {
    case Role::kData:
      return lowering_.Data(tensor);
    case Role::kOut:
      return lowering_.Out(tensor);
    case Role::kWeight:
      break;
  }
  return lowering_.Weight(tensor);
}

memory::desc PlanBuilder::DescOf(Role role, const StridedView& view) const {
  return role == Role::kWeight ? WeightDesc(view, lowering_.problem().groups)
                               : ActivationDesc(view);
}

bool PlanBuilder::Crops(Role role) const {
  return (role == Role::kData && lowering_.crops_data()) ||
         (role == Role::kWeight && lowering_.crops_weight());
}

void PlanBuilder::AddZero(Location location, int64_t bytes) {
  program_.AddHostStep({}, [=](const Memory& memory) {
    std::memset(memory.Write(location), 0, bytes);
  });
}

void PlanBuilder::AddZeroDeadTaps(const Tensor& gradient) {
  // The offsets of one output and input channel's dead taps; the others' are as
  // far from their first element.
  const TensorDescriptor& tensor = gradient.descriptor;
  const Dims strides = Strides(tensor);
  const absl::Span<const int64_t> kernel =
      absl::MakeConstSpan(tensor.dims).subspan(2);
  int64_t taps = 1;
  for (int64_t extent : kernel) taps *= extent;
  std::vector<int64_t> offsets;
  for (int64_t flat = 0; flat < taps; ++flat) {
    int64_t offset = 0;
    bool is_dead = false;
    int64_t rest = flat;
    for (size_t i = kernel.size(); i-- > 0; rest /= kernel[i]) {
      const int64_t tap = rest % kernel[i];
      const Dims& dead = lowering_.dead_taps()[i];
      is_dead |= std::find(dead.begin(), dead.end(), tap) != dead.end();
      offset += tap * strides[i + 2];
    }
    if (is_dead) offsets.push_back(offset);
  }
  program_.AddHostStep({}, [=](const Memory& memory) {
    auto* data = static_cast<std::byte*>(memory.Write(gradient.location));
    const int64_t size = ByteSizeOf(tensor.dtype);
    for (int64_t o = 0; o < tensor.dims[0]; ++o) {
      for (int64_t i = 0; i < tensor.dims[1]; ++i) {
        const int64_t base = o * strides[0] + i * strides[1];
        for (int64_t offset : offsets) {
          std::memset(data + (base + offset) * size, 0, size);
        }
      }
    }
  });
}

void PlanBuilder::AddReorder(const memory::desc& from, Location source,
                             const memory::desc& to, Location destination) {
  const dnnl::reorder::primitive_desc reorder(CpuEngine(), from, CpuEngine(),
                                              to, StrictAttributes());
  program_.AddPrimitive(
      false, dnnl::reorder(reorder), reorder.scratchpad_desc(),
      {{DNNL_ARG_FROM, from, source}, {DNNL_ARG_TO, to, destination}});
}

void PlanBuilder::AddReorder(Reorder reorder, Location source,
                             Location destination) {
  const auto shared = std::make_shared<const Reorder>(std::move(reorder));
  program_.AddHostStep({source}, [=, threads = threads_](const Memory& memory) {
    const void* from = memory.Read(source);
    void* to = memory.Write(destination);
    ParallelFor(threads, shared->part_count(), 1,
                [&](int, int64_t begin, int64_t end) {
                  shared->Run(from, to, begin, end);
                });
  });
}

std::optional<PhysicalLayout> PlanBuilder::KnownLayout(
    Role role, const TensorDescriptor& tensor, const memory::desc& desc) const {
  if (role == Role::kWeight || Crops(role) || operation_.problem.axes.empty()) {
    return std::nullopt;
  }
  const TensorDescriptor plain = PlainDescriptor(tensor);
  const memory::dims dims(tensor.dims.begin(), tensor.dims.end());
  for (Format format : {Format::kNXC, Format::kNCX}) {
    if (desc == FormatDesc(dims, plain.dtype, format)) {
      const Layout layout =
          format == Format::kNXC ? Layout::kNXC : Layout::kNCX;
      return PhysicalLayoutOf({plain.dtype, layout, tensor.dims});
    }
  }
  for (int64_t block : {8, 16}) {
    if (desc == BlockedDesc(dims, plain.dtype, block)) {
      return ChannelBlocked(tensor.dims, block);
    }
  }
  return std::nullopt;
}

bool PlanBuilder::IsMadePlain(const Side& side,
                              const memory::desc& wanted) const {
  const TensorDescriptor& tensor = side.tensor.descriptor;
  return !IsPlain(tensor) &&
         DescOf(side.role, ViewOf(side.role, PlainDescriptor(tensor))) ==
             wanted;
}

bool PlanBuilder::ReordersItself(const Side& side,
                                 const memory::desc& wanted) const {
  const TensorDescriptor& tensor = side.tensor.descriptor;
  if (!IsPlain(tensor)) return true;
  if (DescOf(side.role, ViewOf(side.role, tensor)) == wanted) return false;
  // Measured on an EPYC 9004 (tests/bench/compute_ratio): 16-bit tensors of two
  // networks gained 5 to 15 % of a whole pass, large f32 ones 10 % between NCX
  // and NXC; to the library's blocks it is the faster one in f32.
  if (ByteSizeOf(tensor.dtype) == 2) return true;
  return wanted.get_inner_nblks() == 0 && *ByteSize(tensor) >= kLargeTensor;
}

PlanBuilder::Tensor PlanBuilder::AllocatePlain(const TensorDescriptor& tensor) {
  const TensorDescriptor plain = PlainDescriptor(tensor);
  return {plain, program_.Allocate(*ByteSize(plain))};
}

PlanBuilder::Tensor PlanBuilder::Plain(const Tensor& tensor) {
  if (IsPlain(tensor.descriptor)) return tensor;
  for (const auto& [source, plain] : plains_) {
    if (source == tensor.location) return plain;
  }
  Tensor plain = {PlainDescriptor(tensor.descriptor), {}};
  plain.location = AllocateCopy(tensor, PhysicalLayoutOf(plain.descriptor),
                                *ByteSize(plain.descriptor));
  AddReorder(Reorder::Make(tensor.descriptor, plain.descriptor),
             tensor.location, plain.location);
  plains_.emplace_back(tensor.location, plain);
  return plain;
}

Location PlanBuilder::AllocateCopy(const Tensor& tensor,
                                   const PhysicalLayout& layout,
                                   int64_t bytes) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  const auto operand = static_cast<Operand>(tensor.location.index);
  if (tensor.location.area == Location::Area::kOperand &&
      !program_.HasIntake(operand)) {
    auto intake = Intake::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                               layout, ComputeDtype(descriptor.dtype));
    if (intake && intake->destination_bytes() == bytes) {
      return program_.AllocateIntake(operand, *std::move(intake));
    }
  }
  return program_.Allocate(bytes);
}

Location PlanBuilder::ReadWeight(const Tensor& weight,
                                 const memory::desc& wanted) {
  const bool is_plain = IsPlain(weight.descriptor);
  const TensorDescriptor plain = PlainDescriptor(weight.descriptor);
  const StridedView view = ViewOf(Role::kWeight, plain);
  const memory::desc from = DescOf(Role::kWeight, view);
  const int64_t offset = view.offset * ByteSizeOf(view.dtype);
  Location location = weight.location;
  program_.SetPreparesWeight(true);
  if (!is_plain) {
    const int64_t bytes = *ByteSize(plain);
    location = from == wanted ? program_.AllocatePreparedWeight(bytes)
                              : program_.Allocate(bytes);
    AddReorder(Reorder::Make(weight.descriptor, plain), weight.location,
               location);
  }
  location = location.At(offset);
  if (from != wanted) {
    const Location source = location;
    location = program_.AllocatePreparedWeight(
        static_cast<int64_t>(wanted.get_size()));
    AddReorder(from, source, wanted, location);
  }
  program_.SetPreparesWeight(false);
  return location;
}

Location PlanBuilder::Read(const Side& side, const memory::desc& wanted) {
  if (side.role == Role::kWeight) return ReadWeight(side.tensor, wanted);
  const TensorDescriptor& descriptor = side.tensor.descriptor;
  for (const Copy& copy : copies_) {
    if (copy.source == side.tensor.location && copy.desc == wanted) {
      return copy.location;
    }
  }
  const auto known = KnownLayout(side.role, descriptor, wanted);
  const bool is_ours =
      known && ReordersItself(side, wanted) && !IsMadePlain(side, wanted);
  const Tensor plain = is_ours ? side.tensor : Plain(side.tensor);
  Location source = plain.location;
  memory::desc from;
  if (!is_ours) {
    const StridedView view = ViewOf(side.role, plain.descriptor);
    from = DescOf(side.role, view);
    source = source.At(view.offset * ByteSizeOf(view.dtype));
    if (from == wanted) return source;
  }
  const auto bytes = static_cast<int64_t>(wanted.get_size());
  const Location location =
      known ? AllocateCopy(plain, *known, bytes) : program_.Allocate(bytes);
  if (is_ours) {
    AddReorder(Reorder::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                             *known, ComputeDtype(descriptor.dtype)),
               source, location);
  } else {
    AddReorder(from, source, wanted, location);
  }
  copies_.push_back({side.tensor.location, wanted, location});
  return location;
}

Location PlanBuilder::Write(const Side& side, const memory::desc& wanted,
                            std::function<void()>* finish) {
  const TensorDescriptor& descriptor = side.tensor.descriptor;
  const Location result = side.tensor.location;
  if (ReordersItself(side, wanted)) {
    if (const auto known = KnownLayout(side.role, descriptor, wanted)) {
      const Location written =
          program_.Allocate(static_cast<int64_t>(wanted.get_size()));
      *finish = [=, this] {
        AddReorder(
            Reorder::Make(*known, ComputeDtype(descriptor.dtype),
                          PhysicalLayoutOf(descriptor), descriptor.dtype),
            written, result);
      };
      return written;
    }
  }
  const bool is_plain = IsPlain(descriptor);
  const Tensor plain = is_plain ? side.tensor : AllocatePlain(descriptor);
  if (Crops(side.role)) AddZero(plain.location, *ByteSize(plain.descriptor));
  const StridedView view = ViewOf(side.role, plain.descriptor);
  const memory::desc to = DescOf(side.role, view);
  const Location target =
      plain.location.At(view.offset * ByteSizeOf(view.dtype));
  const Location written =
      wanted == to ? target
                   : program_.Allocate(static_cast<int64_t>(wanted.get_size()));
  *finish = [=, this] {
    if (wanted != to) AddReorder(wanted, written, to, target);
    if (side.role == Role::kWeight && lowering_.has_dead_inner_taps()) {
      AddZeroDeadTaps(plain);
    }
    if (is_plain) return;
    AddReorder(Reorder::Make(plain.descriptor, descriptor), plain.location,
               result);
  };
  return written;
}

PassSpec PlanBuilder::SpecOf(Pass pass, const PassTensors& tensors,
                             bool shares) const {
  const auto view = [&](Role role, const Tensor& tensor) {
    return ViewOf(role, PlainDescriptor(tensor.descriptor));
  };
  const Shared gradient = lowering_.mirrored() ? Shared::kData : Shared::kOut;
  return {.pass = pass,
          .problem = lowering_.problem(),
          .operand_dtype = ComputeDtype(OperandDtype(operation_)),
          .data = view(Role::kData, tensors.data),
          .weight = view(Role::kWeight, tensors.weight),
          .out = view(Role::kOut, tensors.out),
          .bias = tensors.bias_dtype,
          .copies_data = !IsPlain(tensors.data.descriptor),
          .copies_out = !IsPlain(tensors.out.descriptor),
          .shared = shares ? gradient : Shared::kNothing,
          .threads = threads_};
}

absl::Status PlanBuilder::AddPass(Pass pass, const PassTensors& tensors,
                                  const Candidate& chosen) {
  const Side data{Role::kData, tensors.data};
  const Side weight{Role::kWeight, tensors.weight};
  const Side out{Role::kOut, tensors.out};
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ",
                  NameOf(pass), "=", chosen.implementation, "/",
                  NameOf(chosen.format));
  return Guard("planning", [&] {
    const PassArguments args = ArgumentsOf(pass);
    std::vector<Program::Argument> arguments;
    std::function<void()> finish;
    const auto add = [&](const Side& side, const memory::desc& wanted, int arg,
                         bool is_result) {
      const Location location =
          is_result ? Write(side, wanted, &finish) : Read(side, wanted);
      arguments.push_back({arg, wanted, location});
    };
    add(data, chosen.data, args.data, pass == Pass::kBackwardData);
    add(weight, chosen.weight, args.weight, pass == Pass::kBackwardWeight);
    add(out, chosen.out, args.out, pass == Pass::kForward);
    if (tensors.bias_dtype) {
      arguments.push_back({args.bias, chosen.bias, tensors.bias});
    }
    program_.AddPrimitive(true, dnnl::primitive(chosen.primitive_desc.get()),
                          chosen.scratchpad, std::move(arguments));
    finish();
  });
}

}  // namespace convgrad::onednn
