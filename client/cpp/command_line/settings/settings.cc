#include "client/cpp/command_line/settings/settings.h"

#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "backends/core/status.h"
#include "client/cpp/command_line/settings/flags.h"

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
ABSL_FLAG(std::string, backend, "auto", convgrad::AlternativesOf("backend"));
ABSL_FLAG(bool, self_check, false, "let the server check the results, too");
ABSL_FLAG(bool, count_nonfinite, false, "count Inf and NaN in the results");
ABSL_FLAG(bool, deterministic, true, "accepted, and changes nothing");
ABSL_FLAG(
    int64_t, slice_items, 0,
    "stream the operation in slices of so many items of the batch; -1: as "
    "many as the contract works out; 0: no stream unless a message is too "
    "small");
ABSL_FLAG(std::string, dtype, "",
          "of the operands: f32, bf16 or f16; default f32, of check each in "
          "turn");
ABSL_FLAG(std::string, layout, "NCX",
          "of activations: NCX, NXC or NDC1HWC0; NHWC and the like are NXC");
ABSL_FLAG(
    std::string, weight_layout, "",
    "OIX, OXI, XIO or FRACTAL_Z_3D; HWIO and the like are XIO; default OIX, "
    "with NXC OXI");
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
          ".npy file in logical order (N, C, ...), or .npz file that has it; "
          "of program: dims, 16x3x224x224 or x=16x3x224x224,t=16");
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
ABSL_FLAG(bool, everybody, false,
          "sessions: everybody's, which takes the role admin");
ABSL_FLAG(std::string, close, "",
          "sessions: end the one with this handle before they are listed");
ABSL_FLAG(bool, json, false,
          "print one JSON object, of top one a line; errors, too");
ABSL_FLAG(std::string, metrics, "127.0.0.1:9464",
          "of top: HOST:PORT of the server's --metrics_listen");
ABSL_FLAG(absl::Duration, interval, absl::Seconds(2), "of top: between tables");
ABSL_FLAG(int, count, 0, "of top: tables until it ends; 0: until interrupted");

namespace convgrad {
namespace {

absl::Status BadFlag(absl::string_view flag, absl::string_view found,
                     absl::string_view expected) {
  return InvalidField(Reason::kOutOfRange, absl::StrCat("--", flag),
                      absl::StrCat("\"", found, "\""), expected);
}

absl::Status CheckWord(absl::string_view flag, absl::string_view value) {
  if (absl::c_linear_search(WordsOf(flag), value)) return absl::OkStatus();
  return BadFlag(flag, value, AlternativesOf(flag));
}

absl::StatusOr<DataType> DtypeFlag(absl::string_view flag,
                                   absl::string_view value) {
  RETURN_IF_ERROR(CheckWord(flag, value));
  return *ParseDataType(value);
}

absl::StatusOr<Layout> LayoutFlag(absl::string_view flag,
                                  absl::string_view value) {
  const std::optional<Layout> layout = ParseLayout(value);
  RETURN_IF_ERROR(CheckWord(flag, layout ? NameOf(*layout) : value));
  return *layout;
}

absl::StatusOr<Result> ResultFlag(absl::string_view flag,
                                  absl::string_view value) {
  for (Result which : kAllResults) {
    if (NameOf(which) == value) return which;
  }
  return BadFlag(flag, value,
                 "output, grad_input, grad_weight, grad_bias or grad_residual");
}

// Reads "VALUE" for every result, or "RESULT=VALUE,...".
template <typename Value, typename Read>
absl::Status ReadPerResult(
    absl::string_view flag, const std::string& text, Read read,
    std::array<std::optional<Value>, kResultCount>* values) {
  for (absl::string_view part :
       absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    if (pair.second.empty()) {
      ASSIGN_OR_RETURN(const Value value, read(flag, part));
      values->fill(value);
      continue;
    }
    ASSIGN_OR_RETURN(const Result which, ResultFlag(flag, pair.first));
    ASSIGN_OR_RETURN((*values)[static_cast<size_t>(which)],
                     read(flag, pair.second));
  }
  return absl::OkStatus();
}

absl::StatusOr<float> ScaleFlag(absl::string_view flag,
                                absl::string_view value) {
  float scale;
  if (absl::SimpleAtof(value, &scale) && scale != 0) return scale;
  return BadFlag(flag, value, "a number other than 0");
}

absl::StatusOr<ClientOptions> ReadClientFlags() {
  ClientOptions options;
  options.server = absl::GetFlag(FLAGS_server);
  options.ca = absl::GetFlag(FLAGS_ca);
  options.cert = absl::GetFlag(FLAGS_cert);
  options.key = absl::GetFlag(FLAGS_key);
  const std::string file = absl::GetFlag(FLAGS_token);
  if (file.empty()) return options;
  if (std::ifstream(file) >> options.token) return options;
  return BadFlag("token", file, "a file with a token");
}

absl::Status ReadResultFlags(Settings* settings) {
  RETURN_IF_ERROR(ReadPerResult("result_dtype",
                                absl::GetFlag(FLAGS_result_dtype), DtypeFlag,
                                &settings->result_dtypes));
  RETURN_IF_ERROR(ReadPerResult("result_layout",
                                absl::GetFlag(FLAGS_result_layout), LayoutFlag,
                                &settings->result_layouts));
  return ReadPerResult("scale", absl::GetFlag(FLAGS_scale), ScaleFlag,
                       &settings->scales);
}

absl::Status ReadTensorFlags(Settings* settings) {
  if (const std::string dtype = absl::GetFlag(FLAGS_dtype); !dtype.empty()) {
    ASSIGN_OR_RETURN(settings->dtype, DtypeFlag("dtype", dtype));
    settings->check_dtypes = {settings->dtype};
  }
  ASSIGN_OR_RETURN(settings->layout,
                   LayoutFlag("layout", absl::GetFlag(FLAGS_layout)));
  std::string weight_layout = absl::GetFlag(FLAGS_weight_layout);
  if (weight_layout.empty()) {
    weight_layout = settings->layout == Layout::kNXC ? "OXI" : "OIX";
  }
  ASSIGN_OR_RETURN(settings->weight_layout,
                   LayoutFlag("weight_layout", weight_layout));
  RETURN_IF_ERROR(ReadResultFlags(settings));
  const std::string gradients = absl::GetFlag(FLAGS_gradients);
  for (absl::string_view name :
       absl::StrSplit(gradients, ',', absl::SkipWhitespace())) {
    ASSIGN_OR_RETURN(const Result which, ResultFlag("gradients", name));
    settings->gradients.push_back(which);
  }
  settings->operands = absl::GetFlag(FLAGS_operands);
  settings->files = {
      absl::GetFlag(FLAGS_input),       absl::GetFlag(FLAGS_weight),
      absl::GetFlag(FLAGS_bias),        absl::GetFlag(FLAGS_residual),
      absl::GetFlag(FLAGS_grad_output), absl::GetFlag(FLAGS_output)};
  return absl::OkStatus();
}

absl::Status ReadTopFlags(Settings* settings) {
  settings->metrics = absl::GetFlag(FLAGS_metrics);
  settings->interval = absl::GetFlag(FLAGS_interval);
  settings->count = absl::GetFlag(FLAGS_count);
  if (settings->interval <= absl::ZeroDuration()) {
    return BadFlag("interval", absl::FormatDuration(settings->interval),
                   "more than 0, e.g. 2s");
  }
  if (settings->count < 0) {
    return BadFlag("count", absl::StrCat(settings->count), "at least 0");
  }
  return absl::OkStatus();
}

absl::Status ReadBenchFlags(Settings* settings) {
  const std::string direction = absl::GetFlag(FLAGS_direction);
  RETURN_IF_ERROR(CheckWord("direction", direction));
  settings->bench_direction =
      direction == "forward" ? Direction::kForward : Direction::kBackward;
  settings->repeat = absl::GetFlag(FLAGS_repeat);
  settings->warmup = absl::GetFlag(FLAGS_warmup);
  if (settings->repeat < 1) {
    return BadFlag("repeat", absl::StrCat(settings->repeat), "at least 1");
  }
  if (settings->warmup < 0) {
    return BadFlag("warmup", absl::StrCat(settings->warmup), "at least 0");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Settings> ReadSettings() {
  Settings settings;
  ASSIGN_OR_RETURN(settings.client, ReadClientFlags());
  settings.region = absl::GetFlag(FLAGS_region);
  settings.timeout = absl::GetFlag(FLAGS_timeout);
  settings.traceparent = absl::GetFlag(FLAGS_traceparent);
  settings.priority = absl::GetFlag(FLAGS_priority);
  if (settings.timeout <= absl::ZeroDuration()) {
    return BadFlag("timeout", absl::FormatDuration(settings.timeout),
                   "more than 0, e.g. 10s");
  }
  settings.backend = absl::GetFlag(FLAGS_backend);
  if (settings.backend == "auto") settings.backend = "";
  if (!settings.backend.empty()) {
    RETURN_IF_ERROR(CheckWord("backend", settings.backend));
  }
  settings.deterministic = absl::GetFlag(FLAGS_deterministic);
  settings.self_check = absl::GetFlag(FLAGS_self_check);
  settings.slice_items = absl::GetFlag(FLAGS_slice_items);
  if (settings.slice_items < -1) {
    return BadFlag("slice_items", absl::StrCat(settings.slice_items),
                   "at least -1");
  }
  settings.count_nonfinite = absl::GetFlag(FLAGS_count_nonfinite);
  settings.seed = absl::GetFlag(FLAGS_seed);
  settings.integers = absl::GetFlag(FLAGS_integers);
  settings.out = absl::GetFlag(FLAGS_out);
  settings.check = absl::GetFlag(FLAGS_check);
  RETURN_IF_ERROR(ReadTensorFlags(&settings));
  RETURN_IF_ERROR(ReadBenchFlags(&settings));
  RETURN_IF_ERROR(ReadTopFlags(&settings));
  return settings;
}

}  // namespace convgrad
