#include "backends/onednn/library/onednn_cpu.h"

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "oneapi/dnnl/dnnl.hpp"
#include "oneapi/dnnl/dnnl_debug.h"

namespace convgrad::onednn {

absl::string_view InstructionSet() {
  absl::string_view name = dnnl_cpu_isa2str(dnnl_get_effective_cpu_isa());
  absl::ConsumePrefix(&name, "cpu_isa_");
  return name == "default" ? "x64" : name;
}

bool IsFasterInBf16() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::avx512_core_bf16:
    case dnnl::cpu_isa::avx512_core_fp16:
      return __builtin_cpu_is("amd") != 0;
    default:
      return HasTiles();
  }
}

bool HasTiles() {
  const dnnl::cpu_isa isa = dnnl::get_effective_cpu_isa();
  return isa == dnnl::cpu_isa::avx512_core_amx ||
         isa == dnnl::cpu_isa::avx512_core_amx_fp16;
}

int64_t ChannelsPerBlock() {
  return absl::StartsWith(InstructionSet(), "avx512") ? 16 : 8;
}

}  // namespace convgrad::onednn
