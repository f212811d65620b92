// The copies between the caller's tensors and the layouts that passes want,
// each made once, however many passes read it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "backends/onednn/convolutions/onednn_lowered_tensor.h"

namespace convgrad::onednn {

// Appends to one program, which must outlive it. Owned by one thread. Where the
// library makes a copy, what it throws is thrown.
class TensorCopies {
 public:
  explicit TensorCopies(Program* program) : program_(*program) {}

  // Returns where a tensor lies in the layout `wanted`, reordering it if it
  // must.
  Location Read(const LoweredTensor& tensor, const dnnl::memory::desc& wanted);

  // Returns where the primitive shall write a result in the layout `wanted`,
  // and in `finish` what appends the steps that bring it to the tensor
  // afterwards, zeros where the pass leaves elements out.
  Location Write(const LoweredTensor& tensor, const dnnl::memory::desc& wanted,
                 std::function<void()>* finish);

  // Returns `tensor` in a row-major layout and any dtype, at the least cost.
  Tensor RowMajor(const Tensor& tensor);

 private:
  struct Copy {
    Location source;
    LibraryTensor made;
  };

  // Returns `tensor` as the library reads it where it computes in `dtype`.
  Tensor Plain(const Tensor& tensor, DataType dtype);
  Location ReadWeight(const LoweredTensor& tensor,
                      const dnnl::memory::desc& wanted);
  // Returns a place for a copy of all of a tensor; of an operand, callers may
  // have made it.
  Location AllocateCopy(const Tensor& tensor, const PhysicalLayout& layout,
                        DataType dtype, int64_t bytes);
  void AddRead(const LoweredTensor& tensor, const Elements& to);
  void AddWrite(Elements from, const LoweredTensor& tensor);

  Program& program_;
  std::vector<Copy> copies_;
  std::vector<std::pair<Location, Tensor>> plains_;  // by what they are of
};

}  // namespace convgrad::onednn
