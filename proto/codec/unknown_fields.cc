#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/codec/codec.h"

namespace convgrad {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownFieldSet;

// Largest number of a field that a server must know to answer (tensor.proto).
constexpr int kLastCriticalField = 99;

// A critical field that this server doesn't know.
struct UnknownField {
  std::string path;  // Of its message; "" for the request.
  int number;
  const Descriptor* message;
};

// Returns the first such field of `message` and the messages in it. Makes a
// path only for that field, because a head may have 500,000 empty messages.
std::optional<UnknownField> FindUnknown(const Message& message) {
  const auto& reflection = *message.GetReflection();
  const Descriptor* type = message.GetDescriptor();
  const UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const int number = unknown.field(i).number();
    if (number > kLastCriticalField) continue;
    return UnknownField{"", number, type};
  }
  for (int at = 0; at < type->field_count(); ++at) {
    const FieldDescriptor* field = type->field(at);
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const bool is_list = field->is_repeated();
    const int count = is_list ? reflection.FieldSize(message, field)
                              : reflection.HasField(message, field);
    for (int i = 0; i < count; ++i) {
      auto found =
          FindUnknown(is_list ? reflection.GetRepeatedMessage(message, field, i)
                              : reflection.GetMessage(message, field));
      if (!found) continue;
      found->path =
          absl::StrCat(field->name(), is_list ? absl::StrCat("[", i, "]") : "",
                       found->path.empty() ? "" : ".", found->path);
      return found;
    }
  }
  return std::nullopt;
}

}  // namespace

absl::Status CheckCriticalFields(const Message& message) {
  const auto found = FindUnknown(message);
  if (!found) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kUnimplemented,
      {Reason::kUnknownField, found->path.empty() ? "request" : found->path,
       absl::StrCat("field ", found->number, " of ",
                    found->message->full_name()),
       "only fields that this server knows; fields 1 to 99 are critical"});
}

}  // namespace convgrad
