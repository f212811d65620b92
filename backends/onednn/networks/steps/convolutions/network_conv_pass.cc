#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"

#include "backends/core/status.h"
#include "backends/onednn/library/onednn_candidates.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"

namespace convgrad::onednn {
namespace {

// Returns the library's primitive for a pass on activations with these layouts
// or, if it isn't fast, with the library's own layouts; empty if it has none.
dnnl::primitive_desc_base ChoosePass(const ConvPass& pass, ConvDescs descs) {
  const dnnl::primitive_desc_base as_they_lie =
      MakePassDesc(pass.pass, pass.problem, descs);
  if (as_they_lie && !IsPlainLoop(as_they_lie)) return as_they_lie;
  descs.data = WithAnyLayout(descs.data);
  descs.out = WithAnyLayout(descs.out);
  return MakePassDesc(pass.pass, pass.problem, descs);
}

}  // namespace

void AddConvPass(const ConvPass& pass, Schedule* schedule) {
  const bool has_bias = pass.bias != kNoBuffer;
  const DataType dtype = DtypeOf(pass.out.desc);
  ConvDescs descs = {pass.data.desc,
                     ConvWeightDesc(pass.pass, pass.problem, dtype),
                     pass.out.desc,
                     {}};
  if (has_bias) descs.bias = BiasDesc(pass.problem);
  const dnnl::primitive_desc_base chosen = ChoosePass(pass, descs);
  if (!chosen) {
    schedule->Fail(Unsupported(pass.name, ToString(pass.problem),
                               "a convolution that oneDNN has"));
    return;
  }
  const PassArguments args = ArgumentsOf(pass.pass);
  LibraryStep step(
      {.kind = pass.kind, .macs = pass.macs, .primitive_desc = chosen},
      schedule);
  const auto add = [&](Role role, const LibraryTensor& tensor, int arg) {
    if (role == ResultOf(pass.pass)) {
      step.Write(arg, tensor);
    } else {
      step.Read(arg, tensor);
    }
  };
  add(Role::kData, pass.data, args.data);
  add(Role::kWeight, pass.weight, args.weight);
  add(Role::kOut, pass.out, args.out);
  if (has_bias) step.Read(DNNL_ARG_BIAS, {pass.bias, descs.bias});
  step.Finish();
}

}  // namespace convgrad::onednn
