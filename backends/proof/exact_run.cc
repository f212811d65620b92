#include "backends/proof/exact_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "absl/types/span.h"
#include "backends/core/logical_tensor.h"
#include "backends/core/status.h"

namespace convgrad {
namespace {

// Bytes aligned to 64 that begin as NaN in every dtype.
class NanBuffer {
 public:
  explicit NanBuffer(int64_t bytes)
      : bytes_(bytes),
        data_(static_cast<std::byte*>(
            ::operator new(std::max<int64_t>(bytes, 1), kAlignment))) {
    std::fill_n(data_.get(), bytes_, std::byte{0xff});
  }

  std::byte* data() const { return data_.get(); }
  absl::Span<std::byte> span() const {
    return absl::MakeSpan(data(), static_cast<size_t>(bytes_));
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const {
      ::operator delete(data, kAlignment);
    }
  };
  int64_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

// Returns a number from -4 to 4 without a pattern, so that a swapped tap,
// channel or axis changes results. Uses splitmix64's finaliser (Vigna, public
// domain).
double IntegerAt(uint64_t seed, uint64_t position) {
  uint64_t z = (seed << 40) + (position + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) % 9) - 4;
}

// Writes integers; pad lanes stay as they are.
void FillIntegers(size_t seed, const TensorDescriptor& tensor,
                  std::byte* data) {
  const int64_t width = ByteSizeOf(tensor.dtype);
  uint64_t position = 0;
  for (int64_t offset : LogicalOffsets(tensor)) {
    StoreRounded(tensor.dtype, IntegerAt(seed, position++),
                 data + offset * width);
  }
}

// Returns the names of operands, by position.
std::vector<std::string> NamesOf(const ProgramOperation& operation) {
  std::vector<std::string> names;
  for (const auto& input : operation.program().inputs) {
    names.push_back(input.name);
  }
  for (const auto& parameter : operation.program().parameters) {
    names.push_back(parameter.name);
  }
  if (operation.has_randomness()) names.push_back("randomness");
  return names;
}

// Returns quarters of -4 to 4; variances above 0, classes, and counts.
std::vector<double> ValuesOf(const std::string& name,
                             const TensorDescriptor& tensor, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(ElementCount(tensor)));
  for (size_t i = 0; i < values.size(); ++i) {
    const double integer = IntegerAt(seed, i);
    values[i] = tensor.dtype == DataType::kI64 || name == "var"
                    ? std::fabs(integer) + 1
                    : integer / 4;
  }
  return values;
}

// The results of one run each, and whether the plan's run succeeded.
struct BothResults {
  std::vector<NanBuffer> wanted, got;
  bool ran;
};

absl::Status RunWithScratch(const Plan& plan, RunBuffers* buffers) {
  const NanBuffer scratch(plan.scratch_bytes());
  buffers->scratch = scratch.span();
  return plan.Run(*buffers).status();
}

// Runs the reference and the plan on operands that `fill` writes.
absl::StatusOr<BothResults> RunBoth(
    const Operation& operation, const Plan& plan, const Backend& reference,
    absl::FunctionRef<void(size_t position, const TensorDescriptor& tensor,
                           std::byte* data)>
        fill) {
  const TensorUses uses = operation.OperandUses();
  std::vector<NanBuffer> operands;
  RunBuffers buffers(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    if (uses[i].tensor == nullptr) continue;
    operands.emplace_back(*ByteSize(*uses[i].tensor));
    buffers.operands[i] = operands.back().data();
    fill(i, *uses[i].tensor, operands.back().data());
  }
  const auto new_results = [&] {
    std::vector<NanBuffer> results;
    buffers.results.clear();
    for (const TensorUse& use : operation.ResultUses()) {
      results.emplace_back(*ByteSize(*use.tensor));
      buffers.results.push_back(results.back().data());
    }
    return results;
  };
  ASSIGN_OR_RETURN(const auto exact, reference.MakePlan(operation, {}));
  BothResults both;
  both.wanted = new_results();
  RETURN_IF_ERROR(RunWithScratch(*exact, &buffers));
  both.got = new_results();
  both.ran = RunWithScratch(plan, &buffers).ok();
  return both;
}

template <typename Bits>
bool AreEqual(absl::Span<const std::byte> a, absl::Span<const std::byte> b) {
  for (size_t i = 0; i < a.size(); i += sizeof(Bits)) {
    Bits x, y;
    std::memcpy(&x, &a[i], sizeof(Bits));
    std::memcpy(&y, &b[i], sizeof(Bits));
    // A zero without its sign bit is 0.
    const bool are_zeros =
        static_cast<Bits>(x << 1) == 0 && static_cast<Bits>(y << 1) == 0;
    if (x != y && !are_zeros) return false;
  }
  return true;
}

bool AreEqual(DataType dtype, const NanBuffer& a, const NanBuffer& b) {
  return ByteSizeOf(dtype) == 4 ? AreEqual<uint32_t>(a.span(), b.span())
                                : AreEqual<uint16_t>(a.span(), b.span());
}

bool AreClose(const TensorDescriptor& tensor, const NanBuffer& got,
              const NanBuffer& wanted, double tolerance) {
  const std::vector<double> a = LoadLogical(tensor, got.data());
  const std::vector<double> b = LoadLogical(tensor, wanted.data());
  double most = 1e-3;
  for (double value : b) most = std::max(most, std::fabs(value));
  for (size_t i = 0; i < a.size(); ++i) {
    if (!(std::fabs(a[i] - b[i]) <= tolerance * most)) return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<Result>> WrongResults(const ConvOperation& operation,
                                                 const Plan& plan,
                                                 const Backend& reference) {
  ASSIGN_OR_RETURN(const BothResults both,
                   RunBoth(operation, plan, reference, FillIntegers));
  std::vector<Result> wrong;
  for (size_t i = 0; i < operation.results.size(); ++i) {
    const ResultRequest& request = operation.results[i];
    if (!both.ran ||
        !AreEqual(request.descriptor.dtype, both.got[i], both.wanted[i])) {
      wrong.push_back(request.which);
    }
  }
  return wrong;
}

absl::StatusOr<bool> AgreesWithReference(const ProgramOperation& operation,
                                         const Plan& plan,
                                         const Backend& reference) {
  const std::vector<std::string> names = NamesOf(operation);
  const auto fill = [&](size_t i, const TensorDescriptor& tensor,
                        std::byte* data) {
    StoreLogical(tensor, ValuesOf(names[i], tensor, i), data);
  };
  ASSIGN_OR_RETURN(const BothResults both,
                   RunBoth(operation, plan, reference, fill));
  if (!both.ran) return false;
  const double tolerance =
      operation.dtype() == DataType::kF32 ? 1e-4 : 1.0 / 16;
  const TensorUses results = operation.ResultUses();
  for (size_t i = 0; i < results.size(); ++i) {
    if (!AreClose(*results[i].tensor, both.got[i], both.wanted[i], tolerance)) {
      return false;
    }
  }
  return true;
}

}  // namespace convgrad
