// `Candidate` is one of oneDNN's implementations of a pass, with its layouts.
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

// The tensor that a pass shares with another pass of its operation.
enum class Shared { kNothing, kData, kOut };

// A pass to compute, with the caller's tensors.
struct PassSpec {
  Pass pass = Pass::kForward;
  ConvProblem problem;  // lowered
  DataType operand_dtype = DataType::kF32;
  StridedView data, weight, out;
  bool has_bias = false;  // of a forward pass, in f32
  // True if the caller's tensor is copied in any case, for its dtype or layout.
  // Another format then costs nothing more.
  bool copies_data = false;
  bool copies_out = false;
  Shared shared = Shared::kNothing;
  int threads = 1;
};

// One implementation of a pass.
struct Candidate {
  Format format = Format::kAny;
  dnnl::primitive_desc_base primitive_desc;
  // Layouts that the primitive requires.
  dnnl::memory::desc data, weight, out;
  std::string implementation;
  // Time of reorders and compute by the model; only for comparisons.
  double predicted_seconds = 0;
};

// Returns whether the implementation is one of oneDNN 3.2.0's strided pointwise
// kernels below AVX-512. They gather the strided elements in scratch. In
// channels-last layout, if channels don't fill a vector, they write beyond it.
bool WritesBeyondScratch(const ConvProblem& problem,
                         absl::string_view implementation);

// Returns whether the implementation is oneDNN 3.2.0's depthwise weight
// gradient on a problem for which it leaves out rows of the output: 2-D, a
// kernel higher than 7, and a vertical stride.
bool MissesRows(Pass pass, const ConvProblem& problem,
                absl::string_view implementation);

// Returns whether the implementation is one of oneDNN 3.2.0's weight gradients
// of 3-D convolutions, on a problem for which it reads and writes beyond its
// tensors: the first output in depth without padding in front, or the last one
// if all have such padding, ends behind the input. In f32 only problems with a
// stride above 1, and more padding in front than that, are wrong.
bool MisplacesPlanes(Pass pass, const ConvProblem& problem,
                     absl::string_view implementation);

// Returns whether the implementation is one with AMX that adds up whole rows of
// the kernel at a time, and fills the rest of a tile with what comes next in
// memory, times 0: a forward pass of up to 4 channels.
bool FillsTilesWithNeighbours(Pass pass, const ConvProblem& problem,
                              absl::string_view implementation);

// Returns whether the implementation is one of oneDNN 3.2.0's data gradients of
// bf16 with AMX, on a problem whose windows see only padding along an axis. The
// library reads address 0 when it makes such a primitive.
bool CrashesWithoutTaps(Pass pass, const ConvProblem& problem,
                        absl::string_view implementation);

// DNNL_ARG_* of a pass's tensors.
struct PassArguments {
  int data, weight, out;
};
PassArguments ArgumentsOf(Pass pass);

// Returns the same pass with all tensors converted and computed in f32.
PassSpec InF32(PassSpec spec);

// Returns every correct implementation of the library, in the order of Format.
// Includes its plain loops only if it has nothing else, and only in f32. Empty
// if there is none.
// Errors: kInternal if the library fails.
absl::StatusOr<std::vector<Candidate>> ListCandidates(const PassSpec& spec);

// Returns the format in which to compute a pass; nullopt if the model may
// choose.
using FormatPreference =
    std::function<std::optional<Format>(const PassSpec& spec)>;

// Chooses how to compute an operation's passes. A 16-bit pass is computed in
// f32 if the library has no implementation in 16 bits. A pass uses the format
// that `preference` names, if the library supports it; the other formats are
// those predicted to be fastest together. One copy of a shared tensor serves
// both passes if they require the same layout. The choice depends only on specs
// and preference. Requires: at least one pass.
// Errors: kUnimplemented if the library has no implementation; kInternal.
absl::StatusOr<std::vector<Candidate>> ChooseFormats(
    std::vector<PassSpec> specs, const FormatPreference& preference);

}  // namespace convgrad::onednn
