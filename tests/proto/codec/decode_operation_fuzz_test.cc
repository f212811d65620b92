// Tests altered requests from bytes to a status, with a fixed seed.
#include <random>
#include <string>

#include "gtest/gtest.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "tests/proto/random_operation.h"

namespace convgrad {
namespace {

constexpr int kMutations = 20000;

class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  std::string Spoil(std::string bytes) {
    for (int edits = Below(4) + 1; edits > 0 && !bytes.empty(); --edits) {
      const size_t at = Below(bytes.size());
      switch (Below(6)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes.erase(at, Below(8) + 1);
          break;
        case 2:
          bytes.insert(at, Below(12) + 1, static_cast<char>(random_()));
          break;
        case 3:
          // The varint has nine or ten bytes, so it is huge or negative.
          bytes.replace(at, 1, std::string(9, '\xff') + "\x01");
          break;
        case 4:
          bytes[at] ^= static_cast<char>(1 << Below(8));
          break;
        default:
          bytes[at] = static_cast<char>(random_());
      }
    }
    return bytes;
  }

  size_t Below(size_t bound) { return random_() % bound; }

 private:
  std::mt19937_64 random_;
};

absl::Status Receive(const std::string& bytes, Direction direction,
                     size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
  }
  grpc::ByteBuffer buffer(slices.data(), slices.size());
  v1::ConvBackwardRequest head;
  const auto payloads = SplitMessage(&buffer, &head);
  if (!payloads.ok()) return payloads.status();
  if (auto status = CheckCriticalFields(head); !status.ok()) return status;
  if (auto options = DecodeOptions(head.options()); !options.ok()) {
    return options.status();
  }
  const auto decoded =
      DecodeOperation(head.operation(), direction, SizesOf(*payloads));
  if (!decoded.ok()) return decoded.status();
  EXPECT_TRUE(Validate(decoded->operation).ok());
  (void)decoded->operation.flops();
  return decoded->support;
}

TEST(RequestFuzzTest, AnswersEverySpoiltRequestWithAStatus) {
  RandomOperation operations(3);
  Mutator mutator(4);
  std::string bytes;
  Direction direction = Direction::kForward;
  int accepted = 0;
  for (int i = 0; i < kMutations; ++i) {
    if (i % 20 == 0) {
      const ConvOperation operation = operations.Next();
      direction = operation.direction;
      v1::ConvBackwardRequest request;
      *request.mutable_operation() = EncodeOperation(operation);
      for (int64_t size : PayloadBytes(operation)) {
        request.add_payloads(std::string(size, 'x'));
      }
      bytes = request.SerializeAsString();
      ASSERT_TRUE(Receive(bytes, direction, 1000).ok());
    }
    // Most of a request is payload, so the test alters the head.
    const size_t head = std::min<size_t>(bytes.size(), 300);
    const std::string spoilt =
        mutator.Below(4) == 0
            ? mutator.Spoil(bytes)
            : mutator.Spoil(bytes.substr(0, head)) + bytes.substr(head);
    const absl::Status status =
        Receive(spoilt, direction, mutator.Below(64) + 1);
    accepted += status.ok();
    EXPECT_TRUE(status.ok() ||
                status.code() == absl::StatusCode::kInvalidArgument ||
                status.code() == absl::StatusCode::kUnimplemented)
        << status;
  }
  // Most alterations must hit the head, not the payloads.
  EXPECT_LT(accepted, kMutations / 2);
}

}  // namespace
}  // namespace convgrad
