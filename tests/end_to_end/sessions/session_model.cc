#include "tests/end_to_end/sessions/session_model.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace convgrad {
namespace {

using Payloads = google::protobuf::RepeatedPtrField<std::string>;

constexpr int64_t kWindow = 64;
constexpr int kChannels = 2;
constexpr int kKernel = 3;
constexpr int kInput = 6;
constexpr int kOutput = kInput - kKernel + 1;

float& At(std::vector<float>& values, int outer, int inner, int width) {
  return values[outer * width + inner];
}
float At(const std::vector<float>& values, int outer, int inner, int width) {
  return values[outer * width + inner];
}
int Tap(int out, int in, int k) { return (out * kChannels + in) * kKernel + k; }

// Calls `visit(out, in, position, k)` for each product of the convolution.
template <typename Visit>
void EachProduct(const Visit& visit) {
  for (int out = 0; out < kChannels; ++out) {
    for (int in = 0; in < kChannels; ++in) {
      for (int position = 0; position < kOutput; ++position) {
        for (int k = 0; k < kKernel; ++k) visit(out, in, position, k);
      }
    }
  }
}

ModelTensor Zeros(const std::string& kind) {
  ModelTensor tensor;
  tensor.dims = ModelDims(kind);
  int64_t size = 1;
  for (int64_t extent : tensor.dims) size *= extent;
  tensor.values.assign(size, 0);
  return tensor;
}

ModelTensor FromBytes(const std::vector<int64_t>& dims, bool channels_last,
                      const std::string& bytes) {
  ModelTensor tensor;
  tensor.dims = dims;
  tensor.channels_last = channels_last;
  tensor.values = FloatsOf(bytes);
  // Computes the inverse of the permutation between the layouts.
  ModelTensor indices = tensor;
  for (size_t i = 0; i < indices.values.size(); ++i) {
    indices.values[i] = static_cast<float>(i);
  }
  const std::vector<float> order = FloatsOf(indices.Bytes(channels_last));
  const std::vector<float> packed = tensor.values;
  for (size_t i = 0; i < order.size(); ++i) {
    tensor.values[static_cast<size_t>(order[i])] = packed[i];
  }
  return tensor;
}

bool IsChannelsLast(v1::Layout layout) {
  return layout == v1::LAYOUT_NXC || layout == v1::LAYOUT_OXI;
}

std::vector<int64_t> DimsOf(const v1::Tensor& tensor) {
  return {tensor.dims().begin(), tensor.dims().end()};
}

ModelReply Error(grpc::StatusCode code, std::string field) {
  return {code, std::move(field), {}};
}

bool IsShort(const v1::Tensor& tensor, const Payloads& payloads) {
  int64_t expected = sizeof(float);
  for (int64_t extent : tensor.dims()) expected *= extent;
  const std::string& bytes = payloads[tensor.inline_().payload_index()];
  return static_cast<int64_t>(bytes.size()) != expected;
}

ModelReply Make(const v1::PutTensorsRequest& request, int64_t number,
                ModelTensors* tensors) {
  const ModelTensors before = *tensors;
  for (const v1::NamedPut& put : request.tensors()) {
    if (put.has_tensor() && IsShort(put.tensor(), request.payloads())) {
      return Error(grpc::INVALID_ARGUMENT, "payloads[");
    }
  }
  for (int i = 0; i < request.tensors_size(); ++i) {
    const v1::NamedPut& put = request.tensors(i);
    ModelTensor tensor;
    if (put.has_tensor()) {
      const std::string& bytes =
          request.payloads(put.tensor().inline_().payload_index());
      tensor = FromBytes(DimsOf(put.tensor()),
                         IsChannelsLast(put.tensor().layout()), bytes);
      tensor.digest = put.digest();
    } else {
      const auto known = std::find_if(
          before.begin(), before.end(),
          [&](const auto& kept) { return kept.second.digest == put.digest(); });
      if (known == before.end()) {
        return Error(grpc::NOT_FOUND, absl::StrCat("tensors[", i, "].digest"));
      }
      tensor = known->second;
    }
    tensor.version = number;
    (*tensors)[put.name()] = std::move(tensor);
  }
  return {};
}

ModelReply Make(const v1::DropTensorsRequest& request, int64_t /*number*/,
                ModelTensors* tensors) {
  for (int i = 0; i < request.names_size(); ++i) {
    if (tensors->erase(request.names(i)) == 0) {
      return Error(grpc::NOT_FOUND, absl::StrCat("names[", i, "]"));
    }
  }
  if (request.all()) tensors->clear();
  return {};
}

// Reads an operand. Returns the code of its error; OK if it is valid.
grpc::StatusCode Read(const v1::Tensor& operand, const std::string& kind,
                      const Payloads& payloads, const ModelTensors& tensors,
                      ModelTensor* value) {
  if (!operand.has_kept()) {
    *value = FromBytes(ModelDims(kind), IsChannelsLast(operand.layout()),
                       payloads[operand.inline_().payload_index()]);
    return grpc::StatusCode::OK;
  }
  const auto found = tensors.find(operand.kept().tensor_id());
  if (found == tensors.end()) return grpc::StatusCode::NOT_FOUND;
  *value = found->second;
  return value->dims == ModelDims(kind) ? grpc::StatusCode::OK
                                        : grpc::StatusCode::INVALID_ARGUMENT;
}

// The tensors of one convolution.
struct Tensors {
  ModelTensor x = Zeros("x");
  ModelTensor w = Zeros("w");
  ModelTensor g = Zeros("g");
};

Tensors Convolve(const Tensors& in, bool forward) {
  Tensors out;
  EachProduct([&](int o, int c, int p, int k) {
    const float x = At(in.x.values, c, p + k, kInput);
    const float w = in.w.values[Tap(o, c, k)];
    const float g = At(in.g.values, o, p, kOutput);
    if (forward) {
      At(out.g.values, o, p, kOutput) += x * w;
    } else {
      At(out.x.values, c, p + k, kInput) += g * w;
      out.w.values[Tap(o, c, k)] += g * x;
    }
  });
  return out;
}

ModelReply Store(const v1::ResultRequest& request, ModelTensor result,
                 int64_t number, ModelTensors* tensors, ModelReply reply) {
  result.channels_last = IsChannelsLast(request.layout());
  if (!request.has_kept()) {
    reply.payloads.push_back(result.Bytes(result.channels_last));
    return reply;
  }
  const auto old = tensors->find(request.kept().tensor_id());
  if (request.store() == v1::ResultRequest::STORE_ADD &&
      old != tensors->end()) {
    if (request.layout() == v1::LAYOUT_UNSPECIFIED) {
      result.channels_last = old->second.channels_last;
    } else if (request.layout() != old->second.layout()) {
      return Error(grpc::INVALID_ARGUMENT, "operation.");
    }
    if (old->second.dims != result.dims) {
      return Error(grpc::INVALID_ARGUMENT, "operation.");
    }
    for (size_t i = 0; i < result.values.size(); ++i) {
      result.values[i] += old->second.values[i];
    }
  }
  result.version = number;
  (*tensors)[request.kept().tensor_id()] = std::move(result);
  return reply;
}

template <typename Request>
ModelReply Convolution(const Request& request, bool forward, int64_t number,
                       ModelTensors* tensors) {
  const v1::Operands& operands = request.operation().operands();
  Tensors in;
  const auto read = [&](const v1::Tensor& operand, const std::string& kind,
                        ModelTensor* value) {
    return Read(operand, kind, request.payloads(), *tensors, value);
  };
  std::vector<std::pair<std::string, grpc::StatusCode>> found = {
      {"input", read(operands.input(), "x", &in.x)},
      {"weight", read(operands.weight(), "w", &in.w)}};
  if (!forward) {
    found.emplace_back("grad_output", read(operands.grad_output(), "g", &in.g));
  }
  for (const grpc::StatusCode code :
       {grpc::StatusCode::NOT_FOUND, grpc::StatusCode::INVALID_ARGUMENT}) {
    for (const auto& [name, which] : found) {
      if (which == code) {
        return Error(code, code == grpc::StatusCode::NOT_FOUND
                               ? absl::StrCat("operation.operands.", name)
                               : "operation.");
      }
    }
  }
  const Tensors out = Convolve(in, forward);
  ModelReply reply;
  std::set<std::string> names;
  for (int i = 0; i < request.operation().results_size(); ++i) {
    const v1::ResultRequest& result = request.operation().results(i);
    const ModelTensor& value = result.which() == v1::RESULT_OUTPUT ? out.g
                               : result.which() == v1::RESULT_GRAD_INPUT
                                   ? out.x
                                   : out.w;
    if (result.has_kept() && !names.insert(result.kept().tensor_id()).second) {
      return Error(grpc::INVALID_ARGUMENT, "operation.");
    }
    reply = Store(result, value, number, tensors, std::move(reply));
    if (reply.code != grpc::StatusCode::OK) return reply;
  }
  return reply;
}

ModelReply Make(const v1::ConvForwardRequest& request, int64_t number,
                ModelTensors* tensors) {
  return Convolution(request, /*forward=*/true, number, tensors);
}
ModelReply Make(const v1::ConvBackwardRequest& request, int64_t number,
                ModelTensors* tensors) {
  return Convolution(request, /*forward=*/false, number, tensors);
}

}  // namespace

v1::ConvProblem ModelProblem() {
  v1::ConvProblem problem;
  for (int64_t extent : ModelDims("x")) problem.add_input_dims(extent);
  problem.set_out_channels(kChannels);
  problem.add_kernel(kKernel);
  return problem;
}

std::vector<int64_t> ModelDims(const std::string& name) {
  if (name[0] == 'w') return {kChannels, kChannels, kKernel};
  return {1, kChannels, name[0] == 'x' ? kInput : kOutput};
}

v1::Layout ModelTensor::layout() const {
  const bool is_weight = dims == ModelDims("w");
  if (channels_last) return is_weight ? v1::LAYOUT_OXI : v1::LAYOUT_NXC;
  return is_weight ? v1::LAYOUT_OIX : v1::LAYOUT_NCX;
}

std::string ModelTensor::Bytes(bool in_channels_last) const {
  if (!in_channels_last) return BytesOf(values);
  std::vector<float> packed;
  for (int64_t n = 0; n < dims[0]; ++n) {
    for (int64_t i = 0; i < dims[2]; ++i) {
      for (int64_t c = 0; c < dims[1]; ++c) {
        packed.push_back(values[(n * dims[1] + c) * dims[2] + i]);
      }
    }
  }
  return BytesOf(packed);
}

ModelReply MakeChange(const ChangeRequest& request, int64_t number,
                      ModelTensors* tensors) {
  ModelTensors after = *tensors;
  ModelReply reply = std::visit(
      [&](const auto& message) { return Make(message, number, &after); },
      request);
  if (reply.code == grpc::StatusCode::OK) *tensors = std::move(after);
  return reply;
}

ModelOrder::Judgement ModelOrder::Judge(const ChangeMetadata& change) const {
  const auto refused = [](grpc::StatusCode code, const std::string& reason) {
    return Judgement{Verdict::kRefused, code, reason, ""};
  };
  const auto known = replies_.find(change.sequence);
  if (known != replies_.end() && known->second.first == change.call_id) {
    return {Verdict::kReplays, grpc::StatusCode::OK, "", known->second.second};
  }
  if (change.epoch > epoch_ || change.epoch < 1) {
    return refused(grpc::FAILED_PRECONDITION, "OUT_OF_ORDER");
  }
  if (change.epoch < first_epoch_) {
    return refused(grpc::FAILED_PRECONDITION, "TAKEN_OVER");
  }
  if (change.epoch < epoch_) return refused(grpc::ABORTED, "EPOCH_ENDED");
  const bool is_open =
      change.acknowledged <= number_ && change.sequence > number_ &&
      change.sequence <= number_ + kWindow &&
      number_ - std::max(acknowledged_, change.acknowledged) <= kWindow;
  if (!is_open) return refused(grpc::FAILED_PRECONDITION, "OUT_OF_ORDER");
  const bool is_next = change.sequence == number_ + 1;
  return {is_next ? Verdict::kRuns : Verdict::kWaits, grpc::StatusCode::OK, "",
          ""};
}

void ModelOrder::Commit(const ChangeMetadata& change,
                        const std::string& reply) {
  Acknowledge(change.acknowledged);
  ++number_;
  replies_[number_] = {change.call_id, reply};
}

void ModelOrder::Acknowledge(int64_t number) {
  acknowledged_ = std::max(acknowledged_, number);
  replies_.erase(replies_.begin(), replies_.upper_bound(acknowledged_));
}

}  // namespace convgrad
