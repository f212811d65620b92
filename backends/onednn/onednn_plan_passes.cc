// PlanBuilder's lower half: one pass.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {

using dnnl::memory;

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

PassSpec PlanBuilder::SpecOf(Pass pass, const PassTensors& tensors,
                             bool shares) const {
  const auto dtype = [&](const Tensor& tensor) {
    return ComputeDtype(tensor.descriptor.dtype, options_);
  };
  const auto view = [&](Role role, const Tensor& tensor) {
    return ViewOf(role, PlainDescriptor(tensor.descriptor, dtype(tensor)));
  };
  const Shared gradient = lowering_.mirrored() ? Shared::kData : Shared::kOut;
  return {.pass = pass,
          .problem = lowering_.problem(),
          .operand_dtype = ComputeDtype(operation_.dtype(), options_),
          .data = view(Role::kData, tensors.data),
          .weight = view(Role::kWeight, tensors.weight),
          .out = view(Role::kOut, tensors.out),
          .bias = tensors.bias_dtype,
          .copies_data = !IsPlain(tensors.data.descriptor, dtype(tensors.data)),
          .copies_out = !IsPlain(tensors.out.descriptor, dtype(tensors.out)),
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
