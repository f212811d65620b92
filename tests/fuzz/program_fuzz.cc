// Fuzzes programs: validation, text, shapes, operations.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "backends/core/program/operators/windows/pooling.h"
#include "backends/core/program/program_operation.h"
#include "proto/codec/codec.h"
#include "proto/codec/program_codec.h"
#include "tests/fuzz/inputs.pb.h"
#include "tests/fuzz/message_fuzzer.h"
#include "tests/fuzz/require.h"

namespace convgrad::fuzz {
namespace {

std::vector<absl::string_view> WordsOfTheTable() {
  // Names, and the word for an operand that is left out.
  std::vector<absl::string_view> words = {"x", "y", "z",    "w",
                                          "b", "h", "loss", "none"};
  for (const OperatorSpec& spec : Operators()) {
    words.push_back(spec.name);
    for (const AttributeSpec& attribute : spec.attributes) {
      words.push_back(attribute.name);
      if (attribute.words.empty()) continue;
      const std::vector<absl::string_view> given =
          absl::StrSplit(attribute.words, '|');
      words.insert(words.end(), given.begin(), given.end());
    }
  }
  return words;
}

void CheckRoundTrips(const Program& program) {
  const auto decoded = DecodeProgram(EncodeProgram(program));
  Require(decoded.ok() && *decoded == program, "a program is what was encoded");
  const auto parsed = ParseProgram(ToString(program));
  Require(parsed.ok(), "a program's text can be read");
  // NaN isn't equal to itself, but its texts are.
  Require(*parsed == program || ToString(*parsed) == ToString(program),
          "and is the program's");
}

void CheckUses(const TensorUses& uses) {
  for (const TensorUse& use : uses) {
    if (use.tensor == nullptr) continue;
    const auto bytes = ByteSize(*use.tensor);
    Require(bytes.has_value() && *bytes >= 0, "a tensor has a size in bytes");
  }
}

// Visits the windows of poolings as backends do.
void CheckPools(const ProgramOperation& operation) {
  for (const ProgramStep& step : operation.program().steps) {
    const OperatorSpec& spec = SpecOf(step.op);
    if (spec.taps == nullptr) continue;
    const StepDims dims(step, operation.shapes());
    const size_t axes = operation.shapes().dims.at(step.result).size() - 2;
    for (size_t axis = 0; axis < axes; ++axis) {
      Require(spec.taps(dims, axis) >= 0, "taps are counted");
    }
    if (step.op != Operator::kMaxPool && step.op != Operator::kAvgPool) {
      continue;
    }
    for (const PoolAxis& axis : PoolAxesOf(step, operation.shapes())) {
      Require(axis.out >= 1 && axis.pad_begin >= 0 && axis.pad_end >= 0,
              "windows are in the padded input");
      if (step.op != Operator::kAvgPool) continue;
      for (const int64_t at : {int64_t{0}, axis.out - 1}) {
        const AxisWindow window = PaddedWindow(axis, at);
        Require(window.begin < window.end && window.begin < axis.in &&
                    window.end > 0,
                "each window has an element of the input");
        Require(AveragedElements(axis, at) >= 1, "no average of nothing");
      }
    }
  }
}

ProgramRequest RequestOf(const ProgramRun& input,
                         std::shared_ptr<const Program> program) {
  ProgramRequest request;
  request.program = std::move(program);
  request.part =
      static_cast<ProgramPart>(static_cast<uint32_t>(input.part()) % 4);
  request.compute_dtype = input.compute_dtype() == v1::DATA_TYPE_BF16
                              ? DataType::kBF16
                              : DataType::kF32;
  request.fetched.assign(input.fetched().begin(), input.fetched().end());
  request.output_gradients.assign(input.output_gradients().begin(),
                                  input.output_gradients().end());
  request.input_gradients.assign(input.input_gradients().begin(),
                                 input.input_gradients().end());
  request.input_gradients.resize(request.program->inputs.size());
  request.parameter_gradients = !input.leave_parameters();
  request.recompute = input.recompute();
  request.fuse = input.fuse();
  request.fast = input.fast();
  request.tape_bytes = std::max<int64_t>(input.tape_bytes(), 0);
  return request;
}

}  // namespace

std::unique_ptr<google::protobuf::Message> NewInput() {
  return std::make_unique<ProgramRun>();
}

absl::Span<const absl::string_view> Words() {
  static const auto& words =
      *new std::vector<absl::string_view>(WordsOfTheTable());
  return words;
}

void Try(const google::protobuf::Message& message) {
  const auto& input = static_cast<const ProgramRun&>(message);
  const auto program = DecodeProgram(input.program());
  if (!program.ok()) return RequireRefusal(program.status());
  CheckRoundTrips(*program);
  UpdatedStatistics(*program);
  ProgramRequest request =
      RequestOf(input, std::make_shared<const Program>(*program));
  for (const v1::Tensor& tensor : input.inputs()) {
    const auto descriptor = DecodeTensor(tensor, 1, "inputs");
    if (!descriptor.ok()) return RequireRefusal(descriptor.status());
    request.inputs.push_back(*descriptor);
  }
  if (request.inputs.size() != program->inputs.size()) return;
  const auto operation = ProgramOperation::Make(std::move(request));
  if (!operation.ok()) return RequireRefusal(operation.status());
  CheckUses((*operation)->OperandUses());
  CheckUses((*operation)->ResultUses());
  Require((*operation)->flops() >= 0, "programs take no negative time");
  Require((*operation)->nominal_macs() >= 0, "nor by estimate");
  Require(!(*operation)->text().empty(), "plans have a key");
  CheckPools(**operation);
}

}  // namespace convgrad::fuzz
