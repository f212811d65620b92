#include "backends/onednn/networks/schedule/network_builder.h"

#include <algorithm>
#include <cstring>

namespace convgrad::onednn {
namespace {

int64_t BytesOf(const ProgramParameter& parameter) {
  return *ByteSize(ParameterDescriptor(parameter));
}

}  // namespace

NetworkBuilder::NetworkBuilder(const ProgramOperation& operation,
                               const NetworkOptions& options, bool everything,
                               Schedule schedule)
    : operation_(operation),
      options_(options),
      part_(operation.request().part),
      everything_(everything),
      forms_(FormsOf(operation.program(), operation.shapes())),
      schedule_(std::move(schedule)) {
  size_t next = FirstParameterOperand();
  for (const ProgramParameter& parameter : program().parameters) {
    parameters_[parameter.name] =
        schedule_.AddBuffer({BytesOf(parameter), Area::kOperand, next++});
  }
  for (const ProgramStep& step : program().steps) {
    for (const std::string& operand : step.operands) ++uses_[operand];
  }
  results_ = PlaceResults(operation, everything, &schedule_);
}

size_t NetworkBuilder::FirstParameterOperand() const {
  return part_ == ProgramPart::kBackward
             ? 1 + operation_.request().output_gradients.size()
             : program().inputs.size();
}

NetworkTensor NetworkBuilder::Like(const std::string& name) const {
  const Dims& dims = shapes().dims.at(name);
  const DataType dtype = dims.empty() ? DataType::kF32 : this->dtype();
  return TensorLike(dims, dtype, forms_.at(name), options_.block);
}

NetworkTensor NetworkBuilder::Like(const std::string& name, Form form) const {
  const NetworkTensor own = Like(name);
  return TensorLike(own.dims, own.blocks.dtype, form, options_.block);
}

NetworkTensor NetworkBuilder::AddValue(const std::string& name) {
  return AddValue(name, schedule_.AddBuffer(Like(name).blocks.bytes()));
}

NetworkTensor NetworkBuilder::AddValue(const std::string& name,
                                       BufferId buffer) {
  NetworkTensor tensor = Like(name);
  tensor.buffer = buffer;
  return values_[name] = tensor;
}

NetworkTensor NetworkBuilder::Value(const std::string& name, Form form) {
  const NetworkTensor own = OwnValue(name);
  const auto [place, is_new] = values_in_form_.try_emplace({name, form});
  if (is_new) {
    place->second = InForm(own, form, options_.block, &schedule_);
  }
  return place->second;
}

NetworkTensor NetworkBuilder::OwnValue(const std::string& name) {
  if (values_.contains(name)) return values_.at(name);
  const TensorDescriptor& descriptor = *InputDescriptor(name);
  const NetworkTensor like = Like(name);
  if (LiesAlike(descriptor, like)) return AddValue(name, InputBuffer(name));
  NetworkTensor tensor = AddValue(name);
  // Reads the caller's bytes, even if a backward gets a kept copy of them.
  AddImport(schedule_.AddBuffer(
                {*ByteSize(descriptor), Area::kOperand, InputIndex(name)}),
            descriptor, tensor, &schedule_);
  return tensor;
}

const TensorDescriptor* NetworkBuilder::InputDescriptor(
    const std::string& name) const {
  const size_t index = InputIndex(name);
  return index < program().inputs.size() ? &operation_.request().inputs[index]
                                         : nullptr;
}

size_t NetworkBuilder::InputIndex(const std::string& name) const {
  const auto& inputs = program().inputs;
  return std::find_if(inputs.begin(), inputs.end(),
                      [&](const auto& input) { return input.name == name; }) -
         inputs.begin();
}

BufferId NetworkBuilder::InputBuffer(const std::string& name) {
  if (inputs_.contains(name)) return inputs_.at(name);
  const size_t index = InputIndex(name);
  const int64_t bytes = *ByteSize(operation_.request().inputs[index]);
  BufferId buffer = schedule_.AddBuffer({bytes, Area::kOperand, index});
  if (part_ == ProgramPart::kForwardTape || part_ == ProgramPart::kBackward) {
    const BufferId kept = schedule_.AddBuffer(bytes);
    AddCopy(buffer, kept, bytes, &schedule_);
    buffer = kept;
  }
  return inputs_[name] = buffer;
}

BufferId NetworkBuilder::Parameter(const std::string& name) {
  if (name.empty()) return kNoBuffer;
  const auto found = parameters_.find(name);
  if (found != parameters_.end()) return found->second;
  return Converted(Value(name, Form::kRows), DataType::kF32, &schedule_).buffer;
}

BufferId NetworkBuilder::Randomness() {
  const size_t index = program().inputs.size() + program().parameters.size();
  return schedule_.AddBuffer({2 * sizeof(int64_t), Area::kOperand, index});
}

BufferId NetworkBuilder::NewStatistic(const std::string& name) {
  return parameters_[name] = results_.statistics.at(name);
}

BufferId NetworkBuilder::NewGradient(const std::string& value, Form form) {
  const BufferId buffer = schedule_.AddBuffer(Like(value, form).blocks.bytes());
  AddGradient(value, buffer, form);
  return buffer;
}

void NetworkBuilder::AddGradient(const std::string& value, BufferId buffer,
                                 Form form) {
  NetworkTensor gradient = Like(value, form);
  gradient.buffer = buffer;
  gradients_[value].push_back(gradient);
}

void NetworkBuilder::AddPartOfGradient(const std::string& value,
                                       PartGradient part) {
  parts_[value].push_back(std::move(part));
}

std::vector<BufferId> NetworkBuilder::OwnGradients(const std::string& value) {
  for (const NetworkTensor& gradient :
       AddParts(parts_[value], Like(value, Form::kRows), &schedule_)) {
    gradients_[value].push_back(gradient);
  }
  parts_.erase(value);
  std::vector<BufferId> own;
  for (NetworkTensor& gradient : gradients_[value]) {
    gradient = InForm(gradient, forms_.at(value), options_.block, &schedule_);
    gradient = Converted(gradient, Like(value).blocks.dtype, &schedule_);
    own.push_back(gradient.buffer);
  }
  return own;
}

BufferId NetworkBuilder::NewParameterGradient(const std::string& name) {
  if (FindParameter(program(), name) == nullptr) {
    NetworkTensor gradient = Like(name, Form::kRows);
    gradient.blocks.dtype = DataType::kF32;
    gradient.buffer = schedule_.AddBuffer(gradient.blocks.bytes());
    gradients_[name].push_back(gradient);
    return gradient.buffer;
  }
  const auto result = results_.parameter_gradients.find(name);
  const bool is_result =
      result != results_.parameter_gradients.end() && uses_.at(name) == 1;
  const BufferId buffer =
      is_result ? result->second
                : schedule_.AddBuffer(BytesOf(*FindParameter(program(), name)));
  parameter_gradients_[name].push_back(buffer);
  return buffer;
}

BufferId NetworkBuilder::GradientOf(const std::string& value) {
  const std::vector<BufferId> addends = OwnGradients(value);
  if (addends.empty()) return kNoBuffer;
  if (addends.size() == 1) return addends[0];
  NetworkTensor sum = Like(value);
  sum.buffer = schedule_.AddBuffer(sum.blocks.bytes());
  AddSums(sum.buffer, addends, sum.blocks, &schedule_);
  gradients_[value] = {sum};
  return sum.buffer;
}

std::pair<BufferId, BufferId> NetworkBuilder::GradientPairOf(
    const std::string& value) {
  const std::vector<BufferId> addends = OwnGradients(value);
  if (addends.size() == 2) return {addends[0], addends[1]};
  return {GradientOf(value), kNoBuffer};
}

void NetworkBuilder::FetchValues() {
  const std::vector<std::string>& names = operation_.request().fetched;
  for (size_t i = 0; i < results_.fetched.size(); ++i) {
    AddExport(OwnValue(names[i]), results_.fetched[i],
              RowMajorF32(shapes().dims.at(names[i])), &schedule_);
  }
}

void NetworkBuilder::SeedGradient(const std::string& output,
                                  BufferId gradient) {
  NetworkTensor tensor = Like(output);
  const TensorDescriptor descriptor = RowMajorF32(tensor.dims);
  if (!LiesAlike(descriptor, tensor)) {
    tensor.buffer = schedule_.AddBuffer(tensor.blocks.bytes());
    AddImport(gradient, descriptor, tensor, &schedule_);
    gradient = tensor.buffer;
  }
  AddGradient(output, gradient, tensor.form);
}

void NetworkBuilder::BeginBackward() {
  const auto bytes_of = [&](const std::string& name) {
    return *ByteSize(RowMajorF32(shapes().dims.at(name)));
  };
  if (everything_) {
    for (const std::string& name : program().outputs) {
      SeedGradient(name, schedule_.AddBuffer(bytes_of(name)));
    }
    return;
  }
  if (part_ == ProgramPart::kTrain) {
    const BufferId one = schedule_.AddBuffer(sizeof(float));
    schedule_.Add({.kind = "loss",
                   .writes = {one},
                   .function = [one](const RunContext& context) {
                     *context.Write<float>(one) = 1;
                   }});
    AddGradient(program().outputs[0], one, Form::kRows);
    return;
  }
  const auto& names = operation_.request().output_gradients;
  for (size_t i = 0; i < names.size(); ++i) {
    SeedGradient(names[i], schedule_.AddBuffer(
                               {bytes_of(names[i]), Area::kOperand, 1 + i}));
  }
}

void NetworkBuilder::EndBackward() {
  const auto zero = [&](BufferId buffer) {
    const int64_t bytes = schedule_.buffers()[buffer].bytes;
    schedule_.Add({.kind = "gradient sum",
                   .writes = {buffer},
                   .function = [=](const RunContext& context) {
                     std::memset(context.At(buffer), 0, bytes);
                   }});
  };
  for (const auto& [name, result] : results_.input_gradients) {
    NetworkTensor gradient = Like(name);
    gradient.buffer = GradientOf(name);
    if (gradient.buffer == kNoBuffer) {
      zero(result);
    } else {
      AddExport(gradient, result, RowMajorF32(gradient.dims), &schedule_);
    }
  }
  for (const auto& [name, result] : results_.parameter_gradients) {
    const std::vector<BufferId>& addends = parameter_gradients_[name];
    if (addends.empty()) {
      zero(result);
    } else if (addends[0] != result) {
      const int64_t count =
          schedule_.buffers()[result].bytes / int64_t{sizeof(float)};
      AddSums(result, addends, {1, count, 1, count, DataType::kF32},
              &schedule_);
    }
  }
}

std::vector<bool> NetworkBuilder::Wanted() const {
  std::vector<bool> wanted(schedule_.buffers().size());
  for (const BufferId buffer : results_.wanted) wanted[buffer] = true;
  return wanted;
}

std::vector<bool> NetworkBuilder::LastingParameters() const {
  std::vector<bool> is_lasting(schedule_.buffers().size());
  for (const auto& [name, buffer] : parameters_) {
    is_lasting[buffer] = !results_.statistics.contains(name);
  }
  return is_lasting;
}

}  // namespace convgrad::onednn
