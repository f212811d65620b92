// These functions make images for tests and compare them.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/snapshots/session_folder.h"
#include "server/snapshots/session_image.h"

namespace convgrad {

// Returns bytes that own a copy of `content`.
inline ImageBytes BytesOf(std::string content) {
  const auto owner = std::make_shared<const std::string>(std::move(content));
  return {owner,
          {reinterpret_cast<const std::byte*>(owner->data()), owner->size()}};
}

inline absl::string_view TextOf(const ImageBytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.bytes.data()),
          bytes.bytes.size()};
}

// Returns a tensor whose bytes depend on `seed`.
inline ImageTensor TensorOf(const std::string& name,
                            const TensorDescriptor& descriptor, int64_t seed) {
  std::string content(*ByteSize(descriptor), '\0');
  for (size_t i = 0; i < content.size(); ++i) {
    content[i] = static_cast<char>((i * 31 + i / 251 + seed * 17) % 256);
  }
  return {name, descriptor, seed, BytesOf(std::move(content))};
}

inline ImageTensor VectorOf(const std::string& name, int64_t bytes,
                            int64_t seed) {
  return TensorOf(name, {DataType::kU8, Layout::kNCX, {bytes}}, seed);
}

inline std::string IdOf(int64_t session) {
  std::string id(16, 's');
  std::memcpy(id.data(), &session, sizeof(session));
  return id;
}

// Returns an image of one session at `number`. Its content depends on the
// number, but for "frozen".
inline SessionImage ImageOf(int64_t number, int64_t session = 0) {
  SessionImage image;
  snapshots::Session& head = image.head;
  head.set_id(IdOf(session));
  head.set_open_id("open");
  head.set_name("digits");
  head.set_client("client");
  head.set_owner("owner");
  head.add_readers("reader");
  head.add_readers("other \xff");
  head.set_lease_nanoseconds(absl::ToInt64Nanoseconds(absl::Minutes(10)));
  head.set_quota_bytes(1 << 20);
  head.set_number(number);
  head.set_epoch(7);
  head.set_first_epoch(5);
  head.set_resumed_by("sixteen bytes id");
  head.set_trainer_state(absl::StrCat("state of ", number));
  for (const auto& [name, text] :
       {std::pair("cpu", "a model"), {"onednn", "3.1"}}) {
    snapshots::Fact& fact = *head.add_computed_by();
    fact.set_name(name);
    fact.set_text(text);
  }
  image.tensors = {
      TensorOf("conv.weight", {DataType::kF32, Layout::kOIX, {8, 4, 3, 3}},
               number),
      TensorOf("conv.weight#momentum",
               {DataType::kF32, Layout::kOIX, {8, 4, 3, 3}}, number + 1000),
      TensorOf("bias", {DataType::kBF16, Layout::kNCX, {5}}, number),
      TensorOf("__metadata__", {DataType::kI64, Layout::kNCX, {}}, number),
      VectorOf("empty", 0, number),
      VectorOf("frozen", 9000, 0)};
  image.programs = {{"net", BytesOf("x = relu(y)")}};
  image.replies = {{number + 1, "call", BytesOf(absl::StrCat("ok ", number))},
                   {number + 2, "gone", std::nullopt}};
  return image;
}

// Returns all of an image as text, to compare it.
inline std::string TextOf(const SessionImage& image) {
  std::string text = absl::StrCat(image.head.ShortDebugString(), "\n");
  for (const ImageTensor& tensor : image.tensors) {
    absl::StrAppend(&text, tensor.name, " ", ToString(tensor.descriptor), " g",
                    tensor.descriptor.groups, " v", tensor.version, " ",
                    absl::BytesToHexString(TextOf(tensor.data)), "\n");
  }
  for (const ImageProgram& program : image.programs) {
    absl::StrAppend(&text, program.name, " ", TextOf(program.message), "\n");
  }
  for (const ImageReply& reply : image.replies) {
    absl::StrAppend(&text, reply.number, " ", reply.call_id, " ",
                    reply.message ? TextOf(*reply.message) : "(gone)", "\n");
  }
  return text;
}

// Returns new memory.
inline absl::StatusOr<WritableBytes> AllocateForTest(int64_t size) {
  auto memory = std::make_shared<std::string>(size, '\0');
  auto* const data = reinterpret_cast<std::byte*>(memory->data());
  return WritableBytes{std::move(memory), data};
}

}  // namespace convgrad
