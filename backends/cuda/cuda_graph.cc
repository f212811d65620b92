#include "backends/cuda/cuda_graph.h"

#include <dlfcn.h>

#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_graph_shapes.h"
#include "cudnn_frontend.h"

// The shim calls every function of cuDNN through this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace convgrad::cuda {
namespace {

namespace fe = cudnn_frontend;
using TensorHandle = std::shared_ptr<fe::graph::Tensor_attributes>;

constexpr char kLibrary[] = "libcudnn.so.9";

absl::Status LoadCudnn() {
  static void* const handle = dlopen(kLibrary, RTLD_NOW);
  fe::cudnn_dlhandle = handle;
  if (handle != nullptr) return absl::OkStatus();
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kBackendUnavailable, "backend cuda",
                    absl::StrCat("no ", kLibrary), "cuDNN 9"});
}

absl::Status Failure(absl::StatusCode code, absl::string_view what,
                     absl::string_view message) {
  const Reason reason = code == absl::StatusCode::kUnimplemented
                            ? Reason::kUnsupported
                            : Reason::kInternal;
  return MakeError(code, {reason, absl::StrCat("cuDNN ", what),
                          std::string(message), "success"});
}

absl::Status StatusOf(fe::error_t error, absl::StatusCode code,
                      absl::string_view what) {
  if (error.is_good()) return absl::OkStatus();
  return Failure(code, what, error.get_message());
}

// Calls `function`, which returns a Status and in which the shim may throw.
template <typename Function>
absl::Status Guard(absl::string_view what, Function&& function) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::exception& error) {
    return Failure(absl::StatusCode::kInternal, what, error.what());
  }
}

fe::DataType_t TypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kBF16:
      return fe::DataType_t::BFLOAT16;
    case DataType::kF16:
      return fe::DataType_t::HALF;
    case DataType::kF32:
      break;
  }
  return fe::DataType_t::FLOAT;
}

enum Uid : int64_t { kData = 1, kWeight, kOut, kBias };

fe::graph::Tensor_attributes Describe(Uid uid, const GraphTensor& shape,
                                      DataType dtype) {
  fe::graph::Tensor_attributes tensor;
  tensor.set_uid(uid).set_dim(shape.dims).set_stride(shape.strides);
  tensor.set_data_type(TypeOf(dtype));
  return tensor;
}

// The three tensors of a convolution.
class Shapes {
 public:
  explicit Shapes(const GraphSpec& spec) : spec_(spec) {}

  fe::graph::Tensor_attributes Data(DataType dtype) const {
    return Describe(kData, Of(Role::kData), dtype);
  }
  fe::graph::Tensor_attributes Weight(DataType dtype) const {
    return Describe(kWeight, Of(Role::kWeight), dtype);
  }
  fe::graph::Tensor_attributes Out(DataType dtype) const {
    return Describe(kOut, Of(Role::kOut), dtype);
  }

 private:
  GraphTensor Of(Role role) const {
    return GraphTensorOf(DimsFor(spec_.problem, role), spec_.format);
  }

  const GraphSpec& spec_;
};

template <typename Attributes>
Attributes ConvAttributes(const ConvProblem& problem) {
  Attributes attributes;
  attributes.set_pre_padding(AxisValues(problem, &SpatialAxis::pad_begin))
      .set_post_padding(AxisValues(problem, &SpatialAxis::pad_end))
      .set_stride(AxisValues(problem, &SpatialAxis::stride))
      .set_dilation(AxisValues(problem, &SpatialAxis::dilation));
  return attributes;
}

void SetResult(const TensorHandle& tensor,
               const fe::graph::Tensor_attributes& shape) {
  tensor->set_output(true)
      .set_uid(shape.get_uid())
      .set_dim(shape.get_dim())
      .set_stride(shape.get_stride())
      .set_data_type(shape.get_data_type());
}

TensorHandle AddForward(const GraphSpec& spec, fe::graph::Graph* graph) {
  const Shapes shapes(spec);
  TensorHandle sum = graph->conv_fprop(
      graph->tensor(shapes.Data(spec.operands)),
      graph->tensor(shapes.Weight(spec.operands)),
      ConvAttributes<fe::graph::Conv_fprop_attributes>(spec.problem));
  if (!spec.bias) return sum;
  const fe::graph::Tensor_attributes out = shapes.Out(spec.result);
  sum->set_dim(out.get_dim()).set_stride(out.get_stride());
  const GraphTensor bias =
      GraphTensorOf(PerChannelDims(spec.problem), spec.format);
  return graph->pointwise(
      sum, graph->tensor(Describe(kBias, bias, DataType::kF32)),
      fe::graph::Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
}

void AddPass(const GraphSpec& spec, fe::graph::Graph* graph) {
  const Shapes shapes(spec);
  switch (spec.pass) {
    case Pass::kForward:
      return SetResult(AddForward(spec, graph), shapes.Out(spec.result));
    case Pass::kBackwardData:
      return SetResult(
          graph->conv_dgrad(
              graph->tensor(shapes.Out(spec.operands)),
              graph->tensor(shapes.Weight(spec.operands)),
              ConvAttributes<fe::graph::Conv_dgrad_attributes>(spec.problem)),
          shapes.Data(spec.result));
    case Pass::kBackwardWeight:
      return SetResult(
          graph->conv_wgrad(
              graph->tensor(shapes.Out(spec.operands)),
              graph->tensor(shapes.Data(spec.operands)),
              ConvAttributes<fe::graph::Conv_wgrad_attributes>(spec.problem)),
          shapes.Weight(spec.result));
  }
}

// As PyTorch's Conv_v8.cpp filters, and further: the contract allows products
// and f32 sums only, and the same bits every time.
std::vector<fe::NumericalNote_t> ForbiddenNotes(DataType operands) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes = {Note::NONDETERMINISTIC,
                             Note::REDUCED_PRECISION_REDUCTION,
                             Note::DOWN_CONVERT_INPUTS,
                             Note::FFT,
                             Note::WINOGRAD,
                             Note::WINOGRAD_TILE_4x4,
                             Note::WINOGRAD_TILE_6x6,
                             Note::WINOGRAD_TILE_13x13};
  if (operands == DataType::kF32) notes.push_back(Note::TENSOR_CORE);  // TF32
  return notes;
}

}  // namespace

struct GraphTarget::Impl {
  Impl() = default;
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (handle != nullptr) fe::detail::destroy_handle(handle);
  }

  cudnnHandle_t handle = nullptr;  // null where only described
  std::shared_ptr<const fe::DeviceProperties> properties;
};

GraphTarget::GraphTarget(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GraphTarget::GraphTarget(GraphTarget&&) noexcept = default;
GraphTarget& GraphTarget::operator=(GraphTarget&&) noexcept = default;
GraphTarget::~GraphTarget() = default;

absl::StatusOr<GraphTarget> GraphTarget::OfCurrentDevice() {
  RETURN_IF_ERROR(LoadCudnn());
  auto impl = std::make_unique<Impl>();
  const cudnnStatus_t status = fe::detail::create_handle(&impl->handle);
  if (status != CUDNN_STATUS_SUCCESS) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition,
        {Reason::kBackendUnavailable, "backend cuda",
         absl::StrCat("cuDNN: ", fe::detail::get_error_string(status)),
         "a device that cuDNN 9 can use"});
  }
  return GraphTarget(std::move(impl));
}

absl::StatusOr<GraphTarget> GraphTarget::OfDescription(
    absl::string_view description) {
  RETURN_IF_ERROR(LoadCudnn());
  auto properties = std::make_shared<fe::DeviceProperties>();
  RETURN_IF_ERROR(Guard("device description", [&] {
    return StatusOf(properties->deserialize(std::vector<uint8_t>(
                        description.begin(), description.end())),
                    absl::StatusCode::kInvalidArgument, "device description");
  }));
  auto impl = std::make_unique<Impl>();
  impl->properties = std::move(properties);
  return GraphTarget(std::move(impl));
}

std::string GraphTarget::version() const {
  const auto version = static_cast<int64_t>(fe::detail::get_backend_version());
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".",
                      version % 100);
}

struct ConvGraph::Impl {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
  std::string engine;

  absl::Status Build(const GraphSpec& spec, cudnnHandle_t handle) {
    const auto step = [](const fe::error_t& error, absl::string_view what) {
      return StatusOf(error, absl::StatusCode::kUnimplemented, what);
    };
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    AddPass(spec, &graph);
    RETURN_IF_ERROR(step(graph.validate(), "validation"));
    RETURN_IF_ERROR(step(graph.build_operation_graph(handle), "graph"));
    RETURN_IF_ERROR(step(graph.create_execution_plans(
                             {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}),
                         "heuristics"));
    graph.deselect_numeric_notes(ForbiddenNotes(spec.operands));
    graph.deselect_workspace_greater_than(spec.max_workspace_bytes);
    RETURN_IF_ERROR(step(graph.build_plans(), "plans"));
    RETURN_IF_ERROR(step(graph.get_workspace_size(workspace_bytes), "size"));
    return step(graph.get_plan_name(engine), "name");
  }
};

ConvGraph::ConvGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvGraph::~ConvGraph() = default;

absl::StatusOr<std::unique_ptr<ConvGraph>> ConvGraph::Make(
    const GraphSpec& spec, const GraphTarget& target) {
  auto impl = std::make_unique<Impl>();
  if (target.impl_->properties != nullptr) {
    impl->graph.set_device_properties(target.impl_->properties);
  }
  RETURN_IF_ERROR(Guard(
      "planning", [&] { return impl->Build(spec, target.impl_->handle); }));
  return std::unique_ptr<ConvGraph>(new ConvGraph(std::move(impl)));
}

int64_t ConvGraph::workspace_bytes() const { return impl_->workspace_bytes; }
const std::string& ConvGraph::engine() const { return impl_->engine; }

absl::Status ConvGraph::Run(const GraphTarget& target, CUstream_st* stream,
                            const GraphBuffers& buffers) const {
  std::unordered_map<int64_t, void*> pack = {
      {kData, buffers.data}, {kWeight, buffers.weight}, {kOut, buffers.out}};
  if (buffers.bias != nullptr) pack[kBias] = buffers.bias;
  return Guard("execution", [&]() -> absl::Status {
    const cudnnHandle_t handle = target.impl_->handle;
    const cudnnStatus_t status = fe::detail::set_stream(handle, stream);
    if (status != CUDNN_STATUS_SUCCESS) {
      return Failure(absl::StatusCode::kInternal, "stream",
                     fe::detail::get_error_string(status));
    }
    return StatusOf(impl_->graph.execute(handle, pack, buffers.workspace),
                    absl::StatusCode::kInternal, "execution");
  });
}

}  // namespace convgrad::cuda
