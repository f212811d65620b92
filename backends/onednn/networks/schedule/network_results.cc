#include "backends/onednn/networks/schedule/network_results.h"

namespace convgrad::onednn {
namespace {

int64_t BytesOfF32(const Dims& dims) {
  return *ByteSize(TensorDescriptor{.dims = dims});
}

}  // namespace

// Results have the order of the table in program_operation.h.
NetworkResults PlaceResults(const ProgramOperation& operation, bool everything,
                            Schedule* schedule) {
  const ProgramRequest& request = operation.request();
  const convgrad::Program& program = operation.program();
  const bool has_forward = request.part != ProgramPart::kBackward;
  const bool has_gradients = request.part == ProgramPart::kBackward ||
                             request.part == ProgramPart::kTrain;
  NetworkResults results;
  size_t next = 0;
  // Returns the buffer of the next result if it exists, else one that the plan
  // owns.
  const auto place = [&](bool exists, int64_t bytes) {
    const BufferId buffer =
        exists ? schedule->AddBuffer({bytes, Area::kResult, next++})
               : schedule->AddBuffer(bytes);
    if (exists || everything) results.wanted.push_back(buffer);
    return buffer;
  };
  for (const std::string& name : request.fetched) {
    if (!has_forward) continue;
    const Dims& dims = operation.shapes().dims.at(name);
    results.fetched.push_back(place(true, BytesOfF32(dims)));
  }
  for (const size_t index : UpdatedStatistics(program)) {
    const ProgramParameter& parameter = program.parameters[index];
    results.statistics[parameter.name] =
        place(has_forward, *ByteSize(ParameterDescriptor(parameter)));
  }
  if (request.part == ProgramPart::kForward) return results;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const bool is_wanted = has_gradients && request.input_gradients[i];
    const BufferId result =
        place(is_wanted, BytesOfF32(request.inputs[i].dims));
    if (program.inputs[i].is_index || !(is_wanted || everything)) continue;
    results.input_gradients[program.inputs[i].name] = result;
  }
  for (const ProgramParameter& parameter : program.parameters) {
    const bool is_wanted =
        has_gradients && request.parameter_gradients && parameter.trainable;
    const BufferId result =
        place(is_wanted, *ByteSize(ParameterDescriptor(parameter)));
    if (!parameter.trainable || !(is_wanted || everything)) continue;
    results.parameter_gradients[parameter.name] = result;
  }
  return results;
}

}  // namespace convgrad::onednn
