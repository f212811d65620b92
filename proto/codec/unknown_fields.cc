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

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::UnknownFieldSet;

// Largest number of a field that a server must know to answer (tensor.proto).
constexpr int kLastCriticalField = 99;

absl::Status CheckTree(const Message& message, const std::string& path) {
  const auto& reflection = *message.GetReflection();
  const UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    const int number = unknown.field(i).number();
    if (number > kLastCriticalField) continue;
    return MakeError(
        absl::StatusCode::kUnimplemented,
        {Reason::kUnknownField, path.empty() ? "request" : path,
         absl::StrCat("field ", number, " of ",
                      message.GetDescriptor()->full_name()),
         "only fields that this server knows; fields 1 to 99 are critical"});
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const std::string name =
        absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(CheckTree(reflection.GetMessage(message, field), name));
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      RETURN_IF_ERROR(
          CheckTree(reflection.GetRepeatedMessage(message, field, i),
                    absl::StrCat(name, "[", i, "]")));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckCriticalFields(const Message& message) {
  return CheckTree(message, "");
}

}  // namespace convgrad
