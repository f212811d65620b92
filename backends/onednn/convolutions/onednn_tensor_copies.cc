#include "backends/onednn/convolutions/onednn_tensor_copies.h"

#include <utility>

#include "backends/onednn/library/onednn_threads.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

using dnnl::memory;

Tensor TensorCopies::Plain(const Tensor& tensor, DataType dtype) {
  if (IsPlain(tensor.descriptor, dtype)) return tensor;
  for (const auto& [source, plain] : plains_) {
    if (source == tensor.location && plain.descriptor.dtype == dtype) {
      return plain;
    }
  }
  Tensor plain =
      NewTensor(PlainDescriptor(tensor.descriptor, dtype), &schedule_);
  AddReorder(tensor, plain, &schedule_);
  plains_.emplace_back(tensor.location, plain);
  return plain;
}

Tensor TensorCopies::RowMajor(const Tensor& tensor) {
  for (const auto& [source, plain] : plains_) {
    if (source == tensor.location) return plain;
  }
  return Plain(tensor, tensor.descriptor.dtype);
}

Location TensorCopies::ReadWeight(const LoweredTensor& weight,
                                  const memory::desc& wanted) {
  const Tensor& tensor = weight.tensor();
  Tensor plain = {PlainDescriptor(tensor.descriptor, DtypeOf(wanted)),
                  tensor.location};
  if (plain.descriptor != tensor.descriptor) {
    plain = NewTensor(plain.descriptor, &schedule_);
    AddReorder(tensor, plain, &schedule_);
  }
  const LibraryTensor seen = weight.SeenIn(plain);
  if (seen.desc == wanted) return seen.location;
  const Location copy =
      schedule_.AddBuffer(static_cast<int64_t>(wanted.get_size()));
  AddReorder(seen, {copy, wanted}, &schedule_);
  return copy;
}

Location TensorCopies::Read(const LoweredTensor& tensor,
                            const memory::desc& wanted) {
  if (tensor.role() == Role::kWeight) return ReadWeight(tensor, wanted);
  const Location& caller = tensor.tensor().location;
  for (const auto& [source, made] : copies_) {
    if (source == caller && made.desc == wanted) return made.location;
  }
  const auto known = tensor.KnownLayout(wanted);
  const bool is_ours =
      known && tensor.PrefersOurReorder(wanted) && !tensor.IsMadePlain(wanted);
  const DataType dtype = DtypeOf(wanted);
  const Tensor source =
      is_ours ? tensor.tensor() : Plain(tensor.tensor(), dtype);
  LibraryTensor seen;
  if (!is_ours) {
    seen = tensor.SeenIn(source);
    if (seen.desc == wanted) return seen.location;
  }
  const Location location =
      schedule_.AddBuffer(static_cast<int64_t>(wanted.get_size()));
  if (is_ours) {
    AddRead(tensor, {*known, dtype, location});
  } else {
    AddReorder(seen, {location, wanted}, &schedule_);
  }
  copies_.push_back({caller, {location, wanted}});
  return location;
}

Location TensorCopies::Write(const LoweredTensor& tensor,
                             const memory::desc& wanted,
                             std::function<void()>* finish) {
  const Tensor& result = tensor.tensor();
  const DataType dtype = DtypeOf(wanted);
  const auto allocate = [&] {
    return schedule_.AddBuffer(static_cast<int64_t>(wanted.get_size()));
  };
  if (tensor.PrefersOurReorder(wanted)) {
    if (const auto known = tensor.KnownLayout(wanted)) {
      const Location written = allocate();
      *finish = [=, this] { AddWrite({*known, dtype, written}, tensor); };
      return written;
    }
  }
  const bool is_plain = IsPlain(result.descriptor, dtype);
  const Tensor plain =
      is_plain
          ? result
          : NewTensor(PlainDescriptor(result.descriptor, dtype), &schedule_);
  if (tensor.crops()) AddZero(plain, &schedule_);
  const LibraryTensor seen = tensor.SeenIn(plain);
  const Location written = wanted == seen.desc ? seen.location : allocate();
  *finish = [=, this] {
    if (wanted != seen.desc) {
      AddReorder({written, wanted}, seen, &schedule_);
    }
    if (tensor.role() == Role::kWeight &&
        tensor.lowering().has_dead_inner_taps()) {
      AddZeroDeadTaps(tensor.lowering(), plain, &schedule_);
    }
    if (!is_plain) AddReorder(plain, tensor.tensor(), &schedule_);
  };
  return written;
}

void TensorCopies::AddRead(const LoweredTensor& tensor, const Elements& to) {
  const auto gather = tensor.Gather();
  if (gather == nullptr) {
    AddReorder(tensor.Part(), to, &schedule_);
    return;
  }
  const Tensor dense = NewTensor(tensor.DensePart(), &schedule_);
  const Location whole = tensor.tensor().location, part = dense.location;
  schedule_.Add(kLayoutKind, {whole}, {part}, [=](const RunContext& at) {
    ParallelFor(at.threads(), gather->planes(), 1,
                [&](int, int64_t begin, int64_t end) {
                  gather->Gather(at.At(whole), at.At(part), begin, end);
                });
  });
  AddReorder(ElementsOf(dense), to, &schedule_);
}

void TensorCopies::AddWrite(Elements from, const LoweredTensor& tensor) {
  if (const auto gather = tensor.Gather()) {
    const Tensor dense = NewTensor(tensor.DensePart(), &schedule_);
    const Location whole = tensor.tensor().location, part = dense.location;
    AddReorder(from, ElementsOf(dense), &schedule_);
    schedule_.Add(kLayoutKind, {part}, {whole}, [=](const RunContext& at) {
      ParallelFor(at.threads(), gather->planes(), 1,
                  [&](int, int64_t begin, int64_t end) {
                    gather->Spread(at.At(part), at.At(whole), begin, end);
                  });
    });
    return;
  }
  Elements to = tensor.Part();
  if (tensor.HasStepsOnly()) {
    // Adds, for each spatial axis, one for the elements between those of the
    // view. A copy along it writes the first element and zeros the others.
    const Dims& steps = tensor.lowering().data_steps();
    for (size_t i = 0; i < steps.size(); ++i) {
      const int64_t stride = to.layout.axes[i + 2].stride / steps[i];
      from.layout.axes.push_back({1, stride});
      to.layout.axes.push_back({1, stride, 0, 0, 0, steps[i]});
    }
  } else if (tensor.crops()) {
    AddZero(tensor.tensor(), &schedule_);
  }
  AddReorder(from, to, &schedule_);
}

}  // namespace convgrad::onednn
