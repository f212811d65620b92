// Defines convgrad._native, which makes calls of bytes with gRPC's C++ library
// for transport.py. gRPC's threads never request the interpreter's lock.
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"
#include "client/python/native/call.h"
#include "client/python/native/notices.h"
#include "client/python/native/unlocked.h"
#include "grpcpp/create_channel.h"
#include "nanobind/nanobind.h"
#include "nanobind/stl/optional.h"
#include "nanobind/stl/pair.h"
#include "nanobind/stl/string.h"
#include "nanobind/stl/tuple.h"
#include "nanobind/stl/variant.h"
#include "nanobind/stl/vector.h"

namespace convgrad {
namespace {

namespace nb = nanobind;

// Maximum delay until a signal, e.g. Ctrl-C, is handled.
constexpr absl::Duration kSignalInterval = absl::Milliseconds(100);

// Refers to contiguous memory of a Python object and keeps the object alive.
// Owned by a thread that holds the interpreter's lock.
class Buffer {
 public:
  Buffer(nb::handle object, int flags) {
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) {
      nb::raise_python_error();
    }
  }
  Buffer(Buffer&& other) noexcept : view_(other.view_) { other.view_ = {}; }
  Buffer& operator=(Buffer&&) = delete;
  ~Buffer() { PyBuffer_Release(&view_); }

  std::string_view bytes() const {
    return {static_cast<const char*>(view_.buf),
            static_cast<size_t>(view_.len)};
  }
  std::byte* data() const { return static_cast<std::byte*>(view_.buf); }

 private:
  Py_buffer view_ = {};
};

Notices& AllNotices() {
  static auto& notices = *new Notices;
  return notices;
}

std::string TextOf(const nb::bytes& bytes) {
  return {bytes.c_str(), bytes.size()};
}

// The Python object of a call; holds the memory that is lent to gRPC. Guarded
// by the interpreter's lock.
class Call {
 public:
  Call(std::shared_ptr<RpcCall> rpc, std::vector<Buffer> lent)
      : rpc_(std::move(rpc)), lent_(std::move(lent)) {}
  Call(Call&&) = default;
  Call& operator=(Call&&) = delete;

  // Keeps the memory valid as long as gRPC holds it, even without a reference
  // from Python.
  ~Call() {
    auto& abandoned = Abandoned();
    std::erase_if(abandoned, IsReturned);
    if (rpc_ == nullptr) return;
    Lent mine(std::move(rpc_), std::move(lent_));
    if (!IsReturned(mine)) abandoned.push_back(std::move(mine));
  }

  void Wait() {
    for (;;) {
      {
        const Unlocked unlocked;
        if (rpc_->Wait(kSignalInterval)) break;
      }
      if (PyErr_CheckSignals() != 0) nb::raise_python_error();
    }
    rpc_->Finish();
    if (!rpc_->IsLent()) lent_.clear();
  }

  void Cancel() {
    const Unlocked unlocked;
    rpc_->Cancel();
  }

  int Code() const { return rpc_->status().error_code(); }

  nb::object Details() const {
    const std::string text = rpc_->status().error_message();
    return nb::steal(
        PyUnicode_DecodeUTF8(text.data(), std::ssize(text), "replace"));
  }

  nb::list TrailingMetadata() const {
    nb::list found;
    for (const auto& [key, value] : rpc_->trailing_metadata()) {
      found.append(nb::make_tuple(key, nb::bytes(value.data(), value.size())));
    }
    return found;
  }

  std::pair<nb::bytes, std::vector<PayloadView>> TakeReply() {
    MessageParts reply;
    {
      const Unlocked unlocked;
      reply = rpc_->TakeReply();
    }
    return {nb::bytes(reply.head.data(), reply.head.size()),
            std::move(reply.payloads)};
  }

 private:
  using Lent = std::pair<std::shared_ptr<RpcCall>, std::vector<Buffer>>;

  static bool IsReturned(const Lent& lent) {
    if (!lent.first->IsOver()) return false;
    lent.first->Finish();
    return !lent.first->IsLent();
  }

  static std::vector<Lent>& Abandoned() {
    static auto& calls = *new std::vector<Lent>;
    return calls;
  }

  std::shared_ptr<RpcCall> rpc_;
  std::vector<Buffer> lent_;
};

using Option = std::pair<std::string, std::variant<int, std::string>>;
// PEM: certificates of authorities, the client's key and its certificate.
using Pems = std::tuple<nb::bytes, nb::bytes, nb::bytes>;

std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(
    const std::optional<Pems>& pems) {
  if (!pems) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions tls;
  tls.pem_root_certs = TextOf(std::get<0>(*pems));
  tls.pem_private_key = TextOf(std::get<1>(*pems));
  tls.pem_cert_chain = TextOf(std::get<2>(*pems));
  return grpc::SslCredentials(tls);
}

// A connection. Guarded by the interpreter's lock.
class Channel {
 public:
  Channel(const std::string& target, const std::vector<Option>& options,
          const std::optional<Pems>& pems) {
    grpc::ChannelArguments arguments;
    for (const auto& [name, value] : options) {
      if (const int* const number = std::get_if<int>(&value)) {
        arguments.SetInt(name, *number);
      } else {
        arguments.SetString(name, std::get<std::string>(value));
      }
    }
    stub_ = std::make_shared<BytesStub>(
        grpc::CreateCustomChannel(target, CredentialsOf(pems), arguments));
  }

  // Leaks the channel in a forked process: gRPC's threads don't exist there,
  // and the destructor would wait for them.
  ~Channel() {
    if (getpid() != process_) new std::shared_ptr<BytesStub>(std::move(stub_));
    const Unlocked unlocked;
    stub_.reset();
  }

  Call Start(std::string method, const nb::list& parts,
             const std::vector<std::pair<std::string, nb::bytes>>& metadata,
             std::optional<double> seconds, int64_t notice) {
    if (stub_ == nullptr) throw nb::value_error("the channel is closed");
    std::vector<Buffer> lent;
    CallRequest request{std::move(method), {}, {}, {}, {}};
    for (const auto& [key, value] : metadata) {
      request.metadata.emplace_back(key, TextOf(value));
    }
    for (const nb::handle part : parts) {
      lent.emplace_back(part, PyBUF_SIMPLE);
      request.parts.push_back(lent.back().bytes());
    }
    if (seconds) request.timeout = std::chrono::duration<double>(*seconds);
    if (notice != 0) {
      request.on_over = [notice] { AllNotices().Add(notice); };
    }
    std::shared_ptr<RpcCall> rpc;
    {
      // Another thread may close the channel meanwhile.
      const auto stub = stub_;
      const Unlocked unlocked;
      rpc = RpcCall::Start(stub.get(), std::move(request));
    }
    std::erase_if(calls_, [](const auto& call) { return call.expired(); });
    calls_.push_back(rpc);
    if (stub_ == nullptr) rpc->Cancel();
    return Call(std::move(rpc), std::move(lent));
  }

  void Close() {
    const auto calls = std::exchange(calls_, {});
    const auto stub = std::exchange(stub_, nullptr);
    const Unlocked unlocked;
    for (const auto& call : calls) {
      if (const auto living = call.lock()) living->Cancel();
    }
  }

 private:
  const pid_t process_ = getpid();
  std::shared_ptr<BytesStub> stub_;  // null after Close()
  std::vector<std::weak_ptr<RpcCall>> calls_;
};

void MoveTo(PayloadView& payload, nb::handle destination) {
  const Buffer buffer(destination, PyBUF_WRITABLE);
  if (std::ssize(buffer.bytes()) != payload.size()) {
    throw nb::value_error("a buffer of another size");
  }
  const Unlocked unlocked;
  payload.MoveTo(buffer.data());
}

int64_t NextOver() {
  const Unlocked unlocked;
  return AllNotices().Next();
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "Calls of bytes over gRPC's C++ library.";
  // Disabled, because clients that exist until the interpreter ends aren't
  // leaks.
  nb::set_leak_warnings(false);
  nb::class_<PayloadView>(module, "Payload")
      .def_prop_ro("nbytes", &PayloadView::size)
      .def("move_to", &MoveTo, nb::arg("destination"),
           "Copies the bytes to a buffer of their size; empty afterwards.");
  nb::class_<Call>(module, "Call")
      .def("wait", &Call::Wait, "Waits until the call is over.")
      .def("cancel", &Call::Cancel)
      .def_prop_ro("code", &Call::Code)
      .def_prop_ro("details", &Call::Details)
      .def_prop_ro("trailing_metadata", &Call::TrailingMetadata)
      .def("take_reply", &Call::TakeReply,
           "Returns the message without its payloads, and those.");
  nb::class_<Channel>(module, "Channel")
      .def(nb::init<const std::string&, const std::vector<Option>&,
                    const std::optional<Pems>&>(),
           nb::arg("target"), nb::arg("options"), nb::arg("pems").none())
      .def("start", &Channel::Start, nb::arg("method"), nb::arg("parts"),
           nb::arg("metadata"), nb::arg("seconds").none(), nb::arg("notice"),
           "Starts a call. The parts' memory mustn't change until it is over; "
           "a notice other than 0 is then what next_over() returns.")
      .def("close", &Channel::Close, "Cancels what is under way.");
  module.def("next_over", &NextOver, "Waits for a call to be over.");
  module.def(
      "wake", [] { AllNotices().Add(0); }, "Has next_over() return 0.");
}

}  // namespace convgrad
