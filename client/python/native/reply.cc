#include "client/python/native/reply.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "proto/slice_reader.h"

namespace convgrad {
namespace {

constexpr int kMaxVarintBytes = 10;
constexpr uint64_t kVarint = 0;
constexpr uint64_t kFixed64 = 1;
constexpr uint64_t kLengthDelimited = 2;
constexpr uint64_t kFixed32 = 5;
// Tag of the field `payloads` in every response
// (proto/convgrad/v1/service.proto).
constexpr uint64_t kPayloadTag = uint64_t{536870911} << 3 | kLengthDelimited;

void AppendVarint(uint64_t value, std::string* text) {
  for (; value >= 0x80; value >>= 7) {
    text->push_back(static_cast<char>(value | 0x80));
  }
  text->push_back(static_cast<char>(value));
}

bool TakeBytes(uint64_t size, SliceReader* reader, std::string* text) {
  if (size > static_cast<uint64_t>(reader->remaining())) return false;
  reader->Append(static_cast<int64_t>(size), text);
  return true;
}

// Reads a head field's body after its tag and appends it to `*head`.
bool TakeHeadField(uint64_t wire_type, SliceReader* reader, std::string* head) {
  if (wire_type == kFixed64) return TakeBytes(sizeof(uint64_t), reader, head);
  if (wire_type == kFixed32) return TakeBytes(sizeof(uint32_t), reader, head);
  if (wire_type != kVarint && wire_type != kLengthDelimited) return false;
  const auto number = reader->ReadVarint(kMaxVarintBytes);
  if (!number) return false;
  AppendVarint(*number, head);
  return wire_type == kVarint || TakeBytes(*number, reader, head);
}

bool TakePayload(SliceReader* reader, Reply* reply) {
  const auto size = reader->ReadVarint(kMaxVarintBytes);
  if (!size || *size > static_cast<uint64_t>(reader->remaining())) return false;
  reply->payloads.emplace_back(reader->Take(static_cast<int64_t>(*size)),
                               *size);
  return true;
}

bool TakeField(SliceReader* reader, Reply* reply) {
  const auto tag = reader->ReadVarint(kMaxVarintBytes);
  if (!tag) return false;
  if (*tag == kPayloadTag) return TakePayload(reader, reply);
  AppendVarint(*tag, &reply->head);
  return TakeHeadField(*tag & 7, reader, &reply->head);
}

std::string TextOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!message.Dump(&slices).ok()) return text;
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

}  // namespace

void ReceivedPayload::MoveTo(std::byte* destination) {
  constexpr size_t kStepBytes = size_t{1} << 20;
  size_t since_release = 0;
  for (size_t i = 0; i < pieces_.count(); ++i) {
    const size_t size = pieces_[i].size();
    std::memcpy(destination, pieces_[i].begin(), size);
    destination += size;
    since_release += size;
    if (since_release < kStepBytes) continue;
    pieces_.Release(i + 1);
    since_release = 0;
  }
  pieces_ = ReceivedSlices();
  size_ = 0;
}

Reply SplitReply(grpc::ByteBuffer* message) {
  // Must outlive the references below (see ReceivedSlices).
  grpc::ByteBuffer received;
  received.Swap(message);
  std::vector<grpc::Slice> slices;
  Reply reply;
  if (!received.Valid() || !received.Dump(&slices).ok()) return reply;
  SliceReader reader(std::move(slices));
  while (reader.remaining() > 0) {
    if (!TakeField(&reader, &reply)) return {TextOf(received), {}};
  }
  return reply;
}

}  // namespace convgrad
