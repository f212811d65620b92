// A convolution by the library's primitives: forward, backward-data and
// backward-weight, each in the network's layout where the library has a good
// way, else in the layout that it asks for, with reorders around it.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "backends/core/lowering.h"
#include "backends/onednn/networks/network_groups.h"
#include "backends/onednn/onednn_candidates.h"
#include "backends/onednn/onednn_types.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// The library's descriptors of an ordinary convolution's tensors.
struct ConvDescs {
  memory::desc data, weight, out, bias;
};

struct ConvWindow {
  memory::dims strides, dilates, pad_begin, pad_end;
};

ConvWindow WindowOf(const ConvProblem& problem) {
  ConvWindow window;
  for (const SpatialAxis& axis : problem.axes) {
    window.strides.push_back(axis.stride);
    window.dilates.push_back(axis.dilation - 1);  // 0 is dense there
    window.pad_begin.push_back(axis.pad_begin);
    window.pad_end.push_back(axis.pad_end);
  }
  return window;
}

using ForwardDesc = dnnl::convolution_forward::primitive_desc;

ForwardDesc MakeForwardDesc(const ConvWindow& w, const ConvDescs& descs,
                            dnnl::prop_kind kind) {
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto attributes = StrictAttributes();
  if (descs.bias) {
    return {CpuEngine(), kind,       algorithm, descs.data, descs.weight,
            descs.bias,  descs.out,  w.strides, w.dilates,  w.pad_begin,
            w.pad_end,   attributes, true};
  }
  return {CpuEngine(),  kind,      algorithm,  descs.data,
          descs.weight, descs.out, w.strides,  w.dilates,
          w.pad_begin,  w.pad_end, attributes, true};
}

dnnl::primitive_desc_base MakePassDesc(Pass pass, const ConvProblem& problem,
                                       ConvDescs descs) {
  const ConvWindow w = WindowOf(problem);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const auto attributes = StrictAttributes();
  if (pass == Pass::kForward) {
    return MakeForwardDesc(w, descs, dnnl::prop_kind::forward_training);
  }
  ConvDescs without_bias = descs;
  without_bias.bias = {};
  const ForwardDesc hint =
      MakeForwardDesc(w, without_bias, dnnl::prop_kind::forward_training);
  if (!hint) return {};
  if (pass == Pass::kBackwardData) {
    return dnnl::convolution_backward_data::primitive_desc(
        CpuEngine(), algorithm, descs.data, descs.weight, descs.out, w.strides,
        w.dilates, w.pad_begin, w.pad_end, hint, attributes, true);
  }
  if (descs.bias) {
    return dnnl::convolution_backward_weights::primitive_desc(
        CpuEngine(), algorithm, descs.data, descs.weight, descs.bias, descs.out,
        w.strides, w.dilates, w.pad_begin, w.pad_end, hint, attributes, true);
  }
  return dnnl::convolution_backward_weights::primitive_desc(
      CpuEngine(), algorithm, descs.data, descs.weight, descs.out, w.strides,
      w.dilates, w.pad_begin, w.pad_end, hint, attributes, true);
}

// A tensor of the library's: where it is, and how it lies there.
struct LibraryTensor {
  BufferId buffer = kNoBuffer;
  memory::desc desc;
};

memory::desc WithAnyLayout(const memory::desc& desc) {
  return {desc.get_dims(), desc.get_data_type(), memory::format_tag::any};
}

class Convolution final : public NetworkGroup {
 public:
  explicit Convolution(const ProgramStep& step)
      : step_(step), x_(step.operands[0]), weight_(step.operands[1]) {
    if (step.operands.size() > 2) bias_ = step.operands[2];
  }

  absl::Status Forward(NetworkBuilder* builder) override {
    problem_ = ProblemOf(step_, builder->shapes());
    data_ = DataOf(builder);
    weight_desc_ = PlainWeightDesc();
    LibraryTensor out = OutOf(builder);
    out.buffer = builder->AddValue(step_.result).buffer;
    ASSIGN_OR_RETURN(const dnnl::primitive_desc_base pass,
                     ChoosePass(Pass::kForward, data_.desc, out.desc));
    AddPass({pass, Pass::kForward, "conv forward"},
            {data_,
             {builder->Parameter(weight_), weight_desc_},
             out,
             builder->Parameter(bias_)},
            builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    LibraryTensor gradient = OutOf(builder);
    gradient.buffer = builder->GradientOf(step_.result);
    if (gradient.buffer == kNoBuffer) return absl::OkStatus();
    RETURN_IF_ERROR(AddWeightGradient(gradient, builder));
    return AddInputGradient(gradient, builder);
  }

 private:
  struct PassToAdd {
    const dnnl::primitive_desc_base& primitive_desc;
    Pass pass;
    absl::string_view kind;
  };
  struct PassTensors {
    LibraryTensor data, weight, out;
    BufferId bias;
  };

  // The input: where it is the caller's f32 with too few channels for blocks,
  // as it lies there.
  LibraryTensor DataOf(NetworkBuilder* builder) const {
    constexpr int64_t kFewChannels = 4;
    const TensorDescriptor* input = builder->InputDescriptor(x_);
    const DataType dtype = builder->operation().request().compute_dtype;
    if (input != nullptr && input->dtype == dtype &&
        problem_.in_channels <= kFewChannels) {
      return {builder->InputBuffer(x_),
              FormatDesc(
                  {input->dims.begin(), input->dims.end()}, dtype,
                  input->layout == Layout::kNXC ? Format::kNXC : Format::kNCX)};
    }
    const NetworkTensor value = builder->Value(x_);
    return {value.buffer, DescOf(value)};
  }

  LibraryTensor OutOf(NetworkBuilder* builder) const {
    return {kNoBuffer, DescOf(builder->Like(step_.result))};
  }

  // As the caller has it: f32, row-major.
  memory::desc PlainWeightDesc() const {
    const memory::dims dims = WeightDimsOf(problem_);
    memory::dims strides(dims.size(), 1);
    for (size_t i = dims.size() - 1; i > 0; --i) {
      strides[i - 1] = strides[i] * dims[i];
    }
    return {dims, memory::data_type::f32, strides};
  }

  // Returns how the library computes a pass on activations that lie like these,
  // or, if it has nothing good for them, as it asks for.
  // Errors: kUnimplemented if it has no way.
  absl::StatusOr<dnnl::primitive_desc_base> ChoosePass(
      Pass pass, const memory::desc& data, const memory::desc& out) const {
    ConvDescs descs = {data, WithAnyLayout(weight_desc_), out, {}};
    const bool has_bias = !bias_.empty() && pass != Pass::kBackwardData;
    if (has_bias) {
      descs.bias = {{problem_.out_channels},
                    memory::data_type::f32,
                    memory::format_tag::a};
    }
    const dnnl::primitive_desc_base as_they_lie =
        MakePassDesc(pass, problem_, descs);
    if (as_they_lie && !IsPlainLoop(as_they_lie)) return as_they_lie;
    descs.data = WithAnyLayout(data);
    descs.out = WithAnyLayout(out);
    dnnl::primitive_desc_base any = MakePassDesc(pass, problem_, descs);
    if (any) return any;
    return MakeError(absl::StatusCode::kUnimplemented,
                     {Reason::kUnsupported, step_.result, ToString(problem_),
                      "a convolution that oneDNN has"});
  }

  static bool IsPlainLoop(const dnnl::primitive_desc_base& pass) {
    return absl::StartsWith(pass.impl_info_str(), "ref");
  }

  static memory::desc DescOfArgument(const dnnl::primitive_desc_base& pass,
                                     int arg) {
    return pass.query_md(dnnl::query::exec_arg_md, arg);
  }

  // Appends the pass, with what brings its operands to the primitive's layouts
  // and its result back.
  void AddPass(const PassToAdd& pass, const PassTensors& tensors,
               NetworkBuilder* builder) const {
    Schedule& schedule = builder->schedule();
    const PassArguments args = ArgumentsOf(pass.pass);
    NetworkStep step = {.kind = pass.kind,
                        .macs = static_cast<double>(MultiplyAdds(problem_)),
                        .primitive_desc = pass.primitive_desc};
    std::optional<std::pair<LibraryTensor, LibraryTensor>> finish;
    const auto add = [&](Role role, const LibraryTensor& tensor, int arg) {
      const memory::desc wanted = DescOfArgument(pass.primitive_desc, arg);
      BufferId buffer = tensor.buffer;
      if (role != ResultOf(pass.pass)) {
        buffer = Reordered(buffer, tensor.desc, wanted, &schedule);
        step.reads.push_back(buffer);
      } else {
        if (wanted != tensor.desc) {
          buffer = schedule.AddBuffer(static_cast<int64_t>(wanted.get_size()));
          finish = {{buffer, wanted}, tensor};
        }
        step.writes.push_back(buffer);
      }
      step.arguments.push_back({arg, wanted, buffer});
    };
    add(Role::kData, tensors.data, args.data);
    add(Role::kWeight, tensors.weight, args.weight);
    add(Role::kOut, tensors.out, args.out);
    if (tensors.bias != kNoBuffer) {
      auto& used = pass.pass == Pass::kForward ? step.reads : step.writes;
      used.push_back(tensors.bias);
      step.arguments.push_back({args.bias,
                                DescOfArgument(pass.primitive_desc, args.bias),
                                tensors.bias});
    }
    AddScratchpad(&step, &schedule);
    schedule.Add(std::move(step));
    if (finish) {
      AddLibraryReorder(finish->first.buffer, finish->first.desc,
                        finish->second.buffer, finish->second.desc, &schedule);
    }
  }

  static void AddScratchpad(NetworkStep* step, Schedule* schedule) {
    const memory::desc scratchpad =
        DescOfArgument(step->primitive_desc, DNNL_ARG_SCRATCHPAD);
    if (scratchpad.get_size() == 0) return;
    const BufferId buffer =
        schedule->AddBuffer(static_cast<int64_t>(scratchpad.get_size()));
    step->writes.push_back(buffer);
    step->arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad, buffer});
  }

  absl::Status AddWeightGradient(const LibraryTensor& gradient,
                                 NetworkBuilder* builder) const {
    ASSIGN_OR_RETURN(
        const dnnl::primitive_desc_base pass,
        ChoosePass(Pass::kBackwardWeight, data_.desc, gradient.desc));
    const BufferId bias =
        bias_.empty() ? kNoBuffer : builder->NewParameterGradient(bias_);
    AddPass({pass, Pass::kBackwardWeight, "conv backward weight"},
            {data_,
             {builder->NewParameterGradient(weight_), weight_desc_},
             gradient,
             bias},
            builder);
    return absl::OkStatus();
  }

  absl::Status AddInputGradient(const LibraryTensor& gradient,
                                NetworkBuilder* builder) const {
    LibraryTensor data = {kNoBuffer, DescOf(builder->Like(x_))};
    ASSIGN_OR_RETURN(const dnnl::primitive_desc_base pass,
                     ChoosePass(Pass::kBackwardData, data.desc, gradient.desc));
    data.buffer = builder->NewGradient(x_);
    AddPass({pass, Pass::kBackwardData, "conv backward data"},
            {data,
             {builder->Parameter(weight_), weight_desc_},
             gradient,
             kNoBuffer},
            builder);
    return absl::OkStatus();
  }

  const ProgramStep& step_;
  const std::string x_, weight_;
  std::string bias_;
  ConvProblem problem_;
  LibraryTensor data_;
  memory::desc weight_desc_;
};

}  // namespace

std::unique_ptr<NetworkGroup> MakeConvolution(const ProgramStep& step) {
  return std::make_unique<Convolution>(step);
}

}  // namespace convgrad::onednn
