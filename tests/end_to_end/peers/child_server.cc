#include "tests/end_to_end/peers/child_server.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/test_server.h"

namespace convgrad {
namespace {

// Starts the program. `*output` is a pipe with its stdout and stderr.
pid_t Spawn(const std::vector<std::string>& flags, int* output) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  std::vector<char*> arguments = {const_cast<char*>(CONVGRAD_SERVER_BINARY)};
  for (const std::string& flag : flags) {
    arguments.push_back(const_cast<char*>(flag.c_str()));
  }
  arguments.push_back(nullptr);
  const pid_t process = fork();
  if (process == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  close(ends[1]);
  *output = ends[0];
  return process;
}

// Returns the rest of the line of `text` that contains `start`.
std::string RestOfLine(const std::string& text, const std::string& start) {
  const size_t found = text.find(start);
  if (found == std::string::npos) return "";
  const size_t begin = found + start.size();
  const size_t end = text.find('\n', begin);
  return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

}  // namespace

Exit RunServer(const std::vector<std::string>& flags) {
  int output;
  const pid_t process = Spawn(flags, &output);
  Exit exit;
  char buffer[4096];
  ssize_t size;
  while ((size = read(output, buffer, sizeof(buffer))) > 0) {
    exit.output.append(buffer, size);
  }
  close(output);
  int status;
  waitpid(process, &status, 0);
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  return exit;
}

ChildServer::ChildServer(const std::vector<std::string>& flags) {
  std::vector<std::string> all = {"--listen=127.0.0.1:0",
                                  "--metrics_listen=127.0.0.1:0",
                                  "--noprove_at_start"};
  all.insert(all.end(), flags.begin(), flags.end());
  process_ = Spawn(all, &output_);
  char buffer[4096];
  ssize_t size;
  while (address_.empty() &&
         (size = read(output_, buffer, sizeof(buffer))) > 0) {
    text_.append(buffer, size);
    address_ = RestOfLine(text_, "listening on ");
  }
  if (address_.empty()) {
    std::cerr << "convgrad-server didn't start: " << text_;
    std::abort();
  }
  if (!absl::SimpleAtoi(RestOfLine(text_, "metrics on port "),
                        &metrics_port_)) {
    metrics_port_ = 0;
  }
}

ChildServer::~ChildServer() {
  if (process_ != 0) {
    kill(process_, SIGKILL);
    Await();
  }
  close(output_);
}

void ChildServer::Signal(int signal) { kill(process_, signal); }

void ChildServer::CloseOutput() { close(std::exchange(output_, -1)); }

Exit ChildServer::Await() {
  char buffer[4096];
  ssize_t size;
  while ((size = read(output_, buffer, sizeof(buffer))) > 0) {
    text_.append(buffer, size);
  }
  int status;
  waitpid(process_, &status, 0);
  process_ = 0;
  Exit exit;
  exit.output = text_;
  if (WIFEXITED(status)) exit.code = WEXITSTATUS(status);
  return exit;
}

void ChildServer::AwaitMetric(const std::string& line) const {
  const absl::Time limit = absl::Now() + absl::Minutes(2);
  std::string metrics;
  while (absl::Now() < limit) {
    metrics = HttpGet(metrics_port_, "/metrics");
    if (absl::StrContains(metrics, absl::StrCat("\n", line, "\n"))) return;
    absl::SleepFor(absl::Milliseconds(1));
  }
  ADD_FAILURE() << "no line '" << line << "' in\n" << metrics;
}

int64_t ChildServer::MemoryBytes(const std::string& field) const {
  std::ifstream file(absl::StrCat("/proc/", process_, "/status"));
  std::stringstream text;
  text << file.rdbuf();
  const std::vector<std::string> words =
      absl::StrSplit(RestOfLine(text.str(), absl::StrCat(field, ":")),
                     absl::ByAnyChar(" \t"), absl::SkipEmpty());
  int64_t kib = 0;
  if (words.empty() || !absl::SimpleAtoi(words[0], &kib)) return -1;
  return kib * 1024;
}

}  // namespace convgrad
