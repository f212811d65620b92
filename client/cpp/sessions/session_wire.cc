#include "client/cpp/sessions/session_wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "client/cpp/call_checks.h"
#include "client/cpp/credentials.h"
#include "convgrad/v1/capabilities.pb.h"

namespace convgrad {
namespace {

// Every server's messages hold this much, so the client needn't ask.
constexpr int64_t kUnaskedBytes = int64_t{64} << 10;

// Deadline of an attempt that only finds out the outcome of a change.
constexpr absl::Duration kVoidTime = absl::Seconds(10);

// Deadline of an attempt for which no caller waits.
constexpr absl::Duration kRepeatTime = absl::Minutes(10);

grpc::ByteBuffer CopyOf(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  message.Dump(&slices).IgnoreError();
  for (grpc::Slice& slice : slices) {
    slice = grpc::Slice(slice.begin(), slice.size());
  }
  return {slices.data(), slices.size()};
}

std::function<Client::Connection::Messages()> Repeatable(
    std::vector<grpc::ByteBuffer> messages) {
  const auto shared = std::make_shared<const std::vector<grpc::ByteBuffer>>(
      std::move(messages));
  return [shared]() -> Client::Connection::Messages {
    return [shared, next = size_t{0}]() mutable {
      return next == shared->size() ? std::nullopt
                                    : std::optional((*shared)[next++]);
    };
  };
}

}  // namespace

OutgoingCall InOneMessage(std::string method, grpc::ByteBuffer message) {
  return {std::move(method), Repeatable({std::move(message)})};
}

absl::StatusOr<std::unique_ptr<SessionWire>> SessionWire::Make(
    ClientOptions options) {
  if (ServersOf(options).size() != 1) {
    return OutOfRange("server", absl::StrCat("'", options.server, "'"),
                      "one server, which keeps the session");
  }
  options.connections = 1;
  // Stays with one address: the server that keeps the session, not its
  // replicas.
  ASSIGN_OR_RETURN(auto pool,
                   Client::ConnectionPool::Make(
                       options, Client::ConnectionPool::Addresses::kOne));
  return std::unique_ptr<SessionWire>(new SessionWire(
      std::move(pool), options.retries.value_or(RetryPolicy())));
}

ChangeSender::Send SessionWire::Sender(const OutgoingCall& request,
                                       absl::Time deadline) {
  using Reply = absl::StatusOr<grpc::ByteBuffer>;
  return [this, &request, deadline](grpc::ClientContext* context) {
    return pool_->Run(deadline, [&](Client::Connection& connection) -> Reply {
      if (request.call != nullptr) {
        connection.FillContext(*request.call, context);
      } else {
        connection.FillContext(deadline, context);
      }
      const Client::Connection::Messages messages = request.begin();
      if (!request.is_stream) {
        return connection.Send(request.method, *messages(), context);
      }
      if (request.frames != nullptr) request.frames->Begin();
      std::optional<grpc::ByteBuffer> reply;
      const auto take = [&](grpc::ByteBuffer* message) {
        if (request.frames != nullptr) return request.frames->Add(message);
        reply.emplace().Swap(message);
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(
          connection.Exchange(request.method, messages, take, context));
      if (request.frames != nullptr) return grpc::ByteBuffer();
      if (!reply) return BadReply("message", "none", "one");
      return *std::move(reply);
    });
  };
}

OwnedChange SessionWire::Own(const OutgoingCall& request) {
  std::vector<grpc::ByteBuffer> copies;
  int64_t bytes = 0;
  const Client::Connection::Messages messages = request.begin();
  while (const std::optional<grpc::ByteBuffer> message = messages()) {
    bytes += static_cast<int64_t>(message->Length());
    copies.push_back(CopyOf(*message));
  }
  const OutgoingCall owned = {request.method, Repeatable(std::move(copies)),
                              request.is_stream};
  return {[this, owned](grpc::ClientContext* context) {
            return Sender(owned, absl::Now() + kRepeatTime)(context);
          },
          bytes};
}

ChangeSender::Send SessionWire::VoidSender() {
  return
      [this](grpc::ClientContext* context) -> absl::StatusOr<grpc::ByteBuffer> {
        v1::DropTensorsRequest request;
        request.add_names("");
        ASSIGN_OR_RETURN(grpc::ByteBuffer message, JoinMessage(request, {}));
        const OutgoingCall sent =
            InOneMessage(SessionMethod("DropTensors"), std::move(message));
        return Sender(sent, absl::Now() + kVoidTime)(context);
      };
}

absl::StatusOr<int64_t> SessionWire::MessageLimit(int64_t bytes,
                                                  absl::Time deadline) {
  if (bytes <= kUnaskedBytes) return bytes;
  if (max_message_bytes_ == 0) {
    ASSIGN_OR_RETURN(
        const auto capabilities,
        Call<v1::GetCapabilitiesResponse>(
            kCapabilitiesMethod, v1::GetCapabilitiesRequest(), deadline));
    // The limit includes the message's head.
    max_message_bytes_ = std::clamp<int64_t>(
        capabilities.limits().max_message_bytes() - kMaxHeadBytes,
        kUnaskedBytes, kMaxPayloadBytes);
  }
  return max_message_bytes_.load();
}

absl::Status SessionWire::Renew(const std::string& id, int64_t epoch,
                                absl::Time deadline) {
  v1::RenewSessionRequest request;
  request.set_session_id(id);
  request.set_epoch(epoch);
  return Call<v1::SessionResponse>(SessionMethod("RenewSession"), request,
                                   deadline)
      .status();
}

absl::Status SessionWire::Close(const std::string& id, int64_t epoch,
                                absl::Time deadline) {
  v1::CloseSessionRequest request;
  request.set_session_id(id);
  request.set_epoch(epoch);
  return Call<v1::CloseSessionResponse>(SessionMethod("CloseSession"), request,
                                        deadline)
      .status();
}

}  // namespace convgrad
