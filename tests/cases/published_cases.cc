// This program runs the published cases end to end through a real server.
#include <iostream>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tests/cases/case_folder.h"
#include "tests/cases/case_server.h"

ABSL_FLAG(std::string, path, "message",
          "how operations get to the server: message, stock, stream or region");
ABSL_FLAG(int, workers, 1, "the server's");
ABSL_FLAG(int, threads_per_worker, 0, "the server's; 0 is all cores");

namespace convgrad::testing_support {
namespace {

int Main() {
  CaseServer::Options options;
  options.workers = absl::GetFlag(FLAGS_workers);
  options.threads_per_worker = absl::GetFlag(FLAGS_threads_per_worker);
  options.large_messages = true;
  const auto path = ParseCallPath(absl::GetFlag(FLAGS_path));
  if (!path) {
    std::cout << "--path: message, stock, stream or region\n";
    return 2;
  }
  options.path = *path;
  return RunCaseFolder([&] { return CaseServer::Start(options); });
}

}  // namespace
}  // namespace convgrad::testing_support

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return convgrad::testing_support::Main();
}
