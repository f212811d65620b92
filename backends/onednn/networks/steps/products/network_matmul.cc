// Implements matmul by the library, in f32 whatever the activations' dtype.
#include <string>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/library/onednn_types.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

using dnnl::memory;

// A stack of row-major f32 matrices.
struct Matrices {
  Dims dims;
  BufferId buffer = kNoBuffer;
  bool is_transposed = false;

  memory::desc desc() const {
    const Dims row_major = RowMajorStrides(dims);
    memory::dims extents(dims.begin(), dims.end());
    memory::dims strides(row_major.begin(), row_major.end());
    if (is_transposed) {
      std::swap(extents[dims.size() - 1], extents[dims.size() - 2]);
      std::swap(strides[dims.size() - 1], strides[dims.size() - 2]);
    }
    return {extents, memory::data_type::f32, strides};
  }
  Matrices Transposed() const { return {dims, buffer, true}; }
};

class Matmul final : public NetworkGroup {
 public:
  explicit Matmul(const ProgramStep& step) : step_(step) {}

  void Forward(NetworkBuilder* builder) override {
    a_ = Operand(0, builder);
    b_ = Operand(1, builder);
    const NetworkTensor y = builder->AddValue(step_.result);
    macs_ = static_cast<double>(y.blocks.size()) *
            static_cast<double>(a_.dims.back());
    const NetworkTensor computed = ComputedIn(DataType::kF32, y, builder);
    AddProduct("matmul forward", a_, b_, {y.dims, computed.buffer}, builder);
    AddConversion(computed, y, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const NetworkTensor gradient = builder->GradientOf(step_.result);
    const Matrices dy = {gradient.dims,
                         Converted(gradient, DataType::kF32, builder).buffer};
    AddGradient(0, dy, b_.Transposed(), builder);
    AddGradient(1, a_.Transposed(), dy, builder);
  }

 private:
  Matrices Operand(size_t position, NetworkBuilder* builder) const {
    const NetworkTensor value =
        builder->Value(step_.operands[position], Form::kRows);
    return {value.dims, Converted(value, DataType::kF32, builder).buffer};
  }

  void AddProduct(absl::string_view kind, const Matrices& a, const Matrices& b,
                  const Matrices& y, NetworkBuilder* builder) const {
    const dnnl::matmul::primitive_desc desc(CpuEngine(), a.desc(), b.desc(),
                                            y.desc(), StrictAttributes());
    LibraryStep step({.kind = kind, .macs = macs_, .primitive_desc = desc},
                     builder);
    step.Read(DNNL_ARG_SRC, {a.buffer, a.desc()});
    step.Read(DNNL_ARG_WEIGHTS, {b.buffer, b.desc()});
    step.Write(DNNL_ARG_DST, {y.buffer, y.desc()});
    step.Finish();
  }

  // Appends the product that computes the gradient of the operand at
  // `position`, summed over the axes along which the operand was repeated.
  void AddGradient(size_t position, const Matrices& a, const Matrices& b,
                   NetworkBuilder* builder) const {
    const std::string& name = step_.operands[position];
    const NetworkTensor result = builder->NewGradient(name, Form::kRows);
    const NetworkTensor narrow = ComputedIn(DataType::kF32, result, builder);
    const Dims& y = builder->shapes().dims.at(step_.result);
    Matrices product = {narrow.dims, narrow.buffer};
    for (size_t i = 0; i + 2 < y.size(); ++i) product.dims[i] = y[i];
    const bool is_repeated = product.dims != narrow.dims;
    if (is_repeated) {
      product.buffer = builder->AddArray<float>(*CheckedProduct(product.dims));
    }
    AddProduct("matmul backward", a, b, product, builder);
    if (is_repeated) {
      AddSumsOfRepeats("matmul backward", product.buffer, product.dims, narrow,
                       builder);
    }
    AddConversion(narrow, result, builder);
  }

  const ProgramStep& step_;
  Matrices a_, b_;
  double macs_ = 0;
};

}  // namespace

std::vector<NetworkOperator> NetworkMatmul() {
  return {{Operator::kMatmul, &MakeOfStep<Matmul>}};
}

}  // namespace convgrad::onednn
