// `NetworkBuilder` is the schedule to which the groups of a network add their
// steps. It knows the program's values, parameters and gradients by name.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_gradient_sums.h"
#include "backends/onednn/networks/schedule/network_layouts.h"
#include "backends/onednn/networks/schedule/network_results.h"
#include "backends/onednn/networks/schedule/network_row_views.h"

namespace convgrad::onednn {

struct NetworkOptions {
  int threads = 1;
  // Channels per block of activations: 8, 16 or kChannelsLast.
  int64_t block = 16;
  // If true, bf16 convolutions use the CPU's bf16 instructions wherever the
  // library is correct; otherwise they are computed in f32.
  bool native_bf16 = false;
  // Maximum number of multiply-adds of one quantum, unless a single step has
  // more. The default is 200 ms of a nominal machine
  // (Backend::nominal_macs_per_second).
  double macs_per_quantum = 0.2 * 25e9 * threads;
};

// Owned by one thread. Names are those of the program.
class NetworkBuilder : public Schedule {
 public:
  // With `everything`, all results that a backward can return count as wanted,
  // not only those that the request names. This determines the contents of a
  // tape. New steps follow the steps that `schedule` has.
  NetworkBuilder(const ProgramOperation& operation,
                 const NetworkOptions& options, bool everything,
                 Schedule schedule = {});

  const ProgramOperation& operation() const { return operation_; }
  const ProgramShapes& shapes() const { return operation_.shapes(); }
  const NetworkOptions& options() const { return options_; }
  // Moves the schedule out.
  Schedule TakeSchedule() { return std::move(*this); }
  // Returns whether a backward follows, in this schedule or by a tape.
  bool has_backward() const { return part_ != ProgramPart::kForward; }

  // Begin the forward or backward of the group that writes `result`. The
  // group's activations have this dtype: kF32 or the compute dtype.
  void BeginForwardOf(const std::string& result, DataType dtype);
  void BeginBackwardOf(const std::string& result);
  // Returns the dtype of all values and gradients that the current group gets
  // or makes, but scalars, which are f32.
  DataType dtype() const { return dtype_; }
  // Returns the dtype in which a group wrote the value; the compute dtype for
  // an input.
  DataType DtypeOf(const std::string& value) const;

  // Returns an existing activation in `form`. Appends the conversion if the
  // activation has another form or dtype; an input is converted to the plan's
  // layout once.
  NetworkTensor Value(const std::string& name, Form form = Form::kImage);
  // Appends a copy of the value in another layout. Reads an input as the caller
  // has it, unless another step needs it in the plan's layout as well.
  void CopyValue(const std::string& name, const PhysicalLayout& layout,
                 DataType dtype, BufferId to);
  // Adds the result of a step, with new memory or in `buffer`.
  NetworkTensor AddValue(const std::string& name);
  NetworkTensor AddValue(const std::string& name, BufferId buffer);
  // Returns where the elements of the value are, in the dtype of the group,
  // without a copy of them.
  RowsView ViewOf(const std::string& name);
  // Records that `name`, which a step writes to rows, has the elements `place`
  // of the value `operand`, and returns where these already are.
  RowsView AddView(const std::string& name, const std::string& operand,
                   const StepView& place);
  // Returns a tensor like the value `name`, without memory, in the value's
  // original form or in `form`.
  NetworkTensor Like(const std::string& name) const;
  NetworkTensor Like(const std::string& name, Form form) const;

  // Return the descriptor of the caller's input, null if `name` isn't an input;
  // and the input's bytes, which the backward can read as well.
  const TensorDescriptor* InputDescriptor(const std::string& name) const;
  BufferId InputBuffer(const std::string& name);

  // Returns the parameter's bytes, f32 and row-major; kNoBuffer for "". If an
  // earlier step has updated a statistic, returns the new value. Converts a
  // value that is used as a weight.
  BufferId Parameter(const std::string& name);
  // Returns the seed and the count of runs, I64 [2]. Requires: a forward of a
  // program that has randomness.
  BufferId Randomness();
  // Records that a fused step may be wrong (see network_guard.h). The plan then
  // repeats the run without fusion if a fetched value or a new statistic isn't
  // finite, or if one of the conditions, I32, isn't 0.
  void SetMayRepeat() { may_repeat_ = true; }
  bool may_repeat() const { return may_repeat_; }
  void RepeatIf(BufferId condition) { repeats_if_.push_back(condition); }
  const std::vector<BufferId>& repeats_if() const { return repeats_if_; }
  // Records the result of a convolution that Winograd's algorithm computes.
  void MarkFast(const std::string& result) { fast_.insert(result); }
  const std::set<std::string>& fast() const { return fast_; }
  // The results of RangeOf for each value (network_ranges.h).
  std::map<std::string, BufferId>& ranges() { return ranges_; }
  // Returns the destinations of the fetched values, f32 and row-major.
  const std::vector<BufferId>& fetched() const { return results_.fetched; }

  // Returns whether the run writes a new value of the parameter.
  bool IsUpdated(const std::string& parameter) const {
    return results_.statistics.contains(parameter);
  }
  // Returns the destination of the statistic's new value.
  BufferId NewStatistic(const std::string& name);

  // Return the destination of a gradient: of a value, in `form`; or of a
  // parameter, in f32 and row-major, of which the step must write all elements.
  // All gradients of one value are added up. Requires for a parameter: not "".
  NetworkTensor NewGradient(const std::string& value, Form form = Form::kImage);
  BufferId NewParameterGradient(const std::string& name);
  // Adds a written buffer to the value's gradients. No step writes it again.
  void AddGradient(const std::string& value, BufferId buffer,
                   Form form = Form::kImage);
  // Adds the gradient of a part of the value's rows, which is written.
  void AddPartOfGradient(const std::string& value, PartGradient part);
  // Returns whether a step has added a gradient of the value.
  bool HasGradient(const std::string& value) const;
  // Returns the value's complete gradient, in the value's form and the dtype of
  // the group that wrote it. Requires: all steps that use the value have added
  // their gradients, at least one.
  NetworkTensor GradientOf(const std::string& value);
  // Does the same, but may leave the last addition to the caller: the gradient
  // is the sum of both buffers, unless the second one is kNoBuffer.
  std::pair<BufferId, BufferId> GradientPairOf(const std::string& value);

  // Append the steps that convert between the groups' tensors and the caller's.
  void FetchValues();
  void BeginBackward();
  void EndBackward();

  // Returns, for each buffer, whether the caller wants it.
  std::vector<bool> Wanted() const;
  // Returns, for each buffer, whether it is a parameter that has the same value
  // in the backward. Statistics that the run updates don't.
  std::vector<bool> LastingParameters() const;

 private:
  const Program& program() const { return operation_.program(); }
  size_t FirstParameterOperand() const;
  // Returns the number of inputs if `name` isn't an input.
  size_t InputIndex(const std::string& name) const;
  NetworkTensor OwnValue(const std::string& name);
  // Returns the caller's bytes, even if a backward gets a kept copy of them.
  BufferId CallersBytes(const std::string& name);
  // Returns the value in `form` and `dtype`; appends each conversion once.
  NetworkTensor ConvertedValue(const std::string& name, Form form,
                               DataType dtype);
  // Returns a tensor like the value `name`, in its own form and dtype.
  NetworkTensor LikeOwn(const std::string& name) const;
  // Returns the value's gradients, each in the value's form and dtype.
  std::vector<BufferId> OwnGradients(const std::string& value);
  void SeedGradient(const std::string& output, BufferId gradient);

  const ProgramOperation& operation_;
  const NetworkOptions options_;
  const ProgramPart part_;
  const bool everything_;
  // The form of each value.
  const std::map<std::string, Form> forms_;
  // The dtype of each group's result.
  std::map<std::string, DataType> dtypes_;
  DataType dtype_;
  // Values in the form that their steps made.
  std::map<std::string, NetworkTensor> values_;
  std::map<std::tuple<std::string, Form, DataType>, NetworkTensor> converted_;
  std::map<std::string, RowsView> views_;
  std::map<std::string, BufferId> inputs_;
  std::map<std::string, BufferId> parameters_;
  std::map<std::string, std::vector<NetworkTensor>> gradients_;
  std::map<std::string, std::vector<PartGradient>> parts_;
  std::map<std::string, std::vector<BufferId>> parameter_gradients_;
  // Number of steps that use each parameter.
  std::map<std::string, int> uses_;
  std::map<std::string, BufferId> ranges_;
  bool may_repeat_ = false;
  std::vector<BufferId> repeats_if_;
  std::set<std::string> fast_;
  NetworkResults results_;
};

}  // namespace convgrad::onednn
