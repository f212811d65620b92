#include "backends/onednn/convolutions/onednn_library_pass.h"

#include <functional>

#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

PassSpec SpecOf(const PlacedPass& pass, const Lowering& lowering,
                const ComputeOptions& options, DataType operands, bool shares) {
  const auto plain = [&](const Tensor& tensor) {
    const TensorDescriptor& descriptor = tensor.descriptor;
    return PlainDescriptor(descriptor, ComputeDtype(descriptor.dtype, options));
  };
  const auto view = [&](Role role, const Tensor& tensor) {
    return lowering.View(role, plain(tensor));
  };
  const auto is_copied = [&](const Tensor& tensor) {
    return tensor.descriptor != plain(tensor);
  };
  const Shared gradient = lowering.mirrored() ? Shared::kData : Shared::kOut;
  return {.pass = pass.pass,
          .problem = lowering.problem(),
          .operand_dtype = ComputeDtype(operands, options),
          .data = view(Role::kData, pass.data),
          .weight = view(Role::kWeight, pass.weight),
          .out = view(Role::kOut, pass.out),
          .has_bias = pass.bias.has_value(),
          .copies_data = is_copied(pass.data),
          .copies_out = is_copied(pass.out),
          .shared = shares ? gradient : Shared::kNothing,
          .threads = options.threads};
}

absl::Status AddLibraryPass(const PlacedPass& pass, const Lowering& lowering,
                            const Candidate& chosen, TensorCopies* copies,
                            Schedule* schedule) {
  return Guard("planning", [&] {
    const PassArguments args = ArgumentsOf(pass.pass);
    LibraryStep step({.primitive_desc = chosen.primitive_desc}, schedule);
    std::function<void()> finish;
    const auto add = [&](Role role, const Tensor& tensor,
                         const dnnl::memory::desc& wanted, int arg) {
      const LoweredTensor lowered(lowering, role, tensor);
      if (role == ResultOf(pass.pass)) {
        step.Write(arg, {copies->Write(lowered, wanted, &finish), wanted});
      } else {
        step.Read(arg, {copies->Read(lowered, wanted), wanted});
      }
    };
    add(Role::kData, pass.data, chosen.data, args.data);
    add(Role::kWeight, pass.weight, chosen.weight, args.weight);
    add(Role::kOut, pass.out, chosen.out, args.out);
    if (pass.bias) {
      step.Read(DNNL_ARG_BIAS,
                {pass.bias->location, BiasDesc(lowering.problem())});
    }
    step.Finish();
    finish();
    return absl::OkStatus();
  });
}

}  // namespace convgrad::onednn
