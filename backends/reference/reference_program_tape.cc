#include "backends/reference/reference_program_tape.h"

#include <cstring>

#include "absl/functional/function_ref.h"
#include "backends/core/checked_math.h"

namespace convgrad {
namespace {

constexpr int64_t kAlignment = 64;

// Calls visit(name, offset, count) for each value, and returns the bytes.
int64_t ForEachPlace(
    const ProgramOperation& operation,
    absl::FunctionRef<void(const std::string&, int64_t, int64_t)> visit) {
  int64_t offset = kAlignment;  // after the seed
  const auto place = [&](const std::string& name) {
    const int64_t count = CountOf(operation.shapes().dims.at(name));
    visit(name, offset, count);
    const auto bytes = count * static_cast<int64_t>(sizeof(double));
    offset += CeilDiv(bytes, kAlignment) * kAlignment;
  };
  for (const ProgramInput& input : operation.program().inputs) {
    place(input.name);
  }
  for (const ProgramStep& step : operation.program().steps) place(step.result);
  return offset;
}

}  // namespace

int64_t TapeBytesOf(const ProgramOperation& operation) {
  return ForEachPlace(operation, [](const std::string&, int64_t, int64_t) {});
}

void StoreTape(const ProgramOperation& operation, const DropoutSeed& seed,
               const NamedValues& values, void* tape) {
  auto* bytes = static_cast<std::byte*>(tape);
  std::memset(bytes, 0, TapeBytesOf(operation));
  std::memcpy(bytes, &seed, sizeof(seed));
  ForEachPlace(operation, [&](const std::string& name, int64_t offset,
                              int64_t count) {
    std::memcpy(bytes + offset, values.at(name).data(), count * sizeof(double));
  });
}

DropoutSeed LoadTape(const ProgramOperation& operation, const void* tape,
                     NamedValues* values) {
  const auto* bytes = static_cast<const std::byte*>(tape);
  DropoutSeed seed;
  std::memcpy(&seed, bytes, sizeof(seed));
  ForEachPlace(
      operation, [&](const std::string& name, int64_t offset, int64_t count) {
        Values& value = (*values)[name];
        value.resize(count);
        std::memcpy(value.data(), bytes + offset, count * sizeof(double));
      });
  return seed;
}

}  // namespace convgrad
