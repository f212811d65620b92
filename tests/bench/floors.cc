#include "tests/bench/floors.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/subject.h"

namespace convgrad::bench {
namespace {

void Require(bool ok, const char* what) {
  if (!ok) Fail(absl::ErrnoToStatus(errno, what));
}

void ReadAll(int file, std::vector<char>* bytes) {
  for (size_t done = 0; done < bytes->size();) {
    const ssize_t count =
        read(file, bytes->data() + done, bytes->size() - done);
    Require(count > 0, "read");
    done += count;
  }
}

void WriteAll(int file, const std::vector<char>& bytes) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t count = write(file, bytes.data() + done, bytes.size() - done);
    Require(count > 0, "write");
    done += count;
  }
}

void SendAtOnce(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

class SocketFloor final : public Floor {
 public:
  explicit SocketFloor(CallBytes bytes)
      : request_(bytes.request, 1), reply_(bytes.reply, 1) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    Require(bind(listener, generic, size) == 0, "bind");
    Require(listen(listener, 1) == 0, "listen");
    getsockname(listener, generic, &size);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    Require(connect(client_, generic, size) == 0, "connect");
    server_ = accept(listener, nullptr, nullptr);
    Require(server_ >= 0, "accept");
    close(listener);
    SendAtOnce(client_);
    SendAtOnce(server_);
    peer_ = std::thread([this, bytes] { Serve(bytes); });
  }
  ~SocketFloor() override {
    shutdown(client_, SHUT_WR);
    peer_.join();
    close(client_);
    close(server_);
  }

  absl::Duration Run() override {
    const absl::Time start = absl::Now();
    WriteAll(client_, request_);
    ReadAll(client_, &reply_);
    return absl::Now() - start;
  }

 private:
  void Serve(CallBytes bytes) const {
    std::vector<char> request(bytes.request), reply(bytes.reply, 1);
    char first;
    // The connection ends between two requests, when the client closes it.
    while (recv(server_, &first, 1, MSG_PEEK) == 1) {
      ReadAll(server_, &request);
      WriteAll(server_, reply);
    }
  }

  std::vector<char> request_, reply_;
  int client_ = -1, server_ = -1;
  std::thread peer_;
};

class CopyFloor final : public Floor {
 public:
  explicit CopyFloor(CallBytes bytes)
      : operands_(bytes.request, 1),
        results_(bytes.reply, 1),
        shared_(bytes.request + bytes.reply, 1) {}

  absl::Duration Run() override {
    const absl::Time start = absl::Now();
    std::memcpy(shared_.data(), operands_.data(), operands_.size());
    std::memcpy(results_.data(), shared_.data() + operands_.size(),
                results_.size());
    return absl::Now() - start;
  }

 private:
  std::vector<char> operands_, results_, shared_;
};

class TorchFloor final : public Floor {
 public:
  TorchFloor(const std::string& python, const std::string& task) {
    int requests[2], answers[2];
    Require(pipe(requests) == 0 && pipe(answers) == 0, "pipe");
    const pid_t child = fork();
    Require(child >= 0, "fork");
    if (child == 0) {
      dup2(requests[0], STDIN_FILENO);
      dup2(answers[1], STDOUT_FILENO);
      for (int file : {requests[0], requests[1], answers[0], answers[1]}) {
        close(file);
      }
      const std::string command =
          absl::StrCat("exec ", python, " tests/bench/torch_floor.py ", task);
      execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      _exit(127);
    }
    close(requests[0]);
    close(answers[1]);
    requests_ = fdopen(requests[1], "w");
    answers_ = fdopen(answers[0], "r");
  }
  ~TorchFloor() override {
    std::fclose(requests_);
    std::fclose(answers_);
  }

  absl::Duration Run() override {
    std::fputs("run\n", requests_);
    std::fflush(requests_);
    double milliseconds = 0;
    if (std::fscanf(answers_, "%lf", &milliseconds) != 1) {
      Fail(absl::InternalError("torch_floor.py ended"));
    }
    return absl::Milliseconds(milliseconds);
  }

 private:
  FILE* requests_ = nullptr;
  FILE* answers_ = nullptr;
};

}  // namespace

std::unique_ptr<Floor> MakeSocketFloor(CallBytes bytes) {
  return std::make_unique<SocketFloor>(bytes);
}

std::unique_ptr<Floor> MakeCopyFloor(CallBytes bytes) {
  return std::make_unique<CopyFloor>(bytes);
}

std::unique_ptr<Floor> MakeTorchFloor(const std::string& python,
                                      const std::string& task) {
  return std::make_unique<TorchFloor>(python, task);
}

}  // namespace convgrad::bench
