#include "tests/fuzz/fitting_payloads.h"

#include <string>
#include <vector>

#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "proto/message_parts.h"

namespace convgrad::fuzz {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 10;

// Returns ones for f32, and zeros for integers, which may be class indices.
std::string PayloadOf(const v1::Tensor& tensor) {
  const auto descriptor = DecodeTensor(tensor, 1, "");
  const int64_t bytes = descriptor.ok() ? *ByteSize(*descriptor) : 0;
  if (bytes > kMostBytes) return "";
  std::string payload(static_cast<size_t>(bytes), '\0');
  if (descriptor.ok() && descriptor->dtype == DataType::kF32) {
    for (size_t at = 0; at + 4 <= payload.size(); at += 4) {
      payload.replace(at + 2, 2, "\x80\x3f", 2);
    }
  }
  return payload;
}

void Fit(google::protobuf::Message* message,
         std::vector<std::string>* payloads) {
  if (message->GetDescriptor() == v1::Tensor::descriptor()) {
    auto* const tensor = static_cast<v1::Tensor*>(message);
    if (!tensor->has_inline_()) return;
    tensor->mutable_inline_()->set_payload_index(
        static_cast<int32_t>(payloads->size()));
    payloads->push_back(PayloadOf(*tensor));
    return;
  }
  const auto& reflection = *message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(*message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() !=
        google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    }
    if (!field->is_repeated()) {
      Fit(reflection.MutableMessage(message, field), payloads);
      continue;
    }
    for (int i = 0; i < reflection.FieldSize(*message, field); ++i) {
      Fit(reflection.MutableRepeatedMessage(message, field, i), payloads);
    }
  }
}

}  // namespace

void FitPayloads(google::protobuf::Message* request) {
  const auto* const field =
      request->GetDescriptor()->FindFieldByNumber(kPayloadsField);
  if (field == nullptr) return;
  std::vector<std::string> payloads;
  Fit(request, &payloads);
  const auto& reflection = *request->GetReflection();
  reflection.ClearField(request, field);
  for (std::string& payload : payloads) {
    reflection.AddString(request, field, std::move(payload));
  }
}

}  // namespace convgrad::fuzz
