// Decodes the wire's problem: its spatial lists become axes.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/field_errors.h"
#include "backends/core/status.h"
#include "proto/codec/codec_enums.h"
#include "proto/codec/decode_operation.h"

namespace convgrad {
namespace {

using List = google::protobuf::RepeatedField<int64_t>;

std::string Entries(int count) {
  return absl::StrCat(count, count == 1 ? " entry" : " entries");
}

// Sets `member` of every axis from `list`. An empty list leaves the default; a
// single entry applies to all axes.
absl::Status SetAxes(const List& list, absl::string_view name,
                     int64_t SpatialAxis::*member, ConvProblem* problem) {
  const int rank = static_cast<int>(problem->axes.size());
  if (list.empty()) return absl::OkStatus();
  if (rank == 0 || (list.size() != 1 && list.size() != rank)) {
    std::string expected = "none, there are no spatial axes";
    if (rank == 1) expected = "at most 1, for one spatial axis";
    if (rank > 1) {
      expected = absl::StrCat("none, 1 or ", rank, ", one per spatial axis");
    }
    return ShapeMismatch(absl::StrCat("operation.problem.", name),
                         Entries(list.size()), expected);
  }
  for (int i = 0; i < rank; ++i) {
    problem->axes[i].*member = list[list.size() == 1 ? 0 : i];
  }
  return absl::OkStatus();
}

absl::Status SetInputDims(const v1::ConvProblem& message,
                          ConvProblem* problem) {
  const List& dims = message.input_dims();
  if (dims.size() < 2 || dims.size() > kMaxDims) {
    return ShapeMismatch("operation.problem.input_dims", Entries(dims.size()),
                         "2 to 5: batch, channels and the spatial axes");
  }
  problem->batch = dims[0];
  problem->in_channels = dims[1];
  problem->axes.resize(dims.size() - 2);
  for (int i = 2; i < dims.size(); ++i) problem->axes[i - 2].in = dims[i];
  return absl::OkStatus();
}

absl::Status CheckNoPads(const List& pads, absl::string_view name,
                         v1::Padding padding) {
  if (pads.empty()) return absl::OkStatus();
  return ShapeMismatch(
      absl::StrCat("operation.problem.", name), Entries(pads.size()),
      absl::StrCat("none, padding is ", v1::Padding_Name(padding)));
}

absl::Status SetWindow(const v1::ConvProblem& message, ConvProblem* problem) {
  if (message.kernel().empty() && !problem->axes.empty()) {
    return Missing("operation.problem.kernel", Entries(0),
                   absl::StrCat("1 or ", problem->axes.size()));
  }
  RETURN_IF_ERROR(
      SetAxes(message.kernel(), "kernel", &SpatialAxis::kernel, problem));
  RETURN_IF_ERROR(
      SetAxes(message.stride(), "stride", &SpatialAxis::stride, problem));
  RETURN_IF_ERROR(
      SetAxes(message.dilation(), "dilation", &SpatialAxis::dilation, problem));
  if (DecodePadding(message.padding()) != Padding::kExplicit) {
    RETURN_IF_ERROR(
        CheckNoPads(message.pad_begin(), "pad_begin", message.padding()));
    RETURN_IF_ERROR(
        CheckNoPads(message.pad_end(), "pad_end", message.padding()));
  }
  RETURN_IF_ERROR(SetAxes(message.pad_begin(), "pad_begin",
                          &SpatialAxis::pad_begin, problem));
  RETURN_IF_ERROR(
      SetAxes(message.pad_end(), "pad_end", &SpatialAxis::pad_end, problem));
  return SetAxes(message.output_padding(), "output_padding",
                 &SpatialAxis::output_padding, problem);
}

}  // namespace

absl::StatusOr<ConvProblem> DecodeProblem(const v1::ConvProblem& message) {
  ConvProblem problem;
  RETURN_IF_ERROR(SetInputDims(message, &problem));
  problem.transposed = message.transposed();
  problem.out_channels = message.out_channels();
  problem.groups = message.has_groups() ? message.groups() : 1;
  problem.relu = message.activation() == v1::ACTIVATION_RELU;
  RETURN_IF_ERROR(SetWindow(message, &problem));

  ShapeHints hints;
  hints.padding = DecodePadding(message.padding());
  hints.has_output_padding = !message.output_padding().empty();
  if (!message.output_dims().empty()) {
    ConvProblem named = problem;
    RETURN_IF_ERROR(SetAxes(message.output_dims(), "output_dims",
                            &SpatialAxis::out, &named));
    hints.output.emplace();
    for (const SpatialAxis& axis : named.axes) {
      hints.output->push_back(axis.out);
    }
  }
  absl::StatusOr<ConvProblem> resolved = Resolve(std::move(problem), hints);
  if (resolved.ok()) return resolved;
  return WithFieldPrefix(resolved.status(), "operation.");
}

}  // namespace convgrad
