#include "backends/onednn/networks/schedule/network_builder.h"

#include <algorithm>

#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {

NetworkBuilder::NetworkBuilder(const ProgramOperation& operation,
                               const NetworkOptions& options, bool everything,
                               Schedule schedule)
    : Schedule(std::move(schedule)),
      operation_(operation),
      options_(options),
      part_(operation.request().part),
      everything_(everything),
      forms_(FormsOf(operation.program(), operation.shapes())),
      dtype_(operation.request().compute_dtype) {
  size_t next = FirstParameterOperand();
  for (const ProgramParameter& parameter : program().parameters) {
    parameters_[parameter.name] = AddBuffer(
        {*ByteSize(ParameterDescriptor(parameter)), Area::kOperand, next++});
  }
  for (const ProgramStep& step : program().steps) {
    for (const std::string& operand : step.operands) ++uses_[operand];
  }
  results_ = PlaceResults(operation, everything, this);
}

size_t NetworkBuilder::FirstParameterOperand() const {
  return part_ == ProgramPart::kBackward
             ? 1 + operation_.request().output_gradients.size()
             : program().inputs.size();
}

void NetworkBuilder::BeginForwardOf(const std::string& result, DataType dtype) {
  dtype_ = dtypes_[result] = dtype;
}

void NetworkBuilder::BeginBackwardOf(const std::string& result) {
  dtype_ = dtypes_.at(result);
}

DataType NetworkBuilder::DtypeOf(const std::string& value) const {
  const auto found = dtypes_.find(value);
  return found != dtypes_.end() ? found->second
                                : operation_.request().compute_dtype;
}

NetworkTensor NetworkBuilder::Like(const std::string& name) const {
  const Dims& dims = shapes().dims.at(name);
  const DataType dtype = dims.empty() ? DataType::kF32 : this->dtype();
  return TensorLike(dims, dtype, forms_.at(name), options_.block);
}

NetworkTensor NetworkBuilder::LikeOwn(const std::string& name) const {
  NetworkTensor own = Like(name);
  if (!own.dims.empty()) own.blocks.dtype = DtypeOf(name);
  return own;
}

NetworkTensor NetworkBuilder::Like(const std::string& name, Form form) const {
  const NetworkTensor own = Like(name);
  return TensorLike(own.dims, own.blocks.dtype, form, options_.block);
}

NetworkTensor NetworkBuilder::AddValue(const std::string& name) {
  return AddValue(name, AddBuffer(LikeOwn(name).blocks.bytes()));
}

NetworkTensor NetworkBuilder::AddValue(const std::string& name,
                                       BufferId buffer) {
  NetworkTensor tensor = LikeOwn(name);
  tensor.buffer = buffer;
  return values_[name] = tensor;
}

NetworkTensor NetworkBuilder::Value(const std::string& name, Form form) {
  return ConvertedValue(name, form, Like(name).blocks.dtype);
}

NetworkTensor NetworkBuilder::ConvertedValue(const std::string& name, Form form,
                                             DataType dtype) {
  const NetworkTensor own = OwnValue(name);
  const auto [place, is_new] = converted_.try_emplace({name, form, dtype});
  if (is_new) {
    place->second =
        Converted(InForm(own, form, options_.block, this), dtype, this);
  }
  return place->second;
}

RowsView NetworkBuilder::ViewOf(const std::string& name) {
  const auto found = views_.find(name);
  if (found != views_.end() && found->second.rows.blocks.dtype == dtype_) {
    return found->second;
  }
  const NetworkTensor rows = Value(name, Form::kRows);
  return {rows, PlaceOf({0, RowMajorStrides(rows.dims)}, rows.dims)};
}

RowsView NetworkBuilder::AddView(const std::string& name,
                                 const std::string& operand,
                                 const StepView& place) {
  const Dims& dims = shapes().dims.at(name);
  RowsView view = ViewOf(operand);
  if (auto composed = Composed(view.place, place, dims)) {
    view.place = *std::move(composed);
  } else {
    view = {Value(operand, Form::kRows), PlaceOf(place, dims)};
  }
  return views_[name] = view;
}

NetworkTensor NetworkBuilder::OwnValue(const std::string& name) {
  if (values_.contains(name)) return values_.at(name);
  const TensorDescriptor& descriptor = *InputDescriptor(name);
  const NetworkTensor like = LikeOwn(name);
  if (LiesAlike(descriptor, like)) return AddValue(name, InputBuffer(name));
  NetworkTensor tensor = AddValue(name);
  AddImport(CallersBytes(name), descriptor, tensor, this);
  return tensor;
}

BufferId NetworkBuilder::CallersBytes(const std::string& name) {
  return AddBuffer(
      {*ByteSize(*InputDescriptor(name)), Area::kOperand, InputIndex(name)});
}

void NetworkBuilder::CopyValue(const std::string& name,
                               const PhysicalLayout& layout, DataType dtype,
                               BufferId to) {
  const TensorDescriptor* input = InputDescriptor(name);
  const bool reads_value = input == nullptr || values_.contains(name);
  const Elements from = reads_value
                            ? ElementsOf(Value(name))
                            : Elements{convgrad::PhysicalLayoutOf(*input),
                                       input->dtype, CallersBytes(name)};
  AddReorder(from, {layout, dtype, to}, this);
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
  BufferId buffer = AddBuffer({bytes, Area::kOperand, index});
  if (part_ == ProgramPart::kForwardTape || part_ == ProgramPart::kBackward) {
    const BufferId kept = AddBuffer(bytes);
    AddCopy(buffer, kept, bytes, this);
    buffer = kept;
  }
  return inputs_[name] = buffer;
}

BufferId NetworkBuilder::Parameter(const std::string& name) {
  if (name.empty()) return kNoBuffer;
  const auto found = parameters_.find(name);
  if (found != parameters_.end()) return found->second;
  return ConvertedValue(name, Form::kRows, DataType::kF32).buffer;
}

BufferId NetworkBuilder::Randomness() {
  const size_t index = program().inputs.size() + program().parameters.size();
  return AddBuffer({2 * sizeof(int64_t), Area::kOperand, index});
}

BufferId NetworkBuilder::NewStatistic(const std::string& name) {
  return parameters_[name] = results_.statistics.at(name);
}

void NetworkBuilder::FetchValues() {
  const std::vector<std::string>& names = operation_.request().fetched;
  for (size_t i = 0; i < results_.fetched.size(); ++i) {
    AddExport(OwnValue(names[i]), results_.fetched[i], this);
  }
}

std::vector<bool> NetworkBuilder::Wanted() const {
  std::vector<bool> wanted(buffers().size());
  for (const BufferId buffer : results_.wanted) wanted[buffer] = true;
  return wanted;
}

std::vector<bool> NetworkBuilder::LastingParameters() const {
  std::vector<bool> is_lasting(buffers().size());
  for (const auto& [name, buffer] : parameters_) {
    is_lasting[buffer] = !results_.statistics.contains(name);
  }
  return is_lasting;
}

}  // namespace convgrad::onednn
