// Fuzzes the bytes of every message of the services, cut into slices anywhere,
// as gRPC may cut them. SplitMessage must read the same as protobuf.
#include <memory>
#include <string>
#include <vector>

#include "convgrad/v1/service.pb.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/message.h"
#include "google/protobuf/stubs/logging.h"
#include "proto/codec/codec.h"
#include "proto/codec/payload_message.h"
#include "tests/fuzz/decode_request.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

using google::protobuf::Message;
using google::protobuf::MessageFactory;

std::vector<const Message*> AllMessages() {
  std::vector<const Message*> all;
  const auto& file = *v1::ConvForwardRequest::descriptor()->file();
  MessageFactory* const factory = MessageFactory::generated_factory();
  for (int i = 0; i < file.service_count(); ++i) {
    for (int k = 0; k < file.service(i)->method_count(); ++k) {
      const auto& method = *file.service(i)->method(k);
      all.push_back(factory->GetPrototype(method.input_type()));
      all.push_back(factory->GetPrototype(method.output_type()));
    }
  }
  return all;
}

// Returns the message as bytes, with maps in one order.
std::string TextOf(const Message& message) {
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializePartialToCodedStream(&coded);
  coded.Trim();
  return text;
}

grpc::ByteBuffer Cut(const std::string& bytes, size_t piece) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    slices.emplace_back(bytes.substr(at, piece));
    if (piece % 3 == 0) slices.emplace_back("");
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

std::string BytesOf(const PayloadView& payload) {
  std::string bytes(static_cast<size_t>(payload.size()), '\0');
  payload.CopyRange(
      0,
      absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()), bytes.size()));
  return bytes;
}

// Reads the payload by a range, by parts, and as a whole.
void CheckView(PayloadView payload, const std::string& bytes) {
  std::string part(bytes.size() / 2, '\0');
  const auto begin = static_cast<int64_t>(bytes.size() - part.size());
  if (!part.empty()) {
    payload.Release(begin);
    payload.CopyRange(begin,
                      {reinterpret_cast<std::byte*>(part.data()), part.size()});
    Require(bytes.substr(static_cast<size_t>(begin)) == part,
            "a range has its bytes");
  }
  PayloadView moved = std::move(payload);
  Require(moved.size() == static_cast<int64_t>(bytes.size()),
          "a payload that was moved has its size");
  Require(payload.size() == 0,  // NOLINT(bugprone-use-after-move)
          "one that was moved from has none");
}

void CheckAgainstProtobuf(const std::string& bytes, const Message& head,
                          const std::vector<std::string>& payloads) {
  const std::unique_ptr<Message> whole(head.New());
  Require(whole->ParseFromString(bytes), "protobuf reads it, too");
  const auto* const field =
      whole->GetDescriptor()->FindFieldByNumber(kPayloadsField);
  if (field == nullptr) return;
  const auto& reflection = *whole->GetReflection();
  Require(
      reflection.FieldSize(*whole, field) == static_cast<int>(payloads.size()),
      "there are as many payloads");
  for (size_t i = 0; i < payloads.size(); ++i) {
    Require(reflection.GetRepeatedString(*whole, field, static_cast<int>(i)) ==
                payloads[i],
            "payloads are the same");
  }
  reflection.ClearField(whole.get(), field);
  Require(TextOf(*whole) == TextOf(head), "heads are the same");
}

void Try(const Message& type, size_t piece, const std::string& bytes) {
  const std::unique_ptr<Message> head(type.New());
  grpc::ByteBuffer buffer = Cut(bytes, piece);
  auto views = SplitMessage(&buffer, head.get());
  if (!views.ok()) return RequireRefusal(views.status());
  std::vector<std::string> payloads;
  std::vector<grpc::Slice> slices;
  for (const PayloadView& view : *views) {
    payloads.push_back(BytesOf(view));
    slices.emplace_back(payloads.back());
  }
  CheckAgainstProtobuf(bytes, *head, payloads);
  DecodeRequest(*head, SizesOf(*views), TensorDescriptor());
  for (size_t i = 0; i < payloads.size(); ++i) {
    CheckView(std::move((*views)[i]), payloads[i]);
  }
  auto joined = JoinMessage(*head, std::move(slices));
  Require(joined.ok(), "it can be sent again");
  const std::unique_ptr<Message> again(type.New());
  const auto views_again = SplitMessage(&*joined, again.get());
  Require(views_again.ok() && views_again->size() == payloads.size() &&
              TextOf(*again) == TextOf(*head),
          "and read again");
}

}  // namespace
}  // namespace convgrad::fuzz

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto& types = *new auto(convgrad::fuzz::AllMessages());
  if (size < 2) return 0;
  convgrad::fuzz::Try(
      *types[data[0] % types.size()], size_t{data[1]} + 1,
      std::string(reinterpret_cast<const char*>(data) + 2, size - 2));
  return 0;
}
