#include "tests/bench/direct_onednn.h"

#include <random>
#include <string>
#include <unordered_map>

#include "absl/time/clock.h"
#include "oneapi/dnnl/dnnl.hpp"

// libgomp's. NOLINTNEXTLINE(readability-identifier-naming)
extern "C" void omp_set_num_threads(int threads);

namespace convgrad::bench {
namespace {

using dnnl::memory;

using Arguments = std::unordered_map<int, memory>;

const dnnl::engine& Engine() {
  static const auto* const kEngine =
      new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *kEngine;
}

// f16 is compared with f32, because this library has no f16.
memory::data_type TypeOf(DataType dtype) {
  return dtype == DataType::kBF16 ? memory::data_type::bf16
                                  : memory::data_type::f32;
}

// Returns the layout of the caller's tensor. Weights have their groups as an
// axis of their own, and output channels first, as the library requires.
memory::desc UserDesc(const TensorDescriptor& tensor,
                      const ConvProblem& problem) {
  const Dims s = Strides(tensor);
  memory::dims dims(tensor.dims.begin(), tensor.dims.end());
  memory::dims strides(s.begin(), s.end());
  if (IsWeightLayout(tensor.layout)) {
    const int64_t groups = problem.groups;
    dims[0] /= groups;
    const int64_t group_stride = strides[0] * dims[0];
    if (problem.transposed) {
      std::swap(dims[0], dims[1]);
      std::swap(strides[0], strides[1]);
    }
    if (groups > 1) {
      strides.insert(strides.begin(), group_stride);
      dims.insert(dims.begin(), groups);
    }
  }
  return {dims, TypeOf(tensor.dtype), strides};
}

memory::desc WantedDesc(const memory::desc& user, DirectFormat format) {
  using Tag = memory::format_tag;
  const auto rank = user.get_dims().size();
  Tag tag = Tag::any;
  if (format == DirectFormat::kNXC) {
    tag = rank == 3 ? Tag::nwc : rank == 4 ? Tag::nhwc : Tag::ndhwc;
  } else if (format == DirectFormat::kNCX) {
    tag = rank == 3 ? Tag::ncw : rank == 4 ? Tag::nchw : Tag::ncdhw;
  }
  return {user.get_dims(), user.get_data_type(), tag};
}

memory::desc AnyDesc(const memory::desc& user) {
  return {user.get_dims(), user.get_data_type(), memory::format_tag::any};
}

memory Filled(const memory::desc& desc) {
  memory result(desc, Engine());
  std::mt19937 random(1);
  std::uniform_int_distribution<int> distribution(-3, 3);
  const auto bytes = desc.get_size();
  if (desc.get_data_type() == memory::data_type::f32) {
    auto* values = static_cast<float*>(result.get_data_handle());
    for (size_t i = 0; i < bytes / 4; ++i) {
      values[i] = static_cast<float>(distribution(random));
    }
  } else {
    auto* values = static_cast<uint16_t*>(result.get_data_handle());
    for (size_t i = 0; i < bytes / 2; ++i) {
      values[i] = static_cast<uint16_t>(0x3f80 + 8 * distribution(random));
    }
  }
  return result;
}

struct Step {
  bool is_compute;
  dnnl::primitive primitive;
  Arguments arguments;
};

class Steps final : public DirectOnednn {
 public:
  explicit Steps(int threads) : threads_(threads), stream_(Engine()) {}

  Times Run() override {
    omp_set_num_threads(threads_);
    Times times;
    absl::Time before = absl::Now();
    for (const Step& step : steps_) {
      step.primitive.execute(stream_, step.arguments);
      const absl::Time after = absl::Now();
      (step.is_compute ? times.compute : times.reorder) += after - before;
      before = after;
    }
    stream_.wait();
    return times;
  }

  // Returns `user` in the layout `wanted`. A copy is made once and serves all
  // primitives.
  memory Read(const memory& user, const memory::desc& wanted) {
    if (user.get_desc() == wanted) return user;
    for (const auto& [source, copy] : copies_) {
      if (source.get_data_handle() == user.get_data_handle() &&
          copy.get_desc() == wanted) {
        return copy;
      }
    }
    memory copy(wanted, Engine());
    AddReorder(user, copy);
    copies_.emplace_back(user, copy);
    return copy;
  }

  void AddReorder(const memory& from, const memory& to) {
    steps_.push_back({false,
                      dnnl::reorder(from, to),
                      {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}});
  }

  // Appends a primitive that reads `sources` and writes `result`, which are
  // tensors of the user.
  template <typename PrimitiveDesc>
  void AddPass(const PrimitiveDesc& desc,
               const std::vector<std::pair<int, memory>>& sources,
               int result_arg, const memory& result,
               std::optional<std::pair<int, memory>> bias) {
    Arguments arguments;
    for (const auto& [arg, user] : sources) {
      arguments.emplace(
          arg, Read(user, desc.query_md(dnnl::query::exec_arg_md, arg)));
    }
    const auto wanted = desc.query_md(dnnl::query::exec_arg_md, result_arg);
    const bool in_place = wanted == result.get_desc();
    const memory written = in_place ? result : memory(wanted, Engine());
    arguments.emplace(result_arg, written);
    if (bias) arguments.insert(*bias);
    arguments.emplace(DNNL_ARG_SCRATCHPAD,
                      memory(desc.scratchpad_desc(), Engine()));
    steps_.push_back({true, dnnl::primitive(desc), arguments});
    if (!in_place) AddReorder(written, result);
  }

 private:
  int threads_;
  dnnl::stream stream_;
  std::vector<Step> steps_;
  std::vector<std::pair<memory, memory>> copies_;
};

struct Window {
  memory::dims strides, dilates, begin, end;
};

Window WindowOf(const ConvProblem& problem) {
  Window w;
  for (const SpatialAxis& axis : problem.axes) {
    w.strides.push_back(axis.stride);
    w.dilates.push_back(axis.dilation - 1);
    w.begin.push_back(axis.pad_begin);
    w.end.push_back(axis.pad_end);
  }
  return w;
}

dnnl::primitive_attr UserScratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

constexpr auto kTraining = dnnl::prop_kind::forward_training;

struct Convolution {
  static constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  using Fwd = dnnl::convolution_forward::primitive_desc;
  using BwdData = dnnl::convolution_backward_data::primitive_desc;
  using BwdWeight = dnnl::convolution_backward_weights::primitive_desc;
};

struct Deconvolution {
  static constexpr auto kDirect = dnnl::algorithm::deconvolution_direct;
  using Fwd = dnnl::deconvolution_forward::primitive_desc;
  using BwdData = dnnl::deconvolution_backward_data::primitive_desc;
  using BwdWeight = dnnl::deconvolution_backward_weights::primitive_desc;
};

// Returns whether the primitive is the library's reference implementation,
// which takes hundreds of times longer than any other format.
template <typename PrimitiveDesc>
bool IsImplementation(const PrimitiveDesc& desc) {
  return desc &&
         std::string(desc.impl_info_str()).find("ref") == std::string::npos;
}

template <typename Library>
bool AddBackward(const ConvOperation& op, DirectFormat format, Steps* steps) {
  constexpr auto kDirect = Library::kDirect;
  const Window w = WindowOf(op.problem);
  const DataType dtype = op.dtype();
  const auto user = [&](Dims dims, DataType type, Layout layout) {
    return UserDesc({type, layout, std::move(dims)}, op.problem);
  };
  const Layout activations = op.operand(Operand::kGradOutput)->layout;
  const auto x = user(InputDims(op.problem), dtype, activations);
  const auto wei = user(WeightDims(op.problem), dtype, Layout::kOIX);
  const auto y = user(OutputDims(op.problem), dtype, activations);
  const typename Library::Fwd hint(Engine(), kTraining, kDirect,
                                   WantedDesc(x, format), AnyDesc(wei),
                                   WantedDesc(y, format), w.strides, w.dilates,
                                   w.begin, w.end, UserScratchpad(), true);
  if (!hint) return false;
  const memory grad_output = Filled(y);
  if (const auto* request = op.result(Result::kGradInput)) {
    const auto dx = UserDesc(request->descriptor, op.problem);
    const typename Library::BwdData desc(
        Engine(), kDirect, WantedDesc(dx, format), AnyDesc(wei),
        WantedDesc(y, format), w.strides, w.dilates, w.begin, w.end, hint,
        UserScratchpad(), true);
    if (!IsImplementation(desc)) return false;
    steps->AddPass(
        desc,
        {{DNNL_ARG_WEIGHTS, Filled(wei)}, {DNNL_ARG_DIFF_DST, grad_output}},
        DNNL_ARG_DIFF_SRC, memory(dx, Engine()), std::nullopt);
  }
  const auto* request = op.result(Result::kGradWeight);
  if (request == nullptr) return true;
  const auto dw = UserDesc(request->descriptor, op.problem);
  const auto* bias = op.result(Result::kGradBias);
  const memory::desc db({op.problem.out_channels}, memory::data_type::f32,
                        memory::format_tag::a);
  const auto data = WantedDesc(x, format), out = WantedDesc(y, format);
  using BwdWeight = typename Library::BwdWeight;
  const BwdWeight desc =
      bias != nullptr
          ? BwdWeight(Engine(), kDirect, data, AnyDesc(dw), db, out, w.strides,
                      w.dilates, w.begin, w.end, hint, UserScratchpad(), true)
          : BwdWeight(Engine(), kDirect, data, AnyDesc(dw), out, w.strides,
                      w.dilates, w.begin, w.end, hint, UserScratchpad(), true);
  if (!IsImplementation(desc)) return false;
  std::optional<std::pair<int, memory>> bias_argument;
  if (bias != nullptr)
    bias_argument.emplace(DNNL_ARG_DIFF_BIAS, memory(db, Engine()));
  steps->AddPass(desc,
                 {{DNNL_ARG_SRC, Filled(x)}, {DNNL_ARG_DIFF_DST, grad_output}},
                 DNNL_ARG_DIFF_WEIGHTS, memory(dw, Engine()), bias_argument);
  return true;
}

template <typename Library>
bool AddForward(const ConvOperation& op, DirectFormat format, Steps* steps) {
  const Window w = WindowOf(op.problem);
  const auto x = UserDesc(*op.operand(Operand::kInput), op.problem);
  const auto wei = UserDesc(*op.operand(Operand::kWeight), op.problem);
  const auto y = UserDesc(op.results[0].descriptor, op.problem);
  const typename Library::Fwd desc(Engine(), kTraining, Library::kDirect,
                                   WantedDesc(x, format), AnyDesc(wei),
                                   WantedDesc(y, format), w.strides, w.dilates,
                                   w.begin, w.end, UserScratchpad(), true);
  if (!IsImplementation(desc)) return false;
  steps->AddPass(desc,
                 {{DNNL_ARG_SRC, Filled(x)}, {DNNL_ARG_WEIGHTS, Filled(wei)}},
                 DNNL_ARG_DST, memory(y, Engine()), std::nullopt);
  return true;
}

template <typename Library>
bool AddPasses(const ConvOperation& op, DirectFormat format, Steps* steps) {
  return op.direction == Direction::kForward
             ? AddForward<Library>(op, format, steps)
             : AddBackward<Library>(op, format, steps);
}

}  // namespace

std::unique_ptr<DirectOnednn> DirectOnednn::Make(const ConvOperation& operation,
                                                 DirectFormat format,
                                                 int threads) {
  omp_set_num_threads(threads);
  auto steps = std::make_unique<Steps>(threads);
  try {
    const bool made =
        operation.problem.transposed
            ? AddPasses<Deconvolution>(operation, format, steps.get())
            : AddPasses<Convolution>(operation, format, steps.get());
    if (!made) return nullptr;
  } catch (const dnnl::error&) {
    return nullptr;
  }
  return steps;
}

}  // namespace convgrad::bench
