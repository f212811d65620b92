// PlanBuilder's way between the caller's tensors and the layouts that a pass
// wants.
#include <memory>

#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_threads.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// Below, starting a loop of ours costs more than it gains.
constexpr int64_t kLargeTensor = int64_t{1} << 20;

}  // namespace

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
  if (role == Role::kWeight || operation_.problem.axes.empty() ||
      (Crops(role) && !IsRowMajor(tensor.layout))) {
    return std::nullopt;
  }
  const StridedView view = ViewOf(role, PlainDescriptor(tensor, DtypeOf(desc)));
  const memory::dims dims = ActivationDims(view);
  for (Format format : {Format::kNXC, Format::kNCX}) {
    if (desc == FormatDesc(dims, view.dtype, format)) {
      const Layout layout =
          format == Format::kNXC ? Layout::kNXC : Layout::kNCX;
      return PhysicalLayoutOf({view.dtype, layout, view.dims});
    }
  }
  for (int64_t block : {8, 16}) {
    if (desc == BlockedDesc(dims, view.dtype, block)) {
      return ChannelBlocked(view.dims, block);
    }
  }
  return std::nullopt;
}

bool PlanBuilder::IsMadePlain(const Side& side,
                              const memory::desc& wanted) const {
  const TensorDescriptor& tensor = side.tensor.descriptor;
  const DataType dtype = DtypeOf(wanted);
  return !IsPlain(tensor, dtype) &&
         DescOf(side.role, ViewOf(side.role, PlainDescriptor(tensor, dtype))) ==
             wanted;
}

bool PlanBuilder::ReordersItself(const Side& side,
                                 const memory::desc& wanted) const {
  const TensorDescriptor& tensor = side.tensor.descriptor;
  if (!IsPlain(tensor, DtypeOf(wanted)) || Crops(side.role)) return true;
  if (DescOf(side.role, ViewOf(side.role, tensor)) == wanted) return false;
  // Measured on an EPYC 9004 (tests/bench/compute_ratio): 16-bit tensors of two
  // networks gained 5 to 15 % of a whole pass, large f32 ones 10 % between NCX
  // and NXC; to the library's blocks it is the faster one in f32.
  if (ByteSizeOf(tensor.dtype) == 2) return true;
  return wanted.get_inner_nblks() == 0 && *ByteSize(tensor) >= kLargeTensor;
}

PlanBuilder::Tensor PlanBuilder::AllocatePlain(const TensorDescriptor& tensor,
                                               DataType dtype) {
  const TensorDescriptor plain = PlainDescriptor(tensor, dtype);
  return {plain, program_.Allocate(*ByteSize(plain))};
}

PlanBuilder::Tensor PlanBuilder::Plain(const Tensor& tensor, DataType dtype) {
  if (IsPlain(tensor.descriptor, dtype)) return tensor;
  for (const auto& [source, plain] : plains_) {
    if (source == tensor.location && plain.descriptor.dtype == dtype) {
      return plain;
    }
  }
  Tensor plain = {PlainDescriptor(tensor.descriptor, dtype), {}};
  plain.location =
      AllocateCopy(tensor, {PhysicalLayoutOf(plain.descriptor), dtype},
                   *ByteSize(plain.descriptor));
  AddReorder(Reorder::Make(tensor.descriptor, plain.descriptor),
             tensor.location, plain.location);
  plains_.emplace_back(tensor.location, plain);
  return plain;
}

PlanBuilder::Tensor PlanBuilder::RowMajorOf(const Tensor& tensor) {
  for (const auto& [source, plain] : plains_) {
    if (source == tensor.location) return plain;
  }
  return Plain(tensor, tensor.descriptor.dtype);
}

Location PlanBuilder::AllocateCopy(const Tensor& tensor, const Form& form,
                                   int64_t bytes) {
  const TensorDescriptor& descriptor = tensor.descriptor;
  const auto operand = static_cast<Operand>(tensor.location.index);
  if (tensor.location.area == Location::Area::kOperand &&
      !program_.HasGather(operand)) {
    auto gather =
        ScatteredReorder::Make(PhysicalLayoutOf(descriptor), descriptor.dtype,
                               form.layout, form.dtype);
    if (gather && gather->destination_bytes() == bytes) {
      return program_.AllocateGathered(operand, *std::move(gather));
    }
  }
  return program_.Allocate(bytes);
}

Location PlanBuilder::ReadWeight(const Tensor& weight,
                                 const memory::desc& wanted) {
  const DataType dtype = DtypeOf(wanted);
  const bool is_plain = IsPlain(weight.descriptor, dtype);
  const TensorDescriptor plain = PlainDescriptor(weight.descriptor, dtype);
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
  const DataType dtype = DtypeOf(wanted);
  const Tensor plain = is_ours ? side.tensor : Plain(side.tensor, dtype);
  Location source = plain.location;
  memory::desc from;
  if (!is_ours) {
    const StridedView view = ViewOf(side.role, plain.descriptor);
    from = DescOf(side.role, view);
    source = source.At(view.offset * ByteSizeOf(view.dtype));
    if (from == wanted) return source;
  }
  const auto bytes = static_cast<int64_t>(wanted.get_size());
  const Location location = known && !Crops(side.role)
                                ? AllocateCopy(plain, {*known, dtype}, bytes)
                                : program_.Allocate(bytes);
  if (is_ours) {
    AddRead(side, {*known, dtype}, location);
  } else {
    AddReorder(from, source, wanted, location);
  }
  copies_.push_back({side.tensor.location, wanted, location});
  return location;
}

Location PlanBuilder::Write(const Side& side, const memory::desc& wanted,
                            std::function<void()>* finish) {
  const TensorDescriptor& descriptor = side.tensor.descriptor;
  const DataType dtype = DtypeOf(wanted);
  const Location result = side.tensor.location;
  if (ReordersItself(side, wanted)) {
    if (const auto known = KnownLayout(side.role, descriptor, wanted)) {
      const Location written =
          program_.Allocate(static_cast<int64_t>(wanted.get_size()));
      *finish = [=, this] { AddWrite({*known, dtype}, written, side); };
      return written;
    }
  }
  const bool is_plain = IsPlain(descriptor, dtype);
  const Tensor plain =
      is_plain ? side.tensor : AllocatePlain(descriptor, dtype);
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

}  // namespace convgrad::onednn
