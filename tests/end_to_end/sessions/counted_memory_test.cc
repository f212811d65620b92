// Compares the bytes that the server counts as kept with the heap, for each
// kind of memory that a client can make a server keep.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/end_to_end/peers/heap_bytes.h"
#include "tests/end_to_end/peers/test_server.h"
#include "tests/end_to_end/sessions/network_client.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The excess of the server's count over the heap, as a share of the heap, for
// the bytes of tensors, replies and tapes.
constexpr double kBytes = 0.1;
// The excess for entries. The server counts them at their resident size
// (kEntryBytes), measured with tensors of four axes; malloc allocates about
// half of that.
constexpr double kEntries = 1.0;

// Makes a call that takes the worker some seconds.
grpc::Status CallSlow(TestServer& server) {
  v1::ConvForwardRequest request;
  v1::ConvOperation& operation = *request.mutable_operation();
  for (int extent : {1, 100, 100, 100}) {
    operation.mutable_problem()->add_input_dims(extent);
  }
  operation.mutable_problem()->set_out_channels(10);
  for (int i = 0; i < 2; ++i) operation.mutable_problem()->add_kernel(10);
  v1::Operands& operands = *operation.mutable_operands();
  *operands.mutable_input() = TensorOf(v1::LAYOUT_NCX, {1, 100, 100, 100});
  *operands.mutable_weight() = TensorOf(v1::LAYOUT_OIX, {10, 100, 10, 10});
  operands.mutable_input()->mutable_inline_()->set_payload_index(0);
  operands.mutable_weight()->mutable_inline_()->set_payload_index(1);
  request.add_payloads(std::string(4 * 1000000, '\0'));
  request.add_payloads(std::string(4 * 100000, '\0'));
  operation.add_results()->set_which(v1::RESULT_OUTPUT);
  request.mutable_options()->set_backend(v1::BACKEND_CHOICE_REFERENCE);
  grpc::ClientContext context;
  v1::ConvForwardResponse response;
  return server.stub().ConvForward(&context, request, &response);
}

class CountedMemory : public ::testing::Test {
 protected:
  static Config Settings() {
    Config config = TestConfig();
    config.memory_budget_bytes = 512 * kMiB;
    config.max_kept_bytes = 160 * kMiB;
    config.max_client_sessions = 0;
    return config;
  }

  // Returns the value of a metric without labels.
  int64_t Metric(const std::string& name) {
    const std::string text = server_.server().MetricsText();
    const size_t at = text.find(absl::StrCat("\n", name, " "));
    int64_t value = -1;
    EXPECT_TRUE(absl::SimpleAtoi(
        text.substr(at + name.size() + 2,
                    text.find('\n', at + 1) - at - name.size() - 2),
        &value))
        << name;
    return value;
  }

  // Returns the bytes that the server counts, including the pool's idle
  // buffers.
  int64_t Counted() {
    return Metric("convgrad_memory_used_bytes") +
           Metric("convgrad_buffer_idle_bytes");
  }

  // Starts the measurement. The channel and the server's pools have their
  // memory by then.
  void Begin() {
    client().Load("warm", "input x\ny = relu(x)\noutput y\n");
    client().Put("warm", {1, 1000}, std::vector<float>(1000));
    client().Get("warm");
    counted_ = Counted();
    heap_ = HeapBytes();
  }

  // Compares the bytes kept since Begin with the growth of the heap. The server
  // may count at most 10 % less than the heap, and at most `most_excess` more.
  void Compare(double most_excess) {
    const auto counted = static_cast<double>(Counted() - counted_);
    const auto heap = static_cast<double>(HeapBytes() - heap_);
    std::cout << static_cast<int64_t>(counted) << " bytes counted, "
              << static_cast<int64_t>(heap) << " of the heap\n";
    EXPECT_GT(counted, 8.0 * kMiB);
    EXPECT_LE(heap, 1.1 * counted);
    EXPECT_LE(counted, (1 + most_excess) * heap);
  }

  NetworkClient& client() {
    if (clients_.empty()) NextClient();
    return *clients_.back();
  }
  void NextClient() {
    clients_.push_back(std::make_unique<NetworkClient>(server_.channel()));
  }

  void PutMany(int64_t count, int64_t floats, size_t name_bytes) {
    v1::PutTensorsRequest put;
    put.add_payloads(BytesOf(std::vector<float>(floats)));
    for (int64_t i = 0; i < count; ++i) {
      v1::NamedPut* named = put.add_tensors();
      const std::string number = absl::StrCat(i);
      named->set_name(number + std::string(name_bytes - number.size(), 'x'));
      *named->mutable_tensor() = TensorOf(v1::LAYOUT_NCX, {1, floats});
      named->mutable_tensor()->mutable_inline_()->set_payload_index(0);
    }
    const auto reply = client().session().Put(put);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  }

  TestServer server_{Settings()};
  int64_t counted_ = 0;
  int64_t heap_ = 0;
  std::vector<std::unique_ptr<NetworkClient>> clients_;
};

TEST_F(CountedMemory, Tensors) {
  Begin();
  for (int i = 0; i < 32; ++i) {
    client().Put(absl::StrCat(i), {1, kMiB / 4}, std::vector<float>(kMiB / 4));
  }
  Compare(kBytes);
}

TEST_F(CountedMemory, SmallTensors) {
  Begin();
  for (int i = 0; i < 4; ++i) {
    PutMany(4096, 1, 6);
    NextClient();
  }
  Compare(kEntries);
}

TEST_F(CountedMemory, NamesOfEmptyTensors) {
  Begin();
  for (int i = 0; i < 4; ++i) {
    PutMany(3000, 0, 250);
    NextClient();
  }
  Compare(kEntries);
}

TEST_F(CountedMemory, Replies) {
  Begin();
  ChangeMetadata change = client().session().Next();
  for (int i = 0; i < 60; ++i) {
    v1::RunProgramRequest request;
    request.set_program("warm");
    AddValue("x", {1, kMiB / 4}, std::vector<float>(kMiB / 4),
             request.mutable_inputs(), &request);
    const auto reply = SessionClient::Call(
        &client().stub(), &NetworkClient::Stub::RunProgram, request, change);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
    ++change.sequence;
    change.call_id = NewCallId();
  }
  Compare(kBytes);
}

TEST_F(CountedMemory, Tapes) {
  Begin();
  for (int i = 0; i < 40; ++i) {
    v1::RunProgramRequest request;
    request.set_program("warm");
    request.set_tape(absl::StrCat("tape", i));
    AddValue("x", {1, kMiB / 4}, std::vector<float>(kMiB / 4),
             request.mutable_inputs(), &request);
    const auto reply = client().Run(request);
    ASSERT_TRUE(reply.status.ok()) << reply.status.error_message();
  }
  client().Put("acknowledges", {1, 1}, {1});
  Compare(kBytes);
}

TEST_F(CountedMemory, Programs) {
  Begin();
  std::string text = "input x\n";
  for (int i = 0; i < 300; ++i) {
    absl::StrAppend(&text, "value", i, " = relu(",
                    i == 0 ? "x" : absl::StrCat("value", i - 1), ")\n");
  }
  absl::StrAppend(&text, "output value299\n");
  for (int i = 0; i < 90; ++i) client().Load(absl::StrCat("net", i), text);
  Compare(kEntries);
}

// The worker computes something else meanwhile.
TEST_F(CountedMemory, RunsThatWait) {
  constexpr int kRuns = 25;
  std::string text = "input x\n";
  for (int i = 0; i < 9000; ++i) {
    absl::StrAppend(&text, "v", i, " = relu(",
                    i == 0 ? "x" : absl::StrCat("v", i - 1), ")\n");
  }
  client().Load("net", text + "output v8999\n");
  v1::RunProgramRequest request;
  request.set_program("net");
  AddValue("x", {1, 1}, {1}, request.mutable_inputs(), &request);
  ASSERT_TRUE(client().Infer(request).status.ok());
  Begin();
  std::vector<std::thread> calls;
  const auto wait_for = [this](int queued) {
    while (server_.server().gauges().SumOf("convgrad_queue_depth") < queued) {
      std::this_thread::yield();
    }
  };
  for (int i = 0; i < 2; ++i) {
    calls.emplace_back([this] { EXPECT_TRUE(CallSlow(server_).ok()); });
    wait_for(i);
  }
  for (int i = 0; i < kRuns; ++i) {
    calls.emplace_back(
        [&] { EXPECT_TRUE(client().Infer(request).status.ok()); });
  }
  wait_for(kRuns);
  Compare(kEntries);
  for (std::thread& call : calls) call.join();
}

TEST_F(CountedMemory, Sessions) {
  Begin();
  for (int i = 0; i < 4000; ++i) NextClient();
  Compare(kEntries);
}

}  // namespace
}  // namespace convgrad
