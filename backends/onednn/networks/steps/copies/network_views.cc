// Implements steps that copy elements of the operand in another order or
// number. They work on rows.
#include <string>
#include <vector>

#include "backends/core/program/operators/views.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

constexpr absl::string_view kKind = "view";

// Adds the step's result: a view of its operand, and a copy, which is dropped
// if nothing reads it.
void AddViewOf(const ProgramStep& step, const StepView& place,
               NetworkBuilder* builder) {
  const NetworkTensor y = builder->AddValue(step.result);
  AddCopyOf(builder->AddView(step.result, step.operands[0], place), y.buffer,
            RowMajorStrides(y.dims), kKind, builder);
}

// flatten and reshape: the same rows with other dims.
class Whole final : public NetworkGroup {
 public:
  explicit Whole(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const std::string& x = step_.operands[0];
    const NetworkTensor y =
        builder->AddValue(step_.result, builder->Value(x, Form::kRows).buffer);
    builder->AddView(step_.result, x, {0, RowMajorStrides(y.dims)});
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    builder->AddGradient(step_.operands[0], dy, Form::kRows);
  }

 private:
  const ProgramStep& step_;
};

// detach: the same value, whose gradient ends here.
class Detached final : public NetworkGroup {
 public:
  explicit Detached(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const Form form = builder->Like(step_.result).form;
    builder->AddValue(step_.result,
                      builder->Value(step_.operands[0], form).buffer);
  }

  void Backward(NetworkBuilder* /*builder*/) override {}

 private:
  const ProgramStep& step_;
};

// read: a parameter, in f32.
class Read final : public NetworkGroup {
 public:
  explicit Read(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    const std::string& name = step_.operands[0];
    const BufferId parameter = builder->Parameter(name);
    // A backward with a tape finds another value in an updated statistic.
    if (builder->IsUpdated(name)) {
      const NetworkTensor y = builder->AddValue(step_.result);
      AddCopy(parameter, y.buffer, y.blocks.bytes(), builder);
    } else {
      builder->AddValue(step_.result, parameter);
    }
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor dy = builder->GradientOf(step_.result);
    AddCopy(dy.buffer, builder->NewParameterGradient(step_.operands[0]),
            dy.blocks.bytes(), builder);
  }

 private:
  const ProgramStep& step_;
};

// permute: a turned image has the bytes of the image.
class Permute final : public NetworkGroup {
 public:
  Permute(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step),
        view_(SpecOf(step.op).view(StepDims(step, shapes))),
        order_(IntsAttribute(step, "dims", 1)) {}

  void Forward(NetworkBuilder* builder) override {
    const std::string& operand = step_.operands[0];
    const Form form = builder->Like(operand).form;
    if (IsTurn(*builder)) {
      builder->AddValue(step_.result, builder->Value(operand, form).buffer);
      return;
    }
    if (form == Form::kRows &&
        builder->Like(step_.result).form == Form::kRows) {
      AddViewOf(step_, view_, builder);
      return;
    }
    const NetworkTensor x = builder->Value(operand, form);
    const NetworkTensor y = builder->AddValue(step_.result);
    AddReorder(Permuted(x), ElementsOf(y), builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const std::string& operand = step_.operands[0];
    const NetworkTensor dy = builder->GradientOf(step_.result);
    const Form form = builder->Like(operand).form;
    if (IsTurn(*builder)) {
      builder->AddGradient(operand, dy.buffer, form);
      return;
    }
    const NetworkTensor dx = builder->NewGradient(operand, form);
    AddReorder(ElementsOf(dy), Permuted(dx), builder);
  }

 private:
  // Returns whether an image becomes a turned one, or the other way around.
  bool IsTurn(const NetworkBuilder& builder) const {
    const Form x = builder.Like(step_.operands[0]).form;
    const Form y = builder.Like(step_.result).form;
    return x != y && x != Form::kRows && y != Form::kRows;
  }

  // Returns the operand, or its gradient, axis by axis of the result.
  Elements Permuted(const NetworkTensor& x) const {
    const PhysicalLayout layout = PhysicalLayoutOf(x);
    Elements permuted = {{}, x.blocks.dtype, x.buffer};
    for (const int64_t axis : order_) {
      permuted.layout.axes.push_back(layout.axes[axis]);
    }
    return permuted;
  }

  const ProgramStep& step_;
  const StepView view_;
  const std::vector<int64_t> order_;
};

// slice, select and expand: copies.
class Moved final : public NetworkGroup {
 public:
  Moved(const ProgramStep& step, const ProgramShapes& shapes)
      : step_(step),
        view_(SpecOf(step.op).view(StepDims(step, shapes))),
        axis_(step.op == Operator::kExpand
                  ? 0
                  : *StepDims(step, shapes).Axis("axis")) {}

  void Forward(NetworkBuilder* builder) override {
    AddViewOf(step_, view_, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor dy = builder->GradientOf(step_.result);
    const std::string& x = step_.operands[0];
    if (step_.op == Operator::kExpand) {
      AddSumsOfRepeats(kKind, dy.buffer, dy.dims,
                       builder->NewGradient(x, Form::kRows), builder);
    } else {
      builder->AddPartOfGradient(x,
                                 {PartOf(dy), view_.offset, view_.strides, dy});
    }
  }

 private:
  // Returns the part of the operand that a slice or select reads.
  AxisPart PartOf(const NetworkTensor& y) const {
    AxisPart part = {.axis = axis_};
    if (step_.op == Operator::kSelect) {
      part.first = IntAttribute(step_, "index");
    } else {
      part.first = IntAttribute(step_, "start");
      part.count = y.dims[axis_];
      // A step beyond the axis might be as large as an int64.
      if (part.count > 1) part.step = IntAttribute(step_, "step");
    }
    return part;
  }

  const ProgramStep& step_;
  const StepView view_;
  const size_t axis_;  // of a slice or select
};

}  // namespace

std::vector<NetworkOperator> NetworkViews() {
  return {{Operator::kFlatten, &MakeOfStep<Whole>},
          {Operator::kReshape, &MakeOfStep<Whole>},
          {Operator::kRead, &MakeOfStep<Read>},
          {Operator::kDetach, &MakeOfStep<Detached>},
          {Operator::kPermute, &MakeOfStep<Permute>},
          {Operator::kSlice, &MakeOfStep<Moved>},
          {Operator::kSelect, &MakeOfStep<Moved>},
          {Operator::kExpand, &MakeOfStep<Moved>}};
}

}  // namespace convgrad::onednn
