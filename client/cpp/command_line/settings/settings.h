// What the command line's flags say, checked.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/client.h"

ABSL_DECLARE_FLAG(bool, json);
ABSL_DECLARE_FLAG(bool, everybody);
ABSL_DECLARE_FLAG(std::string, close);

namespace convgrad {

struct Settings {
  ClientOptions client;
  absl::Duration timeout;
  std::string region;   // side socket, "unix:PATH"; "" for no shared memory
  std::string backend;  // "" is auto
  std::string traceparent;
  std::string priority;
  bool deterministic = true;
  bool self_check = false;
  bool count_nonfinite = false;
  int64_t slice_items = 0;  // of a stream; -1: the default's, 0: no stream

  DataType dtype = DataType::kF32;
  // What check goes through.
  std::vector<DataType> check_dtypes = {DataType::kF32, DataType::kBF16,
                                        DataType::kF16};
  Layout layout = Layout::kNCX;
  Layout weight_layout = Layout::kOIX;
  // Indexed by Result; absent for the wire's default.
  std::array<std::optional<DataType>, kResultCount> result_dtypes;
  // Likewise; absent for the operands' layout, and for 1.
  std::array<std::optional<Layout>, kResultCount> result_layouts;
  std::array<std::optional<float>, kResultCount> scales;
  // Empty for the default: input and weight, and bias if the problem has one.
  std::vector<Result> gradients;

  uint64_t seed = 0;
  bool integers = false;
  std::string operands;  // .npz file; "" for none
  // Indexed by Operand: .npy or .npz file; "" for what `operands` has, else
  // random values.
  std::array<std::string, kOperandCount> files;
  std::string out;  // prefix, or .npz file; "" writes nothing
  bool check = true;

  Direction bench_direction = Direction::kBackward;
  int repeat = 1;
  int warmup = 0;

  std::string metrics;  // of top, HOST:PORT
  absl::Duration interval = absl::Seconds(2);
  int count = 0;  // of tables; 0: no end
};

// Requires: absl::ParseCommandLine was called.
// Errors: kInvalidArgument naming the flag.
absl::StatusOr<Settings> ReadSettings();

}  // namespace convgrad
