// Tests that the C++ client's puts send only bytes that the server lacks, and
// no bytes of shared memory.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "convgrad/v1/service.grpc.pb.h"
#include "proto/codec/payload_message.h"
#include "proto/tensor_digest.h"
#include "tests/end_to_end/client/cpp_session.h"
#include "tests/end_to_end/peers/region_server.h"
#include "tests/server/scheduling/puppet_backend.h"

namespace convgrad {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kLarge = 9 * kMiB / 4;  // Elements.
const TensorDescriptor kLargeTensor{
    DataType::kF32, Layout::kOIX, {9, 256, 1024}};

using CppSessionPutTest = CppSessionTest;

TEST_F(CppSessionPutTest, SendsWhatNoSessionOfTheClientKeeps) {
  const auto first = Open();
  const auto second = Open();
  const Floats weight = RandomFloats(kWeights, 1);
  const Floats input = RandomFloats(kInputs, 2);
  const auto saved = [this] {
    return server_.server().gauges().SumOf("convgrad_digest_saved_bytes_total");
  };
  ASSERT_TRUE(
      first->Put({{"w", kWeight, ViewOf(weight)}}, {.dedupe = true}).ok());
  EXPECT_EQ(saved(), 0);
  const auto put = second->Put(
      {{"a", kWeight, ViewOf(weight)}, {"x", kInput, ViewOf(input)}},
      {.dedupe = true});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(saved(), ByteSize(kWeight));
  EXPECT_EQ(FloatsIn(second->Get("a")->data.bytes()), weight);
  EXPECT_EQ(second->Get("a")->descriptor, kWeight);
  EXPECT_EQ(FloatsIn(second->Get("x")->data.bytes()), input);
  // Without the option, the client sends everything.
  ASSERT_TRUE(first->Put("x", kInput, ViewOf(input)).ok());
  EXPECT_EQ(saved(), ByteSize(kWeight));
}

TEST_F(CppSessionPutTest, MoreTensorsThanAMessageHasPayloads) {
  const auto session = Open();
  const TensorDescriptor one{DataType::kF32, Layout::kNCX, {1, 1}};
  const Floats values = RandomFloats(kMaxPayloads + 1, 1);
  std::vector<TensorToPut> tensors;
  for (size_t i = 0; i < values.size(); ++i) {
    tensors.push_back(
        {absl::StrCat("t", i), one, ViewOf(values).subspan(4 * i, 4)});
  }
  const auto put = session->Put(tensors);
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_EQ(FloatsIn(session->Get("t1024")->data.bytes())[0], values[1024]);
}

TEST(CppSessionPut, WhatNoMessageHoldsIsLeftOutToo) {
  Config config = TestConfig();
  config.memory_budget_bytes = 512 * kMiB;
  config.max_message_bytes = kMiB;
  TestServer server(config);
  const auto session = *Session::Open(OptionsFor(server.address()));
  const auto put = [&](std::vector<TensorToPut> tensors) {
    return session->SubmitPut(std::move(tensors), {.dedupe = true}).get();
  };
  const Floats known = RandomFloats(kLarge, 1);
  const Floats other = RandomFloats(kLarge, 2);
  EXPECT_EQ(*put({{"a", kLargeTensor, ViewOf(known)}}), 1);
  EXPECT_EQ(*put({{"b", kLargeTensor, ViewOf(known)}}), 2);
  EXPECT_EQ(*put({{"c", kLargeTensor, ViewOf(known)},
                  {"d", kLargeTensor, ViewOf(other)},
                  {"e", kLargeTensor, ViewOf(known)}}),
            3);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_digest_saved_bytes_total"),
            3 * 9 * kMiB);
  for (const char* name : {"a", "b", "c", "e"}) {
    EXPECT_EQ(FloatsIn(session->Get(name)->data.bytes()), known) << name;
  }
  EXPECT_EQ(FloatsIn(session->Get("d")->data.bytes()), other);
}

// Waits until the server has no bytes with this digest.
void AwaitGone(const TestServer& server, const std::string& digest) {
  const auto stub = v1::ConvGradSessions::NewStub(server.NewChannel());
  v1::HaveTensorsRequest question;
  question.add_digests(digest);
  v1::HaveTensorsResponse answer;
  do {
    grpc::ClientContext context;
    ASSERT_TRUE(stub->HaveTensors(&context, question, &answer).ok());
  } while (answer.have(0));
}

// Another session drops the bytes while the put waits for its turn.
TEST(CppSessionPut, SendsBytesThatHaveGoneSinceItAsked) {
  PuppetStrings strings;
  std::vector<RegisteredBackend> backends;
  backends.push_back(RegisteredPuppet("puppet", &strings));
  TestServer server(TestConfig(), std::move(backends));
  const ClientOptions options = OptionsFor(server.address());
  const auto other = *Session::Open(options);
  const auto session = *Session::Open(options);
  const Floats weight = RandomFloats(kWeights, 1);
  const Floats input = RandomFloats(kInputs, 2);
  const Floats grad_output = RandomFloats(kOutputs, 3);
  ASSERT_TRUE(
      other->Put({{"w", kWeight, ViewOf(weight)}}, {.dedupe = true}).ok());
  ASSERT_TRUE(session->Put("x", kInput, ViewOf(input)).ok());
  strings.HoldRuns();
  auto run = session->SubmitRun(AddGradient(grad_output));
  strings.AwaitRuns(1);
  auto put =
      session->SubmitPut({{"v", kWeight, ViewOf(weight)}}, {.dedupe = true});
  auto behind = session->SubmitPut({{"y", kInput, ViewOf(input)}});
  ASSERT_TRUE(other->Drop({{"w"}}).ok());
  AwaitGone(server,
            DigestOf(kWeight, {reinterpret_cast<const char*>(weight.data()),
                               4 * kWeights}));
  strings.Release();
  EXPECT_TRUE(run.get().ok());
  EXPECT_EQ(*put.get(), 3);
  EXPECT_EQ(*behind.get(), 4);
  EXPECT_EQ(FloatsIn(session->Get("v")->data.bytes()), weight);
  EXPECT_EQ(server.server().gauges().SumOf("convgrad_digest_saved_bytes_total"),
            0);
}

class CppSessionRegionTest : public ::testing::Test {
 protected:
  // Returns a configuration whose regions leave a part of the budget.
  static Config KeepingConfig() {
    Config config = TestConfig();
    config.max_region_bytes = kMiB;
    return config;
  }
  std::unique_ptr<Session> Open() {
    return *Session::Open(OptionsFor(server_.test_server().address()));
  }
  // Returns a copy of `values` in `region`.
  static absl::Span<std::byte> CopyInto(SharedRegion* region,
                                        const Floats& values) {
    const absl::Span<const std::byte> bytes = ViewOf(values);
    const absl::Span<std::byte> copy =
        *region->Allocate(static_cast<int64_t>(bytes.size()));
    std::copy(bytes.begin(), bytes.end(), copy.begin());
    return copy;
  }

  RegionServer server_{KeepingConfig()};
};

TEST_F(CppSessionRegionTest, KeepsACopyOfWhatLiesInSharedMemory) {
  const auto session = Open();
  const auto region = server_.NewRegion(4096);
  const Floats weight = RandomFloats(kWeights, 1);
  const Floats input = RandomFloats(kInputs, 2);
  const absl::Span<std::byte> shared = CopyInto(region.get(), weight);
  for (const bool dedupe : {false, true, true}) {
    const auto put =
        session->Put({{"w", kWeight, shared}, {"x", kInput, ViewOf(input)}},
                     {.dedupe = dedupe, .region = region.get()});
    ASSERT_TRUE(put.ok()) << put.status();
  }
  std::fill(shared.begin(), shared.end(), std::byte{1});
  EXPECT_EQ(FloatsIn(session->Get("w")->data.bytes()), weight);
  EXPECT_EQ(FloatsIn(session->Get("x")->data.bytes()), input);
  // The server had all bytes of the last put.
  EXPECT_EQ(server_.gauges().SumOf("convgrad_digest_saved_bytes_total"),
            *ByteSize(kWeight) + *ByteSize(kInput));
}

TEST_F(CppSessionRegionTest, DoesNotSendWhatLiesInSharedMemory) {
  RegionServer owner;
  const auto session = Open();
  // This server doesn't know the region, so it finds no bytes.
  const auto region = owner.NewRegion(4096);
  const absl::Span<std::byte> shared =
      CopyInto(region.get(), RandomFloats(kWeights, 1));
  const absl::Status refused =
      session->Put({{"w", kWeight, shared}}, {.region = region.get()}).status();
  ASSERT_TRUE(DetailOf(refused)) << refused;
  EXPECT_EQ(DetailOf(refused)->field, "tensors[0].tensor.region.region_id");
  EXPECT_EQ(*session->Put({{"w", kWeight, shared}}), 1);
}

}  // namespace
}  // namespace convgrad
