// PlanBuilder's lower half: one pass with its reorders.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "backends/onednn/onednn_plan_builder.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {

using dnnl::memory;

PlanBuilder::Side PlanBuilder::DataSide(const Tensor& tensor) const {
  const StridedView view = lowering_.Data(tensor.descriptor);
  return {view, ActivationDesc(view),
          tensor.location.At(view.offset * ByteSizeOf(view.dtype))};
}

PlanBuilder::Side PlanBuilder::OutSide(const Tensor& tensor) const {
  const StridedView view = lowering_.Out(tensor.descriptor);
  return {view, ActivationDesc(view), tensor.location};
}

PlanBuilder::Side PlanBuilder::WeightSide(const Tensor& tensor) const {
  const StridedView view = lowering_.Weight(tensor.descriptor);
  return {view, WeightDesc(view, lowering_.problem().groups),
          tensor.location.At(view.offset * ByteSizeOf(view.dtype))};
}

void PlanBuilder::AddZero(Location location, int64_t bytes) {
  program_.AddHostStep([=](const Memory& memory) {
    std::memset(memory.Write(location), 0, bytes);
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

Location PlanBuilder::Read(const Side& side, const memory::desc& wanted) {
  if (wanted == side.desc) return side.location;
  for (const Copy& copy : copies_) {
    if (copy.source == side.location && copy.desc == wanted) {
      return copy.location;
    }
  }
  const Location location =
      program_.Allocate(static_cast<int64_t>(wanted.get_size()));
  AddReorder(side.desc, side.location, wanted, location);
  copies_.push_back({side.location, wanted, location});
  return location;
}

absl::Status PlanBuilder::AddPass(Pass pass, const PassTensors& tensors) {
  PassSpec spec{.pass = pass,
                .problem = lowering_.problem(),
                .operand_dtype = OperandDtype(operation_),
                .data = tensors.data.view,
                .weight = tensors.weight.view,
                .out = tensors.out.view,
                .bias = tensors.bias_dtype,
                .threads = threads_};
  ASSIGN_OR_RETURN(const Candidate chosen, ChooseCandidate(spec));
  absl::StrAppend(&implementation_, implementation_.empty() ? "" : " ",
                  NameOf(pass), "=", chosen.implementation, "/",
                  NameOf(chosen.format));
  return Guard("planning", [&] {
    const PassArguments args = ArgumentsOf(pass);
    std::vector<Program::Argument> arguments;
    // The pass's result: written in place if the layouts agree, else reordered
    // behind the primitive.
    const Side* result = nullptr;
    Program::Argument written{};
    auto add = [&](const Side& side, const memory::desc& wanted, int arg,
                   bool is_result) {
      if (!is_result) {
        arguments.push_back({arg, wanted, Read(side, wanted)});
        return;
      }
      result = &side;
      const bool in_place = wanted == side.desc;
      written = {arg, wanted,
                 in_place ? side.location
                          : program_.Allocate(
                                static_cast<int64_t>(wanted.get_size()))};
      arguments.push_back(written);
    };
    add(tensors.data, chosen.data, args.data, pass == Pass::kBackwardData);
    add(tensors.weight, chosen.weight, args.weight,
        pass == Pass::kBackwardWeight);
    add(tensors.out, chosen.out, args.out, pass == Pass::kForward);
    if (tensors.bias_dtype) {
      arguments.push_back({args.bias, chosen.bias, tensors.bias});
    }
    if (pass == Pass::kBackwardWeight && lowering_.has_dead_inner_taps()) {
      AddZero(written.location, static_cast<int64_t>(written.desc.get_size()));
    }
    program_.AddPrimitive(true, dnnl::primitive(chosen.primitive_desc.get()),
                          chosen.scratchpad, std::move(arguments));
    if (written.desc != result->desc) {
      AddReorder(written.desc, written.location, result->desc,
                 result->location);
    }
  });
}

}  // namespace convgrad::onednn
