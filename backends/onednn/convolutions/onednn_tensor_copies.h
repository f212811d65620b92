// `TensorCopies` appends the copies between the caller's tensors and the
// layouts that passes require. It makes each copy once, even if several passes
// read it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backends/onednn/convolutions/onednn_lowered_tensor.h"

namespace convgrad::onednn {

// Appends to one schedule, which must outlive it. Owned by one thread. Throws
// dnnl::error if the library can't make a copy.
class TensorCopies {
 public:
  explicit TensorCopies(Schedule* schedule) : schedule_(*schedule) {}

  // Returns the location of a tensor in the layout `wanted`; reorders the
  // tensor if necessary.
  Location Read(const LoweredTensor& tensor, const dnnl::memory::desc& wanted);

  // Returns the location where the primitive must write a result in the layout
  // `wanted`. Sets `*finish` to a function that appends the steps that copy the
  // result to the tensor; they write zeros for elements that the pass omits.
  Location Write(const LoweredTensor& tensor, const dnnl::memory::desc& wanted,
                 std::function<void()>* finish);

  // Returns `tensor` in a row-major layout and any dtype, at the lowest cost.
  Tensor RowMajor(const Tensor& tensor);

 private:
  struct Copy {
    Location source;
    LibraryTensor made;
  };

  // Returns `tensor` in the form that the library reads if it computes in
  // `dtype`.
  Tensor Plain(const Tensor& tensor, DataType dtype);
  Location ReadWeight(const LoweredTensor& tensor,
                      const dnnl::memory::desc& wanted);
  void AddRead(const LoweredTensor& tensor, const Elements& to);
  void AddWrite(Elements from, const LoweredTensor& tensor);

  Schedule& schedule_;
  std::vector<Copy> copies_;
  std::vector<std::pair<Location, Tensor>> plains_;  // by source
};

}  // namespace convgrad::onednn
