// `ChildServer` runs the real server program in a process of its own.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace convgrad {

// The exit status and the output of a program that has ended.
struct Exit {
  int code = -1;       // -1: killed by a signal
  std::string output;  // stdout and stderr
};

// Runs convgrad-server with `flags` until it ends.
Exit RunServer(const std::vector<std::string>& flags);

class ChildServer {
 public:
  // Starts convgrad-server on a free local port, without a proof at the start,
  // with the additional `flags`, and waits until it listens. Aborts if it
  // doesn't.
  explicit ChildServer(const std::vector<std::string>& flags);
  // Kills the process if it still runs.
  ~ChildServer();

  const std::string& address() const { return address_; }
  // The port of /metrics; 0 if there is none.
  int metrics_port() const { return metrics_port_; }
  pid_t process() const { return process_; }
  void Signal(int signal);
  // Stops reading the output, as a log collector that has ended.
  void CloseOutput();
  // Blocks until the process ends.
  Exit Await();

  // Blocks until /metrics has `line`. Fails the test if that never happens.
  void AwaitMetric(const std::string& line) const;

  // Returns a field of /proc/PID/status in bytes, e.g. "VmRSS", "VmHWM".
  int64_t MemoryBytes(const std::string& field) const;

 private:
  pid_t process_ = 0;
  int output_ = -1;
  std::string text_;
  std::string address_;
  int metrics_port_ = 0;
};

}  // namespace convgrad
