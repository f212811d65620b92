// convgrad: one layer's gradients from the command line.
#include <malloc.h>

#include <iostream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/status.h"
#include "client/cpp/client.h"
#include "client/cpp/command_line/commands.h"
#include "client/cpp/command_line/output.h"
#include "client/cpp/command_line/settings.h"

namespace convgrad {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

constexpr char kUsage[] =
    R"(convgrad: convolution gradients from a convgrad server.

  convgrad backward PROBLEM   gradients of random or .npy tensors, checked
  convgrad forward PROBLEM    the convolution with bias, residual and ReLU
  convgrad bench PROBLEM      time, GFLOP/s and the server's stages over calls
  convgrad capabilities       what the server's backends can do
  convgrad help               this text (also --help); --version

PROBLEM, e.g. conv2d_n16_c64_o64_i56x56_k3_p1_b_relu: the kind (linear, conv1d to
conv3d, convtranspose1d...), then n batch, c and o channels, i input and k kernel
extents, s stride, d dilation, p padding (pb and pe for either end, psame,
pvalid), g groups, op output padding, b bias, res residual, relu. One number
stands for all axes.

)";

void PrintHelp() { std::cout << kUsage << FlagHelp(); }

absl::Status UsageError(const std::string& message) {
  return absl::InvalidArgumentError(
      absl::StrCat(message, "; convgrad help lists what there is"));
}

absl::Status RunProblem(const std::string& command, const std::string& text,
                        const Settings& settings, Client* client) {
  ASSIGN_OR_RETURN(const ConvProblem problem, Parse(text));
  if (command == "bench") return RunBench(problem, settings, client);
  return RunOnce(
      command == "forward" ? Direction::kForward : Direction::kBackward,
      problem, settings, client);
}

absl::Status RunCommand(const std::vector<char*>& arguments) {
  if (arguments.size() < 2) return UsageError("a command is missing");
  const std::string command = arguments[1];
  const bool takes_problem =
      command == "backward" || command == "forward" || command == "bench";
  if (!takes_problem && command != "capabilities") {
    return UsageError(absl::StrCat("unknown command \"", command, "\""));
  }
  if (takes_problem && arguments.size() < 3) {
    return UsageError(absl::StrCat(command, " needs a PROBLEM"));
  }
  const size_t expected = takes_problem ? 3 : 2;
  if (arguments.size() > expected) {
    return UsageError(
        absl::StrCat("unexpected argument \"", arguments[expected], "\""));
  }
  ASSIGN_OR_RETURN(const Settings settings, ReadSettings());
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                   Client::Connect(settings.client));
  if (takes_problem) {
    return RunProblem(command, arguments[2], settings, client.get());
  }
  ASSIGN_OR_RETURN(const v1::GetCapabilitiesResponse response,
                   client->Capabilities(absl::Now() + settings.timeout));
  PrintCapabilities(response);
  return absl::OkStatus();
}

// Keeps large buffers in the heap: a fresh mapping for every message costs more
// in page faults than its bytes do.
void KeepLargeBuffers() {
  constexpr int kThreshold = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kThreshold);
  mallopt(M_TRIM_THRESHOLD, kThreshold);
}

int Main(int argc, char** argv) {
  // Before the flags' own --help, which lists source files.
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--") break;
    if (argument == "--help" || argument == "-h" || argument == "-help" ||
        (argument == "help" && i == 1)) {
      PrintHelp();
      return 0;
    }
    if (argument == "--version") {
      std::cout << "convgrad " CONVGRAD_VERSION "\n";
      return 0;
    }
  }
  KeepLargeBuffers();
  const absl::Status status = RunCommand(absl::ParseCommandLine(argc, argv));
  if (status.ok()) return 0;
  PrintError(status);
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage
                                                             : kExitFailed;
}

}  // namespace
}  // namespace convgrad

int main(int argc, char** argv) try {
  return convgrad::Main(argc, argv);
} catch (const std::bad_alloc&) {
  std::cerr << "convgrad: not enough memory for these tensors\n";
  return convgrad::kExitFailed;
}
