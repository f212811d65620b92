#include "server/rpc/control_calls.h"

#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "backends/core/convolution/problem_list.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "convgrad/v1/service.pb.h"
#include "proto/codec/codec_enums.h"

namespace convgrad {
namespace {

// A list of repeated values would multiply the operations without end.
absl::Status Repeated(absl::string_view field) {
  return InvalidField(Reason::kDuplicate, field, "a value twice",
                      "each value once");
}

// Checks the limits of each problem, and names it in the error.
absl::Status CheckProblems(const ProblemList& work,
                           const CallServices& services) {
  for (size_t i = 0; i < work.problems.size(); ++i) {
    const ProblemList one = {{work.problems[i]}, work.dtypes, work.layouts};
    RETURN_IF_ERROR(
        WithFieldPrefix(CheckLimits(one.Operations(), *services.router,
                                    services.memory->budget),
                        absl::StrCat("problems[", i, "].")));
  }
  return absl::OkStatus();
}

absl::StatusOr<ProblemList> Decode(const v1::WarmupRequest& request) {
  if (request.problems_size() > kMaxProblems) {
    return OutOfRange("problems",
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
    if (!dtype || !IsFloating(*dtype)) {
      return InvalidEnum("dtypes", wire, "F32, BF16 or F16");
    }
    if (absl::c_linear_search(work.dtypes, *dtype)) return Repeated("dtypes");
    work.dtypes.push_back(*dtype);
  }
  if (request.layouts_size() > 0) work.layouts.clear();
  for (int wire : request.layouts()) {
    const auto layout = DecodeLayout(static_cast<v1::Layout>(wire));
    if (layout != Layout::kNCX && layout != Layout::kNXC) {
      return InvalidEnum("layouts", wire, "NCX or NXC");
    }
    if (absl::c_linear_search(work.layouts, *layout)) {
      return Repeated("layouts");
    }
    work.layouts.push_back(*layout);
  }
  return work;
}

}  // namespace

absl::Status HandleGetCapabilities(PlainCall* call) {
  RETURN_IF_ERROR(call->Parse<v1::GetCapabilitiesRequest>().status());
  return call->AnswerWith(call->services().capabilities());
}

absl::Status HandleWarmup(PlainCall* call) {
  ASSIGN_OR_RETURN(const auto request, call->Parse<v1::WarmupRequest>());
  ASSIGN_OR_RETURN(const ProblemList work, Decode(request));
  RETURN_IF_ERROR(CheckProblems(work, call->services()));
  call->services().warm_up(
      work.Operations(),
      [cancelled = call->cancelled()] { return cancelled->load(); },
      [call](const absl::StatusOr<WarmupOutcome>& outcome) {
        Call::HandOver();
        v1::WarmupResponse response;
        if (outcome.ok()) {
          response.set_plans(outcome->plans);
          response.set_made(outcome->made);
          response.set_seconds(absl::ToDoubleSeconds(outcome->elapsed));
        }
        call->Finish(outcome.status(), response);
      });
  return absl::OkStatus();
}

}  // namespace convgrad
