#include "client/cpp/command_line/flags.h"

#include <algorithm>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "proto/codec.h"

namespace convgrad {
namespace {

// Returns the names of BackendChoice as a flag's words.
absl::string_view BackendWords() {
  static const auto& words =
      *new std::string(absl::StrJoin(BackendNames(), " "));
  return words;
}

// Returns "a, b or c" for "a b c".
std::string Alternatives(absl::string_view words) {
  std::string text = absl::StrReplaceAll(words, {{" ", ", "}});
  if (const size_t last = text.rfind(", "); last != std::string::npos) {
    text.replace(last, 2, " or ");
  }
  return text;
}

}  // namespace
}  // namespace convgrad

ABSL_FLAG(std::string, server, "127.0.0.1:7070", "HOST:PORT or unix:PATH");
ABSL_FLAG(std::string, ca, "",
          "PEM file of the authorities behind the server's certificate: speak "
          "TLS");
ABSL_FLAG(std::string, cert, "", "PEM file of this client's certificate");
ABSL_FLAG(std::string, key, "", "PEM file of its key");
ABSL_FLAG(std::string, token, "", "file whose first word is the token");
ABSL_FLAG(std::string, region, "",
          "unix:PATH of a local server's --regions_listen: tensors go through "
          "shared memory");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(60), "of each call");
ABSL_FLAG(std::string, traceparent, "",
          "the span that calls belong to, as W3C's trace context has it");
ABSL_FLAG(std::string, priority, "batch",
          "batch or interactive, which the server takes first");
ABSL_FLAG(std::string, backend, "auto",
          convgrad::Alternatives(convgrad::BackendWords()));
ABSL_FLAG(bool, self_check, false, "let the server check the results, too");
ABSL_FLAG(bool, count_nonfinite, false, "count Inf and NaN in the results");
ABSL_FLAG(bool, deterministic, true,
          "plans from heuristics and the server's plan file only");
ABSL_FLAG(
    int64_t, slice_items, 0,
    "stream the operation in slices of so many items of the batch; -1: as "
    "many as the contract works out; 0: no stream unless a message is too "
    "small");
ABSL_FLAG(std::string, dtype, "",
          "of the operands: f32, bf16 or f16; default f32, of check each in "
          "turn");
ABSL_FLAG(std::string, layout, "NCX", "of activations: NCX, NXC or NDC1HWC0");
ABSL_FLAG(std::string, weight_layout, "",
          "OIX, OXI, XIO or FRACTAL_Z_3D; default OIX, with NXC OXI");
ABSL_FLAG(std::string, result_dtype, "",
          "of all results (f32), or of some (grad_input=f32,grad_weight=bf16)");
ABSL_FLAG(
    std::string, result_layout, "",
    "of all results, or of some (grad_input=NCX,grad_weight=XIO); default "
    "that of the operands");
ABSL_FLAG(std::string, scale, "",
          "factor of all results, or of some (grad_weight=0.125), applied "
          "before the one rounding");
ABSL_FLAG(std::string, gradients, "",
          "comma-separated: grad_input, grad_weight, grad_bias, grad_residual");
ABSL_FLAG(uint64_t, seed, 1, "of random tensors");
ABSL_FLAG(bool, integers, false,
          "random tensors of small integers, for exact results");
ABSL_FLAG(std::string, operands, "",
          ".npz file that has operands under their names, e.g. input, weight");
ABSL_FLAG(std::string, input, "",
          ".npy file in logical order (N, C, ...), or .npz file that has it");
ABSL_FLAG(std::string, weight, "", ".npy file, (O, C/groups, kernel...)");
ABSL_FLAG(std::string, bias, "", ".npy file");
ABSL_FLAG(std::string, residual, "", ".npy file, like output");
ABSL_FLAG(std::string, grad_output, "", ".npy file, like output");
ABSL_FLAG(std::string, output, "",
          ".npy file: the forward's output, for the ReLU mask");
ABSL_FLAG(std::string, out, "",
          "write results as PREFIXgrad_input.npy..., a directory ends in /; or "
          "into one file, X.npz");
ABSL_FLAG(bool, check, true, "check results by adjoint identities");
ABSL_FLAG(std::string, direction, "backward", "of bench: backward or forward");
ABSL_FLAG(int, repeat, 20, "timed calls of bench");
ABSL_FLAG(int, warmup, 3, "calls before the timed ones of bench");
ABSL_FLAG(bool, json, false,
          "print one JSON object, of top one a line; errors, too");
ABSL_FLAG(std::string, metrics, "127.0.0.1:9464",
          "of top: HOST:PORT of the server's --metrics_listen");
ABSL_FLAG(absl::Duration, interval, absl::Seconds(2), "of top: between tables");
ABSL_FLAG(int, count, 0, "of top: tables until it ends; 0: until interrupted");

namespace convgrad {

absl::Span<const FlagEntry> AllFlags() {
  static const FlagEntry kFlags[] = {
      {"server"},
      {"ca", kFiles},
      {"cert", kFiles},
      {"key", kFiles},
      {"token", kFiles},
      {"region"},
      {"timeout"},
      {"traceparent"},
      {"priority", "batch interactive"},
      {"backend", BackendWords()},
      {"deterministic", kSwitch},
      {"dtype", "f32 bf16 f16"},
      {"layout", "NCX NXC NDC1HWC0"},
      {"weight_layout", "OIX OXI XIO FRACTAL_Z_3D"},
      {"result_dtype", "f32 bf16 f16"},
      {"result_layout", "NCX NXC NDC1HWC0 OIX OXI XIO FRACTAL_Z_3D"},
      {"scale"},
      {"gradients", "grad_input grad_weight grad_bias grad_residual"},
      {"seed"},
      {"integers", kSwitch},
      {"operands", kFiles},
      {"input", kFiles},
      {"weight", kFiles},
      {"bias", kFiles},
      {"residual", kFiles},
      {"grad_output", kFiles},
      {"output", kFiles},
      {"out", kFiles},
      {"json", kSwitch},
      {"check", kSwitch},
      {"self_check", kSwitch},
      {"count_nonfinite", kSwitch},
      {"slice_items"},
      {"direction", "backward forward"},
      {"repeat"},
      {"warmup"},
      {"metrics"},
      {"interval"},
      {"count"}};
  return kFlags;
}

absl::Status BadFlag(absl::string_view flag, absl::string_view found,
                     absl::string_view expected) {
  return InvalidField(Reason::kOutOfRange, absl::StrCat("--", flag),
                      absl::StrCat("\"", found, "\""), expected);
}

absl::Status CheckWord(absl::string_view flag, absl::string_view value) {
  const auto entry = std::find_if(
      AllFlags().begin(), AllFlags().end(),
      [&](const FlagEntry& candidate) { return candidate.name == flag; });
  const std::vector<absl::string_view> words =
      absl::StrSplit(entry->values, ' ');
  if (absl::c_linear_search(words, value)) return absl::OkStatus();
  return BadFlag(flag, value, Alternatives(entry->values));
}

std::string HelpOf(const FlagEntry& entry) {
  return absl::FindCommandLineFlag(entry.name)->Help();
}

std::string FlagHelp() {
  std::string help;
  for (const FlagEntry& entry : AllFlags()) {
    const std::string value =
        absl::FindCommandLineFlag(entry.name)->DefaultValue();
    absl::StrAppendFormat(&help, "  --%-15s %s%s\n", entry.name, HelpOf(entry),
                          value.empty() ? "" : absl::StrCat(" [", value, "]"));
  }
  return help;
}

}  // namespace convgrad
