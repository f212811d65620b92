#include "backends/cuda/cuda_graph.h"

#include <dlfcn.h>

#include <functional>
#include <map>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "backends/core/status.h"
#include "backends/cuda/cuda_forbidden_engines.h"
#include "backends/cuda/cuda_graph_nodes.h"
#include "backends/cuda/cuda_guard.h"
#include "cudnn_frontend.h"

// cudnn-frontend's shim calls every function of cuDNN through this handle.
namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;
}  // namespace cudnn_frontend

namespace convgrad::cuda {
namespace {

namespace fe = cudnn_frontend;

constexpr char kLibrary[] = "libcudnn.so.9";

absl::Status LoadCudnn() {
  static void* const kHandle = dlopen(kLibrary, RTLD_NOW);
  fe::cudnn_dlhandle = kHandle;
  if (kHandle != nullptr) return absl::OkStatus();
  return MakeError(absl::StatusCode::kFailedPrecondition,
                   {Reason::kBackendUnavailable, "backend cuda",
                    absl::StrCat("no ", kLibrary), "cuDNN 9"});
}

absl::Status StatusOf(fe::error_t error, absl::StatusCode code,
                      absl::string_view what) {
  if (error.is_good()) return absl::OkStatus();
  return Failure(code, what, error.get_message());
}

// PyTorch's Conv_v8.cpp filters similarly. We filter more, because the contract
// allows only products and f32 sums, and requires deterministic bits.
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

  // Null if the device is only described.
  cudnnHandle_t handle = nullptr;
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
  // `properties` is for a device that is only described; null: the current
  // device.
  explicit Impl(std::shared_ptr<const fe::DeviceProperties> properties) {
    if (properties) graph.set_device_properties(std::move(properties));
  }

  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
  std::string engine;

  static absl::Status Step(const fe::error_t& error, absl::string_view what) {
    return StatusOf(error, absl::StatusCode::kUnimplemented, what);
  }

  // Makes cuDNN list the allowed engines.
  absl::Status List(const GraphSpec& spec, cudnnHandle_t handle) {
    graph.set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT);
    AddPass(spec, &graph);
    RETURN_IF_ERROR(Step(graph.validate(), "validation"));
    RETURN_IF_ERROR(Step(graph.build_operation_graph(handle), "graph"));
    RETURN_IF_ERROR(Step(graph.create_execution_plans(
                             {fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}),
                         "heuristics"));
    graph.deselect_numeric_notes(ForbiddenNotes(spec.operands));
    if (!spec.allows_forbidden) graph.deselect_engines(ForbiddenEngines(spec));
    graph.deselect_workspace_greater_than(spec.max_workspace_bytes);
    return absl::OkStatus();
  }

  // Calls `visit` with the index and name of each listed engine until `visit`
  // returns true. Returns whether it did.
  bool Find(const std::function<bool(int64_t, const std::string&)>& visit) {
    std::string name;
    for (int64_t i = 0; graph.get_plan_name_at_index(i, name).is_good(); ++i) {
      if (visit(i, name)) return true;
    }
    return false;
  }

  absl::Status Build(const GraphSpec& spec, cudnnHandle_t handle) {
    RETURN_IF_ERROR(List(spec, handle));
    const bool is_built = !spec.engine.empty() &&
                          Find([&](int64_t index, const std::string& name) {
                            return name == spec.engine &&
                                   graph.build_plan_at_index(index).is_good();
                          });
    if (!is_built) RETURN_IF_ERROR(Step(graph.build_plans(), "plans"));
    RETURN_IF_ERROR(Step(graph.get_workspace_size(workspace_bytes), "size"));
    return Step(graph.get_plan_name(engine), "name");
  }
};

ConvGraph::ConvGraph(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ConvGraph::~ConvGraph() = default;

absl::StatusOr<std::unique_ptr<ConvGraph>> ConvGraph::Make(
    const GraphSpec& spec, const GraphTarget& target) {
  auto impl = std::make_unique<Impl>(target.impl_->properties);
  RETURN_IF_ERROR(Guard(
      "planning", [&] { return impl->Build(spec, target.impl_->handle); }));
  return std::unique_ptr<ConvGraph>(new ConvGraph(std::move(impl)));
}

absl::StatusOr<std::vector<std::string>> ConvGraph::ListEngines(
    const GraphSpec& spec, const GraphTarget& target,
    const EngineCounts& most) {
  Impl impl(target.impl_->properties);
  std::vector<std::string> engines;
  std::map<std::string, int> listed;  // by number
  RETURN_IF_ERROR(Guard("planning", [&] {
    RETURN_IF_ERROR(impl.List(spec, target.impl_->handle));
    impl.Find([&](int64_t index, const std::string& name) {
      int& of_number = listed[name.substr(0, name.find('_'))];
      if (of_number < most.of_one_number &&
          impl.graph.build_plan_at_index(index).is_good()) {
        engines.push_back(name);
        ++of_number;
      }
      return static_cast<int>(engines.size()) == most.all;
    });
    return absl::OkStatus();
  }));
  return engines;
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
