#include "server/rpc/methods.h"

#include <string>

#include "absl/strings/strip.h"
#include "backends/core/status.h"
#include "server/rpc/control_calls.h"
#include "server/rpc/convolutions/conv_call.h"
#include "server/rpc/convolutions/stream_call.h"
#include "server/rpc/networks/network_calls.h"
#include "server/rpc/session_calls.h"
#include "server/rpc/snapshot_calls.h"
#include "server/rpc/tensors/get_stream_call.h"
#include "server/rpc/tensors/put_stream_call.h"
#include "server/rpc/tensors/tensor_calls.h"

namespace convgrad {
namespace {

// Ends the call of a method that this server doesn't have with UNIMPLEMENTED.
class UnknownCall final : public Call {
 public:
  UnknownCall(const Method& method, const CallServices& services,
              grpc::GenericCallbackServerContext* context)
      : Call(method, services, context), path_(context->method()) {}

 private:
  void Start() override {
    End(Unsupported("method", path_,
                    "ConvForward, ConvBackward, ConvForwardStream, "
                    "ConvBackwardStream or GetCapabilities of "
                    "convgrad.v1.ConvGrad, or a method of "
                    "convgrad.v1.ConvGradSessions, ConvGradNetworks or "
                    "ConvGradAdmin"));
  }

  const std::string path_;
};

template <typename T, auto... kArguments>
Call* Make(const Method& method, const CallServices& services,
           grpc::GenericCallbackServerContext* context) {
  return new T(method, services, context, kArguments...);
}

constexpr ClientRole kInfer = ClientRole::kInfer;
constexpr ClientRole kTrain = ClientRole::kTrain;
constexpr ClientRole kAdmin = ClientRole::kAdmin;
using enum SessionRule;
constexpr int64_t kKiB = int64_t{1} << 10;
// Limits of requests: kTensors has --max_message_bytes; kSmall fits a name and
// some numbers; kOpen fits the names of 64 readers; kLists fits 4096 digests or
// 1000 problems.
constexpr int64_t kTensors = 0;
constexpr int64_t kSmall = 4 * kKiB;
constexpr int64_t kOpen = 32 * kKiB;
constexpr int64_t kLists = 256 * kKiB;

constexpr Direction kForward = Direction::kForward;
constexpr Direction kBackward = Direction::kBackward;
constexpr char kConv[] = "convgrad.v1.ConvGrad";
constexpr char kSessions[] = "convgrad.v1.ConvGradSessions";
constexpr char kBidi[] = "bidi_stream";
constexpr char kNetworks[] = "convgrad.v1.ConvGradNetworks";

// clang-format off
constexpr Method kMethods[] = {
    {kConv, "ConvForward", kInfer, kMayChange, "forward", kTensors, Make<ConvCall<kForward>>},
    {kConv, "ConvBackward", kTrain, kMayChange, "backward", kTensors, Make<ConvCall<kBackward>>},
    {kConv, "ConvForwardStream", kInfer, kMayChange, "forward", kTensors, Make<StreamCall, kForward>, kBidi},
    {kConv, "ConvBackwardStream", kTrain, kMayChange, "backward", kTensors, Make<StreamCall, kBackward>, kBidi},
    {kConv, "GetCapabilities", kInfer, kNoChange, "", kSmall, Make<PlainCall, HandleGetCapabilities>},
    {kSessions, "OpenSession", kTrain, kNoChange, "", kOpen, Make<OpenSessionCall>},
    {kSessions, "ResumeSession", kTrain, kNoChange, "", kSmall, Make<ResumeSessionCall>},
    {kSessions, "RenewSession", kTrain, kNoChange, "", kSmall, Make<RenewSessionCall>},
    {kSessions, "CloseSession", kTrain, kNoChange, "", kSmall, Make<PlainCall, HandleCloseSession>},
    {kSessions, "ListSessions", kTrain, kNoChange, "", kSmall, Make<PlainCall, HandleListSessions>},
    {kSessions, "HaveTensors", kTrain, kNoChange, "", kLists, Make<PlainCall, HandleHaveTensors>},
    {kSessions, "PutTensors", kTrain, kChanges, "put", kTensors, Make<PutTensorsCall>},
    {kSessions, "PutTensorsStream", kTrain, kChanges, "put", kTensors, Make<PutStreamCall>, "client_stream"},
    {kSessions, "GetTensors", kTrain, kReads, "get", kTensors, Make<GetTensorsCall>},
    {kSessions, "GetTensorsStream", kTrain, kReads, "get", kTensors, Make<GetStreamCall>, "server_stream"},
    {kSessions, "DropTensors", kTrain, kChanges, "", kTensors, Make<PlainCall, HandleDropTensors>},
    {kSessions, "ListTensors", kInfer, kReads, "", kTensors, Make<PlainCall, HandleListTensors>},
    {kSessions, "RestoreState", kTrain, kChanges, "", kTensors, Make<PlainCall, HandleRestoreState>},
    {kSessions, "SaveState", kTrain, kReads, "", kSmall, Make<PlainCall, HandleSaveState>},
    {kSessions, "DropState", kTrain, kReads, "", kSmall, Make<PlainCall, HandleDropState>},
    {kNetworks, "LoadProgram", kTrain, kChanges, "", kTensors, Make<PlainCall, HandleLoadProgram>},
    {kNetworks, "DropPrograms", kTrain, kChanges, "", kTensors, Make<PlainCall, HandleDropPrograms>},
    {kNetworks, "RunProgram", kInfer, kMayReadOrChange, "run", kTensors, Make<RunProgramCall>},
    {kNetworks, "BackwardProgram", kTrain, kChanges, "backward_program", kTensors, Make<BackwardProgramCall>},
    {kNetworks, "UpdateParameters", kTrain, kChanges, "update", kTensors, Make<UpdateParametersCall>},
    {"convgrad.v1.ConvGradAdmin", "Warmup", kAdmin, kNoChange, "", kLists, Make<PlainCall, HandleWarmup>},
};
// clang-format on

constexpr Method kUnknown = {"unknown", "unknown", kInfer,           kMayChange,
                             "",        kTensors,  Make<UnknownCall>};

}  // namespace

absl::Span<const Method> AllMethods() { return kMethods; }

std::vector<MeasuredMethod> MeasuredMethods() {
  std::vector<MeasuredMethod> methods;
  for (const Method& method : kMethods) {
    methods.push_back({method.name, method.type, method.service});
  }
  return methods;
}

const Method& FindMethod(absl::string_view path) {
  if (!absl::ConsumePrefix(&path, "/")) return kUnknown;
  for (const Method& method : kMethods) {
    absl::string_view rest = path;
    if (absl::ConsumePrefix(&rest, method.service) &&
        absl::ConsumePrefix(&rest, "/") && rest == method.name) {
      return method;
    }
  }
  return kUnknown;
}

}  // namespace convgrad
