// Which of oneDNN's implementations computes a pass, and in which layouts.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/core/convolution/lowering.h"
#include "backends/onednn/library/onednn_types.h"

namespace convgrad::onednn {

// Which of its tensors a pass shares with another pass of its operation.
enum class Shared { kNothing, kData, kOut };

// A pass to be computed, with the tensors as the caller has them.
struct PassSpec {
  Pass pass = Pass::kForward;
  ConvProblem problem;  // lowered
  DataType operand_dtype = DataType::kF32;
  StridedView data, weight, out;
  // Forward: f32 bias. Backward weight: a bias gradient of this dtype.
  std::optional<DataType> bias;
  // Whether the caller's tensor is copied in any case, for its dtype or layout:
  // another format then costs nothing more.
  bool copies_data = false;
  bool copies_out = false;
  Shared shared = Shared::kNothing;
  int threads = 1;
};

// One way to compute a pass.
struct Candidate {
  Format format = Format::kAny;
  dnnl::primitive_desc_base primitive_desc;
  // In what the primitive wants its tensors.
  dnnl::memory::desc data, weight, out, bias;
  std::string implementation;
  // Of reorders and compute; a model, good for comparison only.
  double predicted_seconds = 0;
};

// Returns whether the implementation is one of oneDNN 3.2.0's pointwise kernels
// below AVX-512, which gather what a stride reads in scratch: in channels last,
// of channels that don't fill a vector, they write beyond it.
bool WritesBeyondScratch(const ConvProblem& problem,
                         absl::string_view implementation);

// The DNNL_ARG_* of a pass's tensors.
struct PassArguments {
  int data, weight, out, bias;
};
PassArguments ArgumentsOf(Pass pass);

// Returns the same pass with all tensors converted and computed in f32.
PassSpec InF32(PassSpec spec);

// Returns every way the library offers that is right, in the order of Format.
// Its plain loops count only if it has nothing else, and in f32. Empty if none.
// Errors: kInternal if the library fails.
absl::StatusOr<std::vector<Candidate>> ListCandidates(const PassSpec& spec);

// Returns the way in `format`, if the library has it and it is right.
// Errors: kInternal if the library fails.
absl::StatusOr<std::optional<Candidate>> MakeCandidate(const PassSpec& spec,
                                                       Format format);

// Says in which format a pass shall be computed, or that the model may choose.
using FormatPreference =
    std::function<std::optional<Format>(const PassSpec& spec)>;

// How a pass shall be computed: as `spec` says, in this format.
struct ChosenPass {
  PassSpec spec;
  Format format = Format::kAny;
};

// Returns how an operation's passes shall be computed: a 16-bit one in f32
// where the library has no way in 16 bits; in the format that `preference`
// names, where the library has it, else in those predicted to be fastest
// together. One copy of a shared tensor serves both passes if they want it
// alike. The choice follows from specs and preference alone. Requires: at least
// one pass.
// Errors: kInternal, also if the library has no way.
absl::StatusOr<std::vector<ChosenPass>> ChooseFormats(
    std::vector<PassSpec> specs, const FormatPreference& preference);

}  // namespace convgrad::onednn
