// `NetworkBuilder` gives the groups of a network what they build a plan from:
// the schedule, its values, parameters and gradients.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backends/core/program/program_operation.h"
#include "backends/onednn/execution/onednn_schedule.h"
#include "backends/onednn/networks/schedule/network_layouts.h"
#include "backends/onednn/networks/schedule/network_results.h"

namespace convgrad::onednn {

struct NetworkOptions {
  int threads = 1;
  // Channels per block of activations: 8, 16 or kChannelsLast.
  int64_t block = 16;
  // Whether convolutions in bf16 are computed by the CPU's own instructions
  // where the library is right; else by way of f32.
  bool native_bf16 = false;
  // The most multiply-adds of one quantum, unless a single step has more. The
  // default is 200 ms of a nominal machine (Backend::nominal_macs_per_second).
  double macs_per_quantum = 0.2 * 25e9 * threads;
};

// Owned by one thread. Names are those of the program.
class NetworkBuilder {
 public:
  // With `everything`, all that a backward could be asked for counts as wanted,
  // not just what the request names: what a tape has to hold follows from that.
  // What is built comes after the steps that `schedule` has.
  NetworkBuilder(const ProgramOperation& operation,
                 const NetworkOptions& options, bool everything,
                 Schedule schedule = {});

  const ProgramOperation& operation() const { return operation_; }
  const ProgramShapes& shapes() const { return operation_.shapes(); }
  const NetworkOptions& options() const { return options_; }
  Schedule& schedule() { return schedule_; }
  // Whether a backward follows, now or by way of a tape.
  bool has_backward() const { return part_ != ProgramPart::kForward; }

  // Of activations.
  DataType dtype() const { return operation_.request().compute_dtype; }

  // Returns an activation that is there already. An input is brought to the
  // plan's layout, once, and a value to another form.
  NetworkTensor Value(const std::string& name, Form form = Form::kImage);
  // Adds the value that a step makes, with memory for it, or in `buffer`.
  NetworkTensor AddValue(const std::string& name);
  NetworkTensor AddValue(const std::string& name, BufferId buffer);
  // Returns a tensor like the value `name`, without memory: in the form that
  // the value is made in, or in `form`.
  NetworkTensor Like(const std::string& name) const;
  NetworkTensor Like(const std::string& name, Form form) const;

  // Returns the input's descriptor as the caller has it, null if `name` is no
  // input; and its bytes, readable in the backward, too.
  const TensorDescriptor* InputDescriptor(const std::string& name) const;
  BufferId InputBuffer(const std::string& name);

  // Returns the parameter's bytes, kNoBuffer for "": f32, row-major. Of a
  // statistic that a step before has written: what that wrote. A value in the
  // place of a weight is converted.
  BufferId Parameter(const std::string& name);
  // Returns the seed and the count of runs, I64 [2]. Requires: a forward of a
  // program that has randomness.
  BufferId Randomness();
  // Says that something is computed in a way that may have to be repeated
  // without fusing (see network_guard.h): where a fetched value isn't finite,
  // or one of the conditions, I32, isn't 0.
  void SetMayRepeat() { may_repeat_ = true; }
  bool may_repeat() const { return may_repeat_; }
  void RepeatIf(BufferId condition) { repeats_if_.push_back(condition); }
  const std::vector<BufferId>& repeats_if() const { return repeats_if_; }
  // By value: what RangeOf has found, see network_ranges.h.
  std::map<std::string, BufferId>& ranges() { return ranges_; }
  // Where the fetched values go, f32 and row-major.
  const std::vector<BufferId>& fetched() const { return results_.fetched; }

  // Returns where a step puts the statistic's new value.
  BufferId NewStatistic(const std::string& name);

  // Return where a step shall write a gradient: of a value, in `form`; of a
  // parameter, all elements in f32, row-major. All gradients of one value
  // are added. Requires for a parameter: not "".
  BufferId NewGradient(const std::string& value, Form form = Form::kImage);
  BufferId NewParameterGradient(const std::string& name);
  // Adds a buffer that has been written as the value's gradient. Nobody writes
  // it again.
  void AddGradient(const std::string& value, BufferId buffer,
                   Form form = Form::kImage);
  // Returns the value's whole gradient, like the value; kNoBuffer if none has
  // reached it. Requires: all steps that use the value have added theirs.
  BufferId GradientOf(const std::string& value);
  // As GradientOf, but may leave the last addition to the caller: the gradient
  // is the sum of both buffers, unless the second one is kNoBuffer.
  std::pair<BufferId, BufferId> GradientPairOf(const std::string& value);

  // Build what lies between the groups and the caller.
  void FetchValues();
  void BeginBackward();
  void EndBackward();

  // By buffer: whether the caller wants it.
  std::vector<bool> Wanted() const;
  // By buffer: whether it is a parameter that a backward finds as the forward
  // did, which statistics that the run updates aren't.
  std::vector<bool> LastingParameters() const;

 private:
  const Program& program() const { return operation_.program(); }
  size_t FirstParameterOperand() const;
  // Past the last one if `name` is no input.
  size_t InputIndex(const std::string& name) const;
  NetworkTensor OwnValue(const std::string& name);
  // Returns the value's gradients, each like the value.
  std::vector<BufferId> OwnGradients(const std::string& value);
  void SumInto(BufferId sum, const std::vector<BufferId>& addends,
               const ChannelBlocks& blocks);
  void SeedGradient(const std::string& output, BufferId gradient);

  const ProgramOperation& operation_;
  const NetworkOptions options_;
  const ProgramPart part_;
  const bool everything_;
  // Of each value.
  const std::map<std::string, Form> forms_;
  Schedule schedule_;
  // As their steps made them.
  std::map<std::string, NetworkTensor> values_;
  std::map<std::pair<std::string, Form>, NetworkTensor> values_in_form_;
  std::map<std::string, BufferId> inputs_;
  std::map<std::string, BufferId> parameters_;
  std::map<std::string, std::vector<NetworkTensor>> gradients_;
  std::map<std::string, std::vector<BufferId>> parameter_gradients_;
  // Steps that use a parameter.
  std::map<std::string, int> uses_;
  std::map<std::string, BufferId> ranges_;
  bool may_repeat_ = false;
  std::vector<BufferId> repeats_if_;
  NetworkResults results_;
};

}  // namespace convgrad::onednn
