#include "client/cpp/sessions/session_wire.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

}  // namespace

std::string SessionMethod(absl::string_view name) {
  return absl::StrCat("/convgrad.v1.ConvGradSessions/", name);
}

absl::StatusOr<std::unique_ptr<SessionWire>> SessionWire::Make(
    ClientOptions options) {
  if (ServersOf(options).size() != 1) {
    return InvalidField(Reason::kOutOfRange, "server",
                        absl::StrCat("'", options.server, "'"),
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

ChangeSender::Send SessionWire::Sender(const std::string& method,
                                       const grpc::ByteBuffer& request,
                                       absl::Time deadline) {
  return [this, method, &request, deadline](grpc::ClientContext* context) {
    return pool_->Run(deadline, [&](Client::Connection& connection) {
      connection.FillContext(deadline, context);
      return connection.Send(method, request, context);
    });
  };
}

ChangeSender::Send SessionWire::Sender(const OperationCall& call,
                                       const grpc::ByteBuffer& request) {
  return [this, &call, &request](grpc::ClientContext* context) {
    return pool_->Run(call.deadline, [&](Client::Connection& connection) {
      connection.FillContext(call, context);
      return connection.Send(MethodOf(call.operation), request, context);
    });
  };
}

ChangeSender::Send SessionWire::Streamer(
    const std::string& method, absl::Time deadline,
    const std::function<Client::Connection::Messages()>& begin) {
  return [this, method, deadline, begin](grpc::ClientContext* context) {
    return pool_->Run(deadline,
                      [&](Client::Connection& connection)
                          -> absl::StatusOr<grpc::ByteBuffer> {
                        connection.FillContext(deadline, context);
                        std::optional<grpc::ByteBuffer> reply;
                        RETURN_IF_ERROR(connection.Exchange(
                            method, begin(),
                            [&reply](grpc::ByteBuffer* message) {
                              reply.emplace().Swap(message);
                              return absl::OkStatus();
                            },
                            context));
                        if (!reply) return BadReply("message", "none", "one");
                        return *std::move(reply);
                      });
  };
}

ChangeSender::Send SessionWire::Streamer(const std::string& method,
                                         absl::Time deadline,
                                         const grpc::ByteBuffer& request,
                                         FetchedFrames* frames) {
  return [this, method, deadline, &request,
          frames](grpc::ClientContext* context) {
    return pool_->Run(
        deadline,
        [&](Client::Connection& connection)
            -> absl::StatusOr<grpc::ByteBuffer> {
          connection.FillContext(deadline, context);
          frames->Begin();
          std::optional<grpc::ByteBuffer> message = request;
          RETURN_IF_ERROR(connection.Exchange(
              method,
              [&message] { return std::exchange(message, std::nullopt); },
              [frames](grpc::ByteBuffer* reply) { return frames->Add(reply); },
              context));
          return grpc::ByteBuffer();
        });
  };
}

OwnedChange SessionWire::Own(const std::string& method,
                             const grpc::ByteBuffer& message) {
  return {[this, method, copy = CopyOf(message)](grpc::ClientContext* context) {
            return Sender(method, copy, absl::Now() + kRepeatTime)(context);
          },
          static_cast<int64_t>(message.Length())};
}

OwnedChange SessionWire::Own(const std::string& method,
                             const Client::Connection::Messages& messages) {
  const auto copies = std::make_shared<std::vector<grpc::ByteBuffer>>();
  int64_t bytes = 0;
  while (const std::optional<grpc::ByteBuffer> message = messages()) {
    bytes += static_cast<int64_t>(message->Length());
    copies->push_back(CopyOf(*message));
  }
  const auto begin = [copies]() -> Client::Connection::Messages {
    return [copies, next = size_t{0}]() mutable {
      return next == copies->size() ? std::nullopt
                                    : std::optional((*copies)[next++]);
    };
  };
  return {[this, method, begin](grpc::ClientContext* context) {
            return Streamer(method, absl::Now() + kRepeatTime, begin)(context);
          },
          bytes};
}

ChangeSender::Send SessionWire::VoidSender() {
  return [this](
             grpc::ClientContext* context) -> absl::StatusOr<grpc::ByteBuffer> {
    v1::DropTensorsRequest request;
    request.add_names("");
    ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
    return Sender(SessionMethod("DropTensors"), message,
                  absl::Now() + kVoidTime)(context);
  };
}

absl::StatusOr<int64_t> SessionWire::MessageLimit(int64_t bytes,
                                                  absl::Time deadline) {
  if (bytes <= kUnaskedBytes) return bytes;
  if (max_message_bytes_ == 0) {
    v1::GetCapabilitiesResponse capabilities;
    RETURN_IF_ERROR(Call("/convgrad.v1.ConvGrad/GetCapabilities",
                         v1::GetCapabilitiesRequest(), &capabilities,
                         deadline));
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
  v1::SessionResponse response;
  return Call(SessionMethod("RenewSession"), request, &response, deadline);
}

absl::Status SessionWire::Close(const std::string& id, int64_t epoch,
                                absl::Time deadline) {
  v1::CloseSessionRequest request;
  request.set_session_id(id);
  request.set_epoch(epoch);
  v1::CloseSessionResponse response;
  return Call(SessionMethod("CloseSession"), request, &response, deadline);
}

absl::Status SessionWire::Call(const std::string& method,
                               const google::protobuf::Message& request,
                               google::protobuf::Message* response,
                               absl::Time deadline) {
  ASSIGN_OR_RETURN(const grpc::ByteBuffer message, JoinMessage(request, {}));
  const ChangeSender::Send send = Sender(method, message, deadline);
  ASSIGN_OR_RETURN(grpc::ByteBuffer reply,
                   retries_.Persist(
                       deadline,
                       [&] {
                         grpc::ClientContext context;
                         return send(&context);
                       },
                       [this] { return pool_->Strangers(); }));
  return SplitReply(&reply, response).status();
}

}  // namespace convgrad
