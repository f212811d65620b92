#include "backends/onednn/networks/steps/elements/network_repeated.h"

#include <string>

#include "backends/core/program/operators/products.h"
#include "backends/kernels/copies/reorder.h"
#include "backends/kernels/operators/pointwise.h"
#include "backends/kernels/tokens/broadcast_sums.h"
#include "backends/onednn/execution/onednn_library_step.h"

namespace convgrad::onednn {
namespace {

class Repeated final : public NetworkGroup {
 public:
  explicit Repeated(const ProgramStep& step)
      : step_(step), is_product_(step.op == Operator::kMul) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    y_ = builder->AddValue(step_.result);
    a_ = builder->Value(step_.operands[0], y_.form).buffer;
    const NetworkTensor b = builder->Value(step_.operands[1], Form::kRows);
    rows_ = builder->Like(step_.result, Form::kRows);
    rows_.buffer = builder->schedule().AddBuffer(rows_.blocks.bytes());
    PhysicalLayout layout;
    const Dims strides = BroadcastStrides(b.dims, y_.dims);
    for (size_t i = 0; i < strides.size(); ++i) {
      layout.axes.push_back({.extent = y_.dims[i], .stride = strides[i]});
    }
    const DataType dtype = builder->dtype();
    AddReorder(Reorder::Make(layout, dtype, PhysicalLayoutOf(rows_), dtype),
               b.buffer, rows_.buffer, &builder->schedule());
    b_ = InForm(rows_, y_.form, builder->options().block, &builder->schedule())
             .buffer;
    AddElements(is_product_, a_, b_, y_.buffer, builder);
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    NetworkTensor db = y_;
    db.buffer = builder->GradientOf(step_.result);
    if (db.buffer == kNoBuffer) return absl::OkStatus();
    if (is_product_) {
      const BufferId dy = db.buffer;
      AddElements(true, dy, b_,
                  builder->NewGradient(step_.operands[0], y_.form), builder);
      db.buffer = builder->schedule().AddBuffer(db.blocks.bytes());
      AddElements(true, dy, a_, db.buffer, builder);
    } else {
      builder->AddGradient(step_.operands[0], db.buffer, y_.form);
    }
    const std::string& b = step_.operands[1];
    AddSums(
        InForm(db, Form::kRows, builder->options().block, &builder->schedule()),
        builder->Like(b, Form::kRows).dims,
        builder->NewGradient(b, Form::kRows), builder);
    return absl::OkStatus();
  }

 private:
  void AddElements(bool is_product, BufferId a, BufferId b, BufferId y,
                   NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = is_product_ ? "mul" : "add",
         .reads = {a, b},
         .writes = {y},
         .function = [=, blocks = y_.blocks](const RunContext& context) {
           const Operands tensors = {context.At(a), context.At(b),
                                     context.At(y)};
           const auto run = [&](int64_t count, auto part) {
             context.ForParts(count, part);
           };
           if (is_product) {
             Multiply(blocks, tensors, run);
           } else {
             Add(blocks, {}, tensors, run);
           }
         }});
  }

  void AddSums(const NetworkTensor& from, const Dims& dims, BufferId to,
               NetworkBuilder* builder) const {
    builder->schedule().Add({.kind = is_product_ ? "mul" : "add",
                             .reads = {from.buffer},
                             .writes = {to},
                             .function = [=](const RunContext& context) {
                               SumBroadcast(from.dims, context.At(from.buffer),
                                            dims, context.At(to),
                                            from.blocks.dtype,
                                            [&](int64_t count, auto part) {
                                              context.ForParts(count, part);
                                            });
                             }});
  }

  const ProgramStep& step_;
  const bool is_product_;
  NetworkTensor y_, rows_;
  BufferId a_ = kNoBuffer, b_ = kNoBuffer;
};

}  // namespace

std::unique_ptr<NetworkGroup> MakeRepeated(const ProgramStep& step) {
  return std::make_unique<Repeated>(step);
}

}  // namespace convgrad::onednn
