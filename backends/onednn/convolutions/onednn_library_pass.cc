#include "backends/onednn/convolutions/onednn_library_pass.h"

#include <functional>
#include <utility>
#include <vector>

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
  std::optional<DataType> bias;
  if (pass.bias) bias = pass.bias->descriptor.dtype;
  const Shared gradient = lowering.mirrored() ? Shared::kData : Shared::kOut;
  return {.pass = pass.pass,
          .problem = lowering.problem(),
          .operand_dtype = ComputeDtype(operands, options),
          .data = view(Role::kData, pass.data),
          .weight = view(Role::kWeight, pass.weight),
          .out = view(Role::kOut, pass.out),
          .bias = bias,
          .copies_data = is_copied(pass.data),
          .copies_out = is_copied(pass.out),
          .shared = shares ? gradient : Shared::kNothing,
          .threads = options.threads};
}

absl::Status AddLibraryPass(const PlacedPass& pass, const Lowering& lowering,
                            const Candidate& chosen, TensorCopies* copies,
                            Program* program) {
  return Guard("planning", [&] {
    const PassArguments args = ArgumentsOf(pass.pass);
    std::vector<Program::Argument> arguments;
    std::function<void()> finish;
    const auto add = [&](Role role, const Tensor& tensor,
                         const dnnl::memory::desc& wanted, int arg) {
      const LoweredTensor lowered(lowering, role, tensor);
      const Location location = role == ResultOf(pass.pass)
                                    ? copies->Write(lowered, wanted, &finish)
                                    : copies->Read(lowered, wanted);
      arguments.push_back({arg, wanted, location});
    };
    add(Role::kData, pass.data, chosen.data, args.data);
    add(Role::kWeight, pass.weight, chosen.weight, args.weight);
    add(Role::kOut, pass.out, chosen.out, args.out);
    if (pass.bias) {
      arguments.push_back({args.bias, chosen.bias, pass.bias->location});
    }
    program->Add({.is_compute = true,
                  .primitive = dnnl::primitive(chosen.primitive_desc.get()),
                  .scratchpad = chosen.scratchpad,
                  .arguments = std::move(arguments)});
    finish();
  });
}

}  // namespace convgrad::onednn
