// `PutStream` and `GetStream` put and get tensors by stream, message by
// message.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/end_to_end/sessions/session_client.h"

namespace convgrad {

inline constexpr int64_t kMiB = int64_t{1} << 20;
inline constexpr int64_t kFrame = 4 * kMiB;
// The bytes of two whole frames and a part of one.
inline constexpr int64_t kLarge = 9 * kMiB;

inline std::string RandomBytes(int64_t size, uint32_t seed) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) {
    seed = seed * 1664525 + 1013904223;
    // Bytes below 128, so that no element is a NaN.
    byte = static_cast<char>(seed >> 25);
  }
  return bytes;
}

inline v1::Tensor FloatsOfBytes(int64_t bytes) {
  return TensorOf(v1::LAYOUT_NCX, {bytes / 4096, 1024});
}

inline void AddStreamed(const std::string& name, const v1::Tensor& tensor,
                        v1::PutTensorsRequest* header) {
  v1::NamedPut* put = header->add_tensors();
  put->set_name(name);
  *put->mutable_tensor() = tensor;
  put->mutable_tensor()->mutable_stream();
}

inline v1::PutTensorsStreamRequest FrameOf(int tensor, int64_t offset,
                                           const std::string& bytes) {
  v1::PutTensorsStreamRequest message;
  message.mutable_frame()->set_tensor(tensor);
  message.mutable_frame()->set_byte_offset(offset);
  message.add_payloads(bytes);
  return message;
}

// Appends the frames of a tensor.
inline void AddFrames(int tensor, const std::string& bytes,
                      std::vector<v1::PutTensorsStreamRequest>* messages) {
  const auto size = static_cast<int64_t>(bytes.size());
  for (int64_t at = 0; at < size; at += kFrame) {
    messages->push_back(FrameOf(tensor, at, bytes.substr(at, kFrame)));
  }
}

// Returns the messages that put "x" of kLarge bytes.
inline std::vector<v1::PutTensorsStreamRequest> PutOfLarge(
    const std::string& bytes) {
  std::vector<v1::PutTensorsStreamRequest> messages(1);
  AddStreamed("x", FloatsOfBytes(kLarge), messages[0].mutable_header());
  AddFrames(0, bytes, &messages);
  return messages;
}

// A PutTensorsStream, message by message.
class PutStream {
 public:
  PutStream(const std::shared_ptr<grpc::Channel>& channel,
            const ChangeMetadata& change)
      : stub_(v1::ConvGradSessions::NewStub(channel)) {
    AddTo(&context_, change);
    writer_ = stub_->PutTensorsStream(&context_, &reply_.response);
  }

  // Returns false if the call has ended.
  bool Write(const v1::PutTensorsStreamRequest& message) {
    return writer_->Write(message);
  }
  void HalfClose() { writer_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  // Blocks until the call ends; call it once.
  SessionReply<v1::PutTensorsResponse> Await() {
    reply_.status = writer_->Finish();
    reply_.trailers = TrailersOf(context_);
    reply_.number = NumberOf(context_);
    return reply_;
  }

 private:
  const std::unique_ptr<v1::ConvGradSessions::Stub> stub_;
  grpc::ClientContext context_;
  SessionReply<v1::PutTensorsResponse> reply_;
  std::unique_ptr<grpc::ClientWriter<v1::PutTensorsStreamRequest>> writer_;
};

inline SessionReply<v1::PutTensorsResponse> SendAll(
    const std::shared_ptr<grpc::Channel>& channel, const ChangeMetadata& change,
    const std::vector<v1::PutTensorsStreamRequest>& messages) {
  PutStream stream(channel, change);
  for (const v1::PutTensorsStreamRequest& message : messages) {
    if (!stream.Write(message)) break;
  }
  stream.HalfClose();
  return stream.Await();
}

// A GetTensorsStream, read to its end.
struct Got {
  grpc::Status status;
  Trailers trailers;
  v1::GetTensorsResponse header;
  std::vector<std::string> bytes;  // by tensor
};

class GetStream {
 public:
  GetStream(const std::shared_ptr<grpc::Channel>& channel,
            const std::string& session, const v1::GetTensorsRequest& request)
      : stub_(v1::ConvGradSessions::NewStub(channel)) {
    AddTo(&context_, {session});
    reader_ = stub_->GetTensorsStream(&context_, request);
  }

  bool Read(v1::GetTensorsStreamResponse* message) {
    return reader_->Read(message);
  }
  void Cancel() { context_.TryCancel(); }
  grpc::Status Finish() { return reader_->Finish(); }
  Got ReadAll() {
    Got got;
    v1::GetTensorsStreamResponse message;
    while (Read(&message)) {
      if (message.has_header()) {
        got.header = message.header();
        got.bytes.resize(got.header.tensors_size());
        continue;
      }
      std::string& bytes = got.bytes.at(message.frame().tensor());
      EXPECT_EQ(message.frame().byte_offset(),
                static_cast<int64_t>(bytes.size()));
      bytes += message.payloads(0);
    }
    got.status = reader_->Finish();
    got.trailers = TrailersOf(context_);
    return got;
  }

 private:
  const std::unique_ptr<v1::ConvGradSessions::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::GetTensorsStreamResponse>> reader_;
};

inline v1::GetTensorsRequest NamesOf(const std::vector<std::string>& names) {
  v1::GetTensorsRequest request;
  for (const std::string& name : names) request.add_tensors()->set_name(name);
  return request;
}

}  // namespace convgrad
