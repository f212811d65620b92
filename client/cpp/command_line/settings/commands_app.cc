#include "client/cpp/command_line/settings/commands_app.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/command_line/settings/option_values.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

// Limit of --repeat and --warmup, more than any benchmark needs.
constexpr int64_t kMostCalls = 1'000'000'000;

constexpr char kProblemHelp[] =
    "PROBLEM, e.g. conv2d_n16_c64_o64_i56x56_k3_p1_b_relu: the kind (linear, "
    "conv1d to\nconv3d, convtranspose1d...), then n batch, c and o channels, i "
    "input and k kernel\nextents, s stride, d dilation, p padding (pb and pe "
    "for either end, psame,\npvalid), g groups, op output padding, b bias, res "
    "residual, relu. One number\napplies to all axes. Without a PROBLEM, check "
    "uses a built-in list.";

const char* ArgumentHelp(const std::string& argument) {
  if (argument == "PROBLEM") return "see below";
  if (argument == "SHELL") return "bash or zsh";
  return "text of a program, one step per line, e.g. y = conv(x, w, padding=1)";
}

std::string TextOf(const std::string& value) { return value; }
std::string TextOf(int64_t value) { return absl::StrCat(value); }
std::string TextOf(absl::Duration value) { return absl::FormatDuration(value); }
template <typename Value>
std::string TextOf(const Value& /*value*/) {
  return "";
}

// The app that parses, and the destinations of its results.
struct Target {
  Settings* settings;
  absl::Status* refusal;
  CLI::App* app;
};

// Adds a command with at most one argument, and its options.
class Command {
 public:
  Command(const Target& target, const std::string& name, const char* help,
          const std::string& argument = "", bool takes_many = false)
      : command_(target.app->add_subcommand(name, help)),
        refusal_(target.refusal) {
    Settings* const s = target.settings;
    command_->callback([name, s] { s->command = name; });
    if (argument.empty()) return;
    command_->add_option(argument, s->arguments, ArgumentHelp(argument))
        ->expected(takes_many ? -1 : 1)
        ->required(!takes_many)
        ->type_name("");
    if (argument == "PROBLEM") command_->footer(kProblemHelp);
  }

  // Adds an option whose value goes to `*value`; the initial value is the
  // default.
  template <typename Value>
  void Add(const OptionEntry& option, Value* value, const char* help) {
    const auto set = [=, refusal = refusal_](const CLI::results_t& texts) {
      const absl::Status status = ReadValue(option, texts.back(), value);
      if (refusal->ok()) *refusal = status;
      return true;
    };
    command_->add_option(option.name, set, help)
        ->type_name(option.kind)
        ->default_str(TextOf(*value));
  }

  // `names`: "--x", or "--x,!--nox".
  void AddSwitch(const char* names, bool* value, const char* help) {
    command_->add_flag(names, *value, help);
  }

 private:
  CLI::App* const command_;
  absl::Status* const refusal_;
};

void AddOutput(Settings* s, Command* command) {
  command->AddSwitch(
      "--json", &s->json,
      "print one JSON object, top one per line; also for errors");
}

void AddConnection(Settings* s, Command* command) {
  command->Add({"--server", "ADDRESS"}, &s->client.server,
               "HOST:PORT or unix:PATH");
  command->Add({"--ca", "FILE"}, &s->client.ca,
               "PEM file of the authorities that signed the server's "
               "certificate; turns TLS on");
  command->Add({"--cert", "FILE"}, &s->client.cert,
               "PEM file of this client's certificate");
  command->Add({"--key", "FILE"}, &s->client.key,
               "PEM file of the certificate's key");
  command->Add({"--server_name", "NAME"}, &s->client.server_name,
               "name in the server's certificate; default: the host of "
               "--server");
  command->Add({"--token", "FILE"}, &s->token_file,
               "file whose first word is the client's token");
  command->Add({"--timeout", "TIME"}, &s->timeout, "time limit of each call");
  AddOutput(s, command);
}

void AddCall(Settings* s, Command* command) {
  AddConnection(s, command);
  command->Add({"--region", "unix:PATH"}, &s->region,
               "--regions_listen of a server on this host; passes tensors "
               "through shared memory");
  command->Add({"--traceparent", "SPAN"}, &s->traceparent,
               "span that the calls belong to, as a W3C trace context");
  command->Add(
      {"--priority", "batch|interactive"}, &s->priority,
      "priority of the calls; the server takes interactive ones first");
  command->Add({"--backend", absl::StrJoin(BackendNames(), "|")}, &s->backend,
               "backend that computes; auto: the server chooses");
  command->AddSwitch("--self_check", &s->self_check,
                     "make the server check the results as well");
  command->AddSwitch("--count_nonfinite", &s->count_nonfinite,
                     "count Inf and NaN in the results");
  command->Add({"--slice_items", "NUMBER", -1}, &s->slice_items,
               "stream the operation in slices of this many batch items; -1: "
               "slices of about 16 MiB; 0: stream only if a message is too "
               "small");
  command->Add({"--dtype", "f32|bf16|f16"}, &s->dtype,
               "dtype of the operands; default f32; check tries each dtype");
  command->Add({"--layout", "NCX|NXC|NDC1HWC0"}, &s->layout,
               "layout of activations; default NCX; NHWC means NXC");
  command->Add({"--weight_layout", "OIX|OXI|XIO|FRACTAL_Z_3D"},
               &s->given_weight_layout,
               "layout of weights; default OIX, or OXI with --layout=NXC; HWIO "
               "means XIO");
  command->Add({"--result_dtype", "f32|bf16|f16"}, &s->result_dtypes,
               "dtype of all results, or of some "
               "(grad_input=f32,grad_weight=bf16); default: f32 for "
               "grad_weight and grad_bias, else the operands' dtype");
  command->Add(
      {"--result_layout", "NCX|NXC|NDC1HWC0|OIX|OXI|XIO|FRACTAL_Z_3D"},
      &s->result_layouts,
      "layout of all results, or of some (grad_input=NCX,grad_weight=XIO); "
      "default: the operands' layout");
  command->Add({"--seed", "NUMBER"}, &s->seed, "seed of random tensors");
}

void AddTensors(Settings* s, Command* command) {
  command->Add({"--scale", "FACTOR"}, &s->scales,
               "factor of all results, or of some (grad_weight=0.125), applied "
               "before the single rounding");
  command->Add(
      {"--gradients", "grad_input|grad_weight|grad_bias|grad_residual"},
      &s->gradients, "gradients to compute, separated by commas");
  command->AddSwitch("--integers", &s->integers,
                     "use small integers as random tensors, for exact results");
  command->Add({"--operands", "FILE"}, &s->operands,
               ".npz file that contains operands under their names, e.g. "
               "input, weight");
  const std::pair<Operand, const char*> kFiles[] = {
      {Operand::kInput, ".npy or .npz file in logical order (N, C, ...)"},
      {Operand::kWeight, ".npy or .npz file in order (O, C/groups, kernel...)"},
      {Operand::kBias, ".npy or .npz file"},
      {Operand::kResidual, ".npy or .npz file with the output's shape"},
      {Operand::kGradOutput, ".npy or .npz file with the output's shape"},
      {Operand::kOutput,
       ".npy or .npz file with the forward's output, for the ReLU mask"}};
  for (const auto& [operand, help] : kFiles) {
    command->Add({absl::StrCat("--", NameOf(operand)), "FILE"},
                 &s->files[PositionOf(operand)], help);
  }
}

// Adds the commands that compute.
void AddCalls(const Target& target) {
  Settings* const s = target.settings;
  for (const auto& [name, help] :
       {std::pair("backward",
                  "compute and check gradients of files or random tensors"),
        {"forward", "compute a convolution with bias, residual and ReLU"}}) {
    Command command(target, name, help, "PROBLEM");
    AddCall(s, &command);
    AddTensors(s, &command);
    command.Add({"--out", "FILE"}, &s->out,
                "prefix of the files that results are written to "
                "(PREFIXgrad_input.npy), a directory if it ends in /; or one "
                "file, X.npz");
    command.AddSwitch("--check,!--nocheck", &s->check,
                      "check results by adjoint identities");
  }
  Command bench(target, "bench",
                "measure times, GFLOP/s and the server's stages of many calls",
                "PROBLEM");
  AddCall(s, &bench);
  AddTensors(s, &bench);
  bench.Add({"--direction", "backward|forward"}, &s->bench_direction,
            "direction of the calls; default backward");
  bench.Add({"--repeat", "NUMBER", 1, kMostCalls}, &s->repeat,
            "number of timed calls");
  bench.Add({"--warmup", "NUMBER", 0, kMostCalls}, &s->warmup,
            "number of calls before the timed ones");
  Command check(target, "check",
                "compare the server's results with its reference backend",
                "PROBLEM", /*takes_many=*/true);
  AddCall(s, &check);
}

}  // namespace

void AddCommands(Settings* s, absl::Status* refusal, CLI::App* app) {
  const Target target = {s, refusal, app};
  AddCalls(target);
  Command top(target, "top", "show the server's activity live, by its metrics");
  AddOutput(s, &top);
  top.Add({"--metrics", "HOST:PORT"}, &s->metrics,
          "--metrics_listen of the server");
  top.Add({"--timeout", "TIME"}, &s->timeout, "time limit of each scrape");
  top.Add({"--interval", "TIME"}, &s->interval, "time between tables");
  top.Add({"--count", "NUMBER"}, &s->count,
          "number of tables to show; 0: until interrupted");
  Command sessions(target, "sessions",
                   "list this client's sessions on the server, or end one");
  AddConnection(s, &sessions);
  sessions.AddSwitch("--everybody", &s->everybody,
                     "list the sessions of all clients; requires the role "
                     "admin");
  sessions.Add({"--close", "HANDLE"}, &s->close,
               "end the session with this handle, then list the others");
  Command program(
      target, "program",
      "print a network's steps, shapes, parameters and flops; needs no server",
      "FILE");
  AddOutput(s, &program);
  program.Add({"--input", "DIMS"}, &s->program_inputs,
              "dims of the inputs: of one 16x3x224x224, of several "
              "x=16x3x224x224,t=16");
  Command capabilities(target, "capabilities",
                       "print what the server's backends support");
  AddConnection(s, &capabilities);
  Command(target, "completions", "print a completion script for bash or zsh",
          "SHELL");
}

}  // namespace convgrad
