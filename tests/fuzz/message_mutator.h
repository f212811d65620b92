// `MessageMutator` changes protobuf messages at random, so that they stay valid
// messages: it sets, clears, repeats, copies and swaps fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

namespace convgrad::fuzz {

// Use it only in libFuzzer's LLVMFuzzerCustomMutator and
// LLVMFuzzerCustomCrossOver, because values come from LLVMFuzzerMutate.
// Thread-compatible.
class MessageMutator {
 public:
  // `words` are texts that are worth trying; they outlive this.
  MessageMutator(uint32_t seed, absl::Span<const absl::string_view> words)
      : random_(seed), words_(words) {}

  // Makes one to four changes.
  void Mutate(google::protobuf::Message* message);
  // Replaces a message inside `*to` by one of the same type inside `from`, or
  // appends it.
  void CrossOver(const google::protobuf::Message& from,
                 google::protobuf::Message* to);

 private:
  using Message = google::protobuf::Message;
  using Field = google::protobuf::FieldDescriptor;

  size_t Below(size_t bound) { return random_() % bound; }
  // Returns `*root` and every message in it.
  static std::vector<Message*> AllIn(Message* root);
  void MutateOnce(Message* root);
  void MutateRepeated(Message* message, const Field* field, Message* root);
  void MutateSingular(Message* message, const Field* field, Message* root);
  // Changes the field's value, or that of its element `index`.
  void MutateValue(Message* message, const Field* field, int index,
                   Message* root);
  // Appends an element of the default value.
  static void Append(Message* message, const Field* field);
  // Copies a message of the type of `*to` inside `root` to `*to`, if there is
  // one.
  void CopyFrom(Message* root, Message* to);
  int64_t NewInteger(int64_t old);
  double NewDouble(double old);
  std::string NewText(std::string old, bool is_text, Message* root);
  // Returns a text inside `root`; "" if there is none.
  std::string TextIn(Message* root);

  std::mt19937 random_;
  const absl::Span<const absl::string_view> words_;
};

}  // namespace convgrad::fuzz
