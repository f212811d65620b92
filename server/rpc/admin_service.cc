#include "server/rpc/admin_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "backends/core/problem_list.h"
#include "backends/core/status.h"
#include "proto/codec.h"
#include "proto/codec_enums.h"
#include "server/rpc/plain_call.h"

namespace convgrad {
namespace {

// Some make a plan in a minute: nobody means more than this.
constexpr int kMaxProblems = 1000;

absl::Status NoneOf(absl::string_view field, int found,
                    absl::string_view expected) {
  return InvalidField(Reason::kInvalidEnum, field, absl::StrCat(found),
                      expected);
}

absl::StatusOr<ProblemList> Decode(const v1::WarmupRequest& request) {
  RETURN_IF_ERROR(CheckCriticalFields(request));
  if (request.problems_size() > kMaxProblems) {
    return InvalidField(Reason::kOutOfRange, "problems",
                        absl::StrCat(request.problems_size(), " problems"),
                        absl::StrCat("at most ", kMaxProblems));
  }
  ProblemList work;
  for (int i = 0; i < request.problems_size(); ++i) {
    const std::string field = absl::StrCat("problems[", i, "].");
    absl::StatusOr<ConvProblem> problem = Parse(request.problems(i));
    if (!problem.ok()) return WithFieldPrefix(problem.status(), field);
    RETURN_IF_ERROR(WithFieldPrefix(Validate(*problem), field));
    work.problems.push_back(*std::move(problem));
  }
  if (request.dtypes_size() > 0) work.dtypes.clear();
  for (int wire : request.dtypes()) {
    const auto dtype = DecodeDataType(static_cast<v1::DataType>(wire));
    if (!dtype) return NoneOf("dtypes", wire, "F32, BF16 or F16");
    work.dtypes.push_back(*dtype);
  }
  if (request.layouts_size() > 0) work.layouts.clear();
  for (int wire : request.layouts()) {
    const auto layout = DecodeLayout(static_cast<v1::Layout>(wire));
    if (layout != Layout::kNCX && layout != Layout::kNXC) {
      return NoneOf("layouts", wire, "NCX or NXC");
    }
    work.layouts.push_back(*layout);
  }
  return work;
}

}  // namespace

grpc::ServerUnaryReactor* AdminService::Warmup(
    grpc::CallbackServerContext* context, const v1::WarmupRequest* request,
    v1::WarmupResponse* response) {
  auto call =
      std::make_shared<PlainCall>(services_, context, "Warmup", Role::kAdmin);
  grpc::ServerUnaryReactor* reactor = call->reactor();
  absl::StatusOr<ProblemList> work =
      call->admission().ok() ? Decode(*request) : call->admission();
  if (!work.ok()) {
    call->End(work.status());
    return reactor;
  }
  services_.warm_up(
      work->Operations(), [context] { return context->IsCancelled(); },
      [call, response](const absl::StatusOr<WarmupOutcome>& outcome) {
        if (outcome.ok()) {
          response->set_plans(outcome->plans);
          response->set_made(outcome->made);
          response->set_seconds(absl::ToDoubleSeconds(outcome->elapsed));
        }
        call->End(outcome.status());
      });
  return reactor;
}

}  // namespace convgrad
