// `TestServer` is a server in this process, on a free port. The functions here
// make calls to it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/registry.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "server/server.h"

namespace convgrad {

// Returns a configuration for tests: a free port, no metrics, one worker of one
// thread, a budget of 128 MiB, no proof at the start.
Config TestConfig();

class TestServer {
 public:
  // Aborts if the server doesn't start.
  explicit TestServer(const Config& config = TestConfig());
  TestServer(const Config& config, std::vector<RegisteredBackend> backends);

  Server& server() { return *server_; }
  const std::string& address() const { return server_->addresses()[0]; }
  // Returns a channel with a connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() const;
  v1::ConvGrad::Stub& stub() { return *stub_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

  // Stops the server.
  void Stop() { server_.reset(); }

  // Blocks until no call holds memory, because gRPC frees the bytes of a
  // response some time after the client has them. Fails the test if that never
  // happens.
  void ExpectNothingHeld();

  // Blocks until /metrics has `line`, because a call is counted some time after
  // its client has the answer. Fails the test if that never happens.
  void AwaitMetric(const std::string& line);

 private:
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ConvGrad::Stub> stub_;
};

// The decoded error trailers of a call.
struct Trailers {
  std::string reason;  // "" without a detail
  std::string field;
  std::string found;
  std::string expected;
  std::string pushback_ms;  // "" without one
};
Trailers TrailersOf(const grpc::ClientContext& context);

// The reply to a call made of bytes.
struct RawReply {
  grpc::Status status;
  std::string response;
  Trailers trailers;
};

// Sends the bytes `message` unchanged to `method`, e.g. "ConvBackward".
RawReply CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                 const std::string& method, const std::string& message,
                 const std::map<std::string, std::string>& metadata = {});

// Sends the bytes `message` to the path `method` and reads one message of a
// stream.
std::string CallStream(const std::shared_ptr<grpc::Channel>& channel,
                       const std::string& method, const std::string& message);

// Returns the answer of the local `port` to `GET path`, with headers.
std::string HttpGet(int port, const std::string& path);

// Converts between a tensor and its bytes.
std::string BytesOf(const std::vector<float>& values);
std::vector<float> FloatsOf(const std::string& bytes);

// Return the seed example: input 0..8 of 3x3, a 2x2 filter, stride 1, no
// padding. The backward's weight is 0..3, its grad_output is ones, and it asks
// for grad_input and grad_weight. The forward's weight is ones.
v1::ConvBackwardRequest SeedBackward();
v1::ConvForwardRequest SeedForward();
// Returns the seed backward with `batch` items of zeros and the same weight.
v1::ConvBackwardRequest SeedBackwardOf(int64_t batch);

}  // namespace convgrad
