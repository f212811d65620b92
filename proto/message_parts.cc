#include "proto/message_parts.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/core/thread_order.h"

namespace convgrad {
namespace {

// Wire types of protobuf's encoding.
constexpr int kVarint = 0;
constexpr int kFixed64 = 1;
constexpr int kLengthDelimited = 2;
constexpr int kFixed32 = 5;

constexpr int kMaxVarintBytes = 10;

absl::Status Malformed(int64_t offset, absl::string_view found,
                       absl::string_view expected) {
  return InvalidField(Reason::kMalformed, "message",
                      absl::StrCat(found, " at byte ", offset), expected);
}

// Reads the bytes of slices sequentially, and frees each slice after its last
// byte.
class SliceReader {
 public:
  explicit SliceReader(std::vector<grpc::Slice> slices)
      : slices_(std::move(slices)) {
    for (const grpc::Slice& slice : slices_) {
      remaining_ += std::ssize(slice);
    }
    SkipEmpty();
  }

  int64_t offset() const { return offset_; }
  int64_t remaining() const { return remaining_; }

  // Returns a varint of at most `max_bytes`; nullopt if it is longer, truncated
  // or has more than 64 bits.
  std::optional<uint64_t> ReadVarint(int max_bytes) {
    uint64_t value = 0;
    for (int i = 0; i < max_bytes && remaining_ > 0; ++i) {
      const uint8_t byte = slices_[at_].begin()[within_];
      Advance(1);
      const uint64_t bits = byte & 0x7f;
      if (i == 9 && bits > 1) return std::nullopt;
      value |= bits << (7 * i);
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  // Returns the next `size` bytes as references to their slices. Requires: size
  // <= remaining().
  std::vector<grpc::Slice> Take(int64_t size) {
    std::vector<grpc::Slice> pieces;
    while (size > 0) {
      const size_t chunk =
          std::min(static_cast<size_t>(size), slices_[at_].size() - within_);
      pieces.push_back(slices_[at_].sub(within_, within_ + chunk));
      Advance(chunk);
      size -= static_cast<int64_t>(chunk);
    }
    return pieces;
  }

  // Appends the next `size` bytes to `*text`. Requires: size <= remaining().
  void Append(int64_t size, std::string* text) {
    for (const grpc::Slice& piece : Take(size)) {
      text->append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
  }

 private:
  // Requires: size bytes are left in the current slice.
  void Advance(size_t size) {
    within_ += size;
    offset_ += static_cast<int64_t>(size);
    remaining_ -= static_cast<int64_t>(size);
    SkipEmpty();
  }

  void SkipEmpty() {
    while (at_ < slices_.size() && within_ == slices_[at_].size()) {
      slices_[at_] = grpc::Slice();
      ++at_;
      within_ = 0;
    }
  }

  std::vector<grpc::Slice> slices_;
  size_t at_ = 0;
  size_t within_ = 0;
  int64_t offset_ = 0;
  int64_t remaining_ = 0;
};

class MessageSplitter {
 public:
  MessageSplitter(std::vector<grpc::Slice> slices, const MessageLimits& limits)
      : reader_(std::move(slices)), limits_(limits) {}

  absl::StatusOr<MessageParts> Split() {
    while (reader_.remaining() > 0) RETURN_IF_ERROR(ReadField());
    return std::move(parts_);
  }

 private:
  absl::Status ReadField() {
    constexpr int kMaxTagBytes = 5;
    const int64_t start = reader_.offset();
    const auto tag = reader_.ReadVarint(kMaxTagBytes);
    if (!tag || *tag >> 32 != 0 || *tag >> 3 == 0) {
      return Malformed(start, "no valid field tag", "a field of the message");
    }
    const int wire_type = static_cast<int>(*tag & 7);
    if (*tag == kPayloadsTag) return ReadPayload(start);
    if (*tag >> 3 == kPayloadsField) {
      return Malformed(start, absl::StrCat("payloads of wire type ", wire_type),
                       "wire type 2");
    }
    AppendVarint(*tag, &parts_.head);
    switch (wire_type) {
      case kVarint:
        return CopyVarint(start);
      case kFixed64:
        return CopyBytes(sizeof(uint64_t), start);
      case kFixed32:
        return CopyBytes(sizeof(uint32_t), start);
      case kLengthDelimited: {
        ASSIGN_OR_RETURN(const int64_t length, ReadLength(start));
        AppendVarint(static_cast<uint64_t>(length), &parts_.head);
        return CopyBytes(length, start);
      }
      default:
        return Malformed(start,
                         absl::StrCat("a field of wire type ", wire_type),
                         "wire type 0, 1, 2 or 5");
    }
  }

  absl::StatusOr<int64_t> ReadLength(int64_t start) {
    const auto length = reader_.ReadVarint(kMaxVarintBytes);
    if (!length) return Malformed(start, "a field cut off", "its length");
    if (*length > static_cast<uint64_t>(reader_.remaining())) {
      return Malformed(
          start, absl::StrCat("a field of ", *length, " bytes"),
          absl::StrCat("at most the ", reader_.remaining(), " bytes left"));
    }
    return static_cast<int64_t>(*length);
  }

  absl::Status ReadPayload(int64_t start) {
    ASSIGN_OR_RETURN(const int64_t length, ReadLength(start));
    if (std::ssize(parts_.payloads) == limits_.payloads) {
      return InvalidField(Reason::kLimitExceeded, "payloads",
                          absl::StrCat("more than ", limits_.payloads),
                          absl::StrCat("at most ", limits_.payloads));
    }
    parts_.payloads.emplace_back(reader_.Take(length));
    return absl::OkStatus();
  }

  absl::Status CopyVarint(int64_t start) {
    const auto value = reader_.ReadVarint(kMaxVarintBytes);
    if (!value) return Malformed(start, "a varint cut off or too long", "one");
    AppendVarint(*value, &parts_.head);
    return CheckHeadSize(0);
  }

  absl::Status CopyBytes(int64_t size, int64_t start) {
    if (size > reader_.remaining()) {
      return Malformed(start, "a field cut off", absl::StrCat(size, " bytes"));
    }
    RETURN_IF_ERROR(CheckHeadSize(size));
    reader_.Append(size, &parts_.head);
    return absl::OkStatus();
  }

  absl::Status CheckHeadSize(int64_t more) const {
    const int64_t size = std::ssize(parts_.head) + more;
    if (size <= limits_.head_bytes) return absl::OkStatus();
    return InvalidField(Reason::kLimitExceeded, "message",
                        absl::StrCat(size, " bytes or more beside payloads"),
                        absl::StrCat("at most ", limits_.head_bytes));
  }

  SliceReader reader_;
  const MessageLimits limits_;
  MessageParts parts_;
};

}  // namespace

PayloadView::PayloadView(std::vector<grpc::Slice> pieces)
    : pieces_(std::move(pieces)) {
  for (const grpc::Slice& piece : pieces_) {
    ends_.push_back(size() + std::ssize(piece));
  }
}

PayloadView& PayloadView::operator=(PayloadView&& other) noexcept {
  if (this == &other) return *this;
  Release(size());
  pieces_ = std::exchange(other.pieces_, {});
  ends_ = std::exchange(other.ends_, {});
  released_ = std::exchange(other.released_, 0);
  return *this;
}

void PayloadView::CopyRange(int64_t offset, absl::Span<std::byte> to) const {
  auto piece =
      std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin();
  while (!to.empty()) {
    const grpc::Slice& slice = pieces_[piece];
    const auto size = std::ssize(slice);
    const int64_t skipped = offset - (ends_[piece] - size);
    const int64_t taken = std::min<int64_t>(size - skipped, std::ssize(to));
    std::memcpy(to.data(), slice.begin() + skipped, taken);
    to.remove_prefix(taken);
    offset += taken;
    ++piece;
  }
}

void PayloadView::Release(int64_t offset) {
  const size_t count =
      std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin();
  if (count <= released_) return;
  // Destroyed after the references below, so this ByteBuffer frees the bytes.
  const grpc::ByteBuffer last(&pieces_[released_], count - released_);
  for (; released_ < count; ++released_) pieces_[released_] = grpc::Slice();
}

void PayloadView::MoveTo(void* destination) {
  // Bytes that are copied before their slices are freed, so that the message
  // and its copy take little more than the bytes of one.
  constexpr int64_t kRoundBytes = int64_t{1} << 20;
  auto* const out = static_cast<std::byte*>(destination);
  for (int64_t at = 0; at < size(); at += kRoundBytes) {
    Release(at);
    CopyRange(at, {out + at,
                   static_cast<size_t>(std::min(kRoundBytes, size() - at))});
  }
  *this = PayloadView();
}

void AppendVarint(uint64_t value, std::string* text) {
  for (; value >= 0x80; value >>= 7) {
    text->push_back(static_cast<char>(value | 0x80));
  }
  text->push_back(static_cast<char>(value));
}

absl::StatusOr<MessageParts> SplitParts(const grpc::ByteBuffer& message,
                                        const MessageLimits& limits) {
  std::vector<grpc::Slice> slices;
  const bool dumped = !message.Valid() || message.Dump(&slices).ok();
  if (!dumped) return Malformed(0, "bytes that don't decompress", "a message");
  return MessageSplitter(std::move(slices), limits).Split();
}

grpc::Slice SliceOver(const void* data, int64_t size,
                      std::shared_ptr<const void> owner) {
  using Owner = std::shared_ptr<const void>;
  auto* const held = new Owner(std::move(owner));
  HandedOver(held);
  return grpc::Slice(
      const_cast<void*>(data), static_cast<size_t>(size),
      [](void* given_back) {
        HandedOver(given_back);
        delete static_cast<Owner*>(given_back);
      },
      held);
}

}  // namespace convgrad
