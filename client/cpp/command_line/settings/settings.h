// `Settings` holds the checked values of the command line.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "backends/core/convolution/conv_operation.h"
#include "client/cpp/client_options.h"

namespace convgrad {

struct Settings {
  std::string command;
  // The command's arguments: problems, a file or a shell.
  std::vector<std::string> arguments;
  bool json = false;

  // File from which `client` got its token; "": none.
  std::string token_file;
  ClientOptions client = {.server = "127.0.0.1:7070"};
  absl::Duration timeout = absl::Seconds(60);
  std::string region;  // side socket, "unix:PATH"; "" for no shared memory
  std::string backend = "auto";
  std::string traceparent;
  std::string priority = "batch";
  bool self_check = false;
  bool count_nonfinite = false;
  int64_t slice_items = 0;  // of a stream; -1: default, 0: no stream

  // Absent: f32; for the command check, each dtype in turn.
  std::optional<DataType> dtype;
  Layout layout = Layout::kNCX;
  std::optional<Layout> given_weight_layout;
  // Indexed by Result; absent: the wire's default.
  std::array<std::optional<DataType>, kResultCount> result_dtypes;
  // Indexed by Result; absent: the operands' layout, and scale 1.
  std::array<std::optional<Layout>, kResultCount> result_layouts;
  std::array<std::optional<float>, kResultCount> scales;
  // Empty: the gradients of input and weight, and of a bias if there is one.
  std::vector<Result> gradients;

  int64_t seed = 1;
  bool integers = false;
  std::string operands;  // .npz file; "" for none
  // Indexed by Operand: .npy or .npz file; "": the array in `operands`, else
  // random values.
  std::array<std::string, kOperandCount> files;
  std::string out;  // prefix or .npz file; "": write nothing
  bool check = true;

  Direction bench_direction = Direction::kBackward;
  int64_t repeat = 20;
  int64_t warmup = 3;

  std::string metrics = "127.0.0.1:9464";  // for top, HOST:PORT
  absl::Duration interval = absl::Seconds(2);
  int64_t count = 0;  // of tables; 0: no limit

  std::string program_inputs;  // dims, e.g. "x=16x3x224x224,t=16"

  bool everybody = false;
  std::string close;  // handle of a session; "": none

  DataType operand_dtype() const { return dtype.value_or(DataType::kF32); }
  Layout weight_layout() const {
    return given_weight_layout.value_or(layout == Layout::kNXC ? Layout::kOXI
                                                               : Layout::kOIX);
  }
};

}  // namespace convgrad
