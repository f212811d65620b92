#include <algorithm>
#include <cmath>

#include "proto/tensor_digest.h"
#include "tests/end_to_end/sessions/session_driver.h"

namespace convgrad {
namespace {

// With operands of at most 1000, a result of 6 products is below 2^23, and the
// sum of it and a number below 2^23 is exact in f32.
constexpr float kLargestOperand = 1000;
constexpr float kLargestSum = 1 << 22;

float Largest(const ModelTensor& tensor) {
  float largest = 0;
  for (float value : tensor.values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

TensorDescriptor DescriptorOf(const ModelTensor& tensor) {
  TensorDescriptor descriptor;
  const bool is_weight = tensor.dims == ModelDims("w");
  descriptor.layout = tensor.channels_last
                          ? (is_weight ? Layout::kOXI : Layout::kNXC)
                          : (is_weight ? Layout::kOIX : Layout::kNCX);
  descriptor.dims.assign(tensor.dims.begin(), tensor.dims.end());
  return descriptor;
}

v1::Tensor MessageOf(const ModelTensor& tensor) {
  v1::Tensor message;
  message.set_dtype(v1::DATA_TYPE_F32);
  message.set_layout(tensor.layout());
  for (int64_t extent : tensor.dims) message.add_dims(extent);
  return message;
}

}  // namespace

ModelTensor RandomChanges::RandomTensor(const std::string& name) {
  ModelTensor tensor;
  tensor.dims = ModelDims(name);
  tensor.channels_last = Chance(40);
  const int64_t size = tensor.dims[0] * tensor.dims[1] * tensor.dims[2];
  for (int64_t i = 0; i < size; ++i) {
    tensor.values.push_back(static_cast<float>(Below(9) - 4));
  }
  tensor.values[0] = static_cast<float>(10 + mark_);
  return tensor;
}

v1::PutTensorsRequest RandomChanges::Put(const ModelTensors& tensors) {
  v1::PutTensorsRequest request;
  std::vector<std::string> digests;
  for (const auto& [name, tensor] : tensors) {
    if (!tensor.digest.empty()) digests.push_back(tensor.digest);
  }
  for (const char kind : {'x', 'w', 'g'}) {
    if (kind != 'x' && Chance(50)) continue;
    v1::NamedPut* put = request.add_tensors();
    put->set_name(Name(kind));
    ModelTensor tensor = RandomTensor(put->name());
    // Chooses bytes that the session already keeps.
    const auto twin = tensors.find(Name(kind));
    const bool is_twin = twin != tensors.end() && Chance(20);
    if (is_twin) tensor = twin->second;
    const std::string bytes = tensor.Bytes(tensor.channels_last);
    if (!digests.empty() && Chance(25)) {
      put->set_digest(digests[Below(static_cast<int>(digests.size()))]);
      continue;
    }
    if (Chance(1)) {
      put->set_digest(std::string(32, '?'));
      continue;
    }
    if (is_twin || Chance(50)) {
      put->set_digest(DigestOf(DescriptorOf(tensor), bytes));
    }
    *put->mutable_tensor() = MessageOf(tensor);
    put->mutable_tensor()->mutable_inline_()->set_payload_index(
        request.payloads_size());
    request.add_payloads(bytes);
  }
  // One tensor is too short, after others that aren't.
  if (request.payloads_size() > 0 && Chance(4)) {
    request.mutable_payloads(request.payloads_size() - 1)->pop_back();
  }
  return request;
}

v1::DropTensorsRequest RandomChanges::Drop(const ModelTensors& tensors) {
  v1::DropTensorsRequest request;
  request.set_all(Chance(15));
  for (const auto& [name, tensor] : tensors) {
    if (Chance(20)) request.add_names(name);
  }
  if (Chance(10)) request.add_names("x9");
  return request;
}

template <typename Request>
void RandomChanges::AddOperand(const ModelTensors& tensors, char kind,
                               v1::Tensor* operand, Request* request) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    const bool fits = tensor.dims == ModelDims(std::string(1, kind));
    if (fits && Largest(tensor) <= kLargestOperand) names.push_back(name);
  }
  if (Chance(2)) {
    // The tensor doesn't exist or has another shape.
    operand->mutable_kept()->set_tensor_id(Chance(50) ? "x9" : Name('w'));
    const auto found = tensors.find(operand->kept().tensor_id());
    if (found == tensors.end() || Largest(found->second) <= kLargestOperand) {
      return;
    }
  }
  if (!names.empty() && Chance(80)) {
    operand->mutable_kept()->set_tensor_id(
        names[Below(static_cast<int>(names.size()))]);
    return;
  }
  const ModelTensor tensor = RandomTensor(std::string(1, kind));
  *operand = MessageOf(tensor);
  operand->mutable_inline_()->set_payload_index(request->payloads_size());
  request->add_payloads(tensor.Bytes(tensor.channels_last));
}

void RandomChanges::AddResult(const ModelTensors& tensors, v1::Result which,
                              char kind, v1::ConvOperation* operation) {
  v1::ResultRequest* result = operation->add_results();
  result->set_which(which);
  ModelTensor wanted;
  wanted.dims = ModelDims(std::string(1, kind));
  wanted.channels_last = Chance(40);
  result->set_layout(wanted.layout());
  if (Chance(20)) return;
  // The name rarely has another shape.
  const std::string name = Name(Chance(2) ? 'w' : kind);
  result->mutable_kept()->set_tensor_id(name);
  const auto old = tensors.find(name);
  const bool fits = old == tensors.end() || Largest(old->second) <= kLargestSum;
  if (!fits || Chance(30)) return;
  result->set_store(v1::ResultRequest::STORE_ADD);
  if (old == tensors.end() || Chance(3)) return;
  if (Chance(50)) {
    result->clear_layout();
  } else {
    result->set_layout(old->second.layout());
  }
}

ChangeRequest RandomChanges::Next(const ModelTensors& tensors) {
  const int kind = Below(100);
  if (kind < 35) return Put(tensors);
  if (kind < 42) return Drop(tensors);
  if (kind < 68) {
    v1::ConvForwardRequest request;
    v1::ConvOperation* operation = request.mutable_operation();
    *operation->mutable_problem() = ModelProblem();
    v1::Operands* operands = operation->mutable_operands();
    AddOperand(tensors, 'x', operands->mutable_input(), &request);
    AddOperand(tensors, 'w', operands->mutable_weight(), &request);
    AddResult(tensors, v1::RESULT_OUTPUT, 'g', operation);
    return request;
  }
  v1::ConvBackwardRequest request;
  v1::ConvOperation* operation = request.mutable_operation();
  *operation->mutable_problem() = ModelProblem();
  v1::Operands* operands = operation->mutable_operands();
  AddOperand(tensors, 'x', operands->mutable_input(), &request);
  AddOperand(tensors, 'w', operands->mutable_weight(), &request);
  AddOperand(tensors, 'g', operands->mutable_grad_output(), &request);
  AddResult(tensors, v1::RESULT_GRAD_INPUT, 'x', operation);
  if (Chance(70)) AddResult(tensors, v1::RESULT_GRAD_WEIGHT, 'w', operation);
  return request;
}

}  // namespace convgrad
