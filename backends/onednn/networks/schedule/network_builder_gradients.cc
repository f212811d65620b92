// The gradients of values and parameters.
#include <utility>

#include "backends/onednn/networks/schedule/network_builder.h"

namespace convgrad::onednn {

NetworkTensor NetworkBuilder::NewGradient(const std::string& value, Form form) {
  AddGradient(value, AddBuffer(Like(value, form).blocks.bytes()), form);
  return gradients_[value].back();
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
  const NetworkTensor own_like = LikeOwn(value);
  for (const NetworkTensor& gradient :
       AddParts(parts_[value],
                TensorLike(own_like.dims, own_like.blocks.dtype, Form::kRows,
                           options_.block),
                this)) {
    gradients_[value].push_back(gradient);
  }
  parts_.erase(value);
  std::vector<BufferId> own;
  for (NetworkTensor& gradient : gradients_[value]) {
    gradient = InForm(gradient, forms_.at(value), options_.block, this);
    gradient = Converted(gradient, own_like.blocks.dtype, this);
    own.push_back(gradient.buffer);
  }
  return own;
}

BufferId NetworkBuilder::NewParameterGradient(const std::string& name) {
  if (FindParameter(program(), name) == nullptr) {
    NetworkTensor gradient = Like(name, Form::kRows);
    gradient.blocks.dtype = DataType::kF32;
    gradient.buffer = AddBuffer(gradient.blocks.bytes());
    gradients_[name].push_back(gradient);
    return gradient.buffer;
  }
  const auto result = results_.parameter_gradients.find(name);
  const bool is_result =
      result != results_.parameter_gradients.end() && uses_.at(name) == 1;
  const BufferId buffer = is_result ? result->second
                                    : AddBuffer(*ByteSize(ParameterDescriptor(
                                          *FindParameter(program(), name))));
  parameter_gradients_[name].push_back(buffer);
  return buffer;
}

bool NetworkBuilder::HasGradient(const std::string& value) const {
  return gradients_.contains(value) || parts_.contains(value);
}

NetworkTensor NetworkBuilder::GradientOf(const std::string& value) {
  const std::vector<BufferId> addends = OwnGradients(value);
  if (addends.size() == 1) return gradients_[value][0];
  NetworkTensor sum = LikeOwn(value);
  sum.buffer = AddBuffer(sum.blocks.bytes());
  AddSums(sum.buffer, addends, sum.blocks, this);
  gradients_[value] = {sum};
  return sum;
}

std::pair<BufferId, BufferId> NetworkBuilder::GradientPairOf(
    const std::string& value) {
  const std::vector<BufferId> addends = OwnGradients(value);
  if (addends.size() == 2) return {addends[0], addends[1]};
  return {GradientOf(value).buffer, kNoBuffer};
}

void NetworkBuilder::SeedGradient(const std::string& output,
                                  BufferId gradient) {
  NetworkTensor tensor = LikeOwn(output);
  const TensorDescriptor descriptor = {.dims = tensor.dims};
  if (!LiesAlike(descriptor, tensor)) {
    tensor.buffer = AddBuffer(tensor.blocks.bytes());
    AddImport(gradient, descriptor, tensor, this);
    gradient = tensor.buffer;
  }
  tensor.buffer = gradient;
  gradients_[output].push_back(tensor);
}

void NetworkBuilder::BeginBackward() {
  const auto bytes_of = [&](const std::string& name) {
    return *ByteSize(TensorDescriptor{.dims = shapes().dims.at(name)});
  };
  if (everything_) {
    for (const std::string& name : program().outputs) {
      SeedGradient(name, AddBuffer(bytes_of(name)));
    }
    return;
  }
  if (part_ == ProgramPart::kTrain) {
    AddGradient(program().outputs[0], AddNumber("loss", 1, this), Form::kRows);
    return;
  }
  const auto& names = operation_.request().output_gradients;
  for (size_t i = 0; i < names.size(); ++i) {
    SeedGradient(names[i],
                 AddBuffer({bytes_of(names[i]), Area::kOperand, 1 + i}));
  }
}

void NetworkBuilder::EndBackward() {
  for (const auto& [name, result] : results_.input_gradients) {
    if (HasGradient(name)) {
      AddExport(GradientOf(name), result, this);
    } else {
      AddZeros("gradient sum", result, this);
    }
  }
  for (const auto& [name, result] : results_.parameter_gradients) {
    const std::vector<BufferId>& addends = parameter_gradients_[name];
    if (addends.empty()) {
      AddZeros("gradient sum", result, this);
    } else if (addends[0] != result) {
      const int64_t count = buffers()[result].bytes / int64_t{sizeof(float)};
      AddSums(result, addends, {1, count, 1, count, DataType::kF32}, this);
    }
  }
}

}  // namespace convgrad::onednn
