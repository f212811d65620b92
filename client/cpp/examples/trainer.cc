// Trains a network on a server without Python. The network is a text file, its
// parameters stay on the server, and each step sends images and receives a
// loss.
//
//   trainer HOST:PORT NETWORK.txt
//
// NETWORK.txt is network.txt beside this file, or another program with the
// inputs `images` [N, 1, 12, 12] and `labels` of 4 classes, and the outputs
// `loss` and `logits`. The program generates the images: horizontal stripes,
// vertical stripes, squares and noise. Exits with 1 unless the trained network
// classifies 90 % of them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "client/cpp/sessions/networks.h"
#include "client/cpp/sessions/session.h"

namespace {

constexpr int64_t kBatch = 32;
constexpr int64_t kClasses = 4;
constexpr int64_t kSize = 12;
constexpr int kSteps = 150;

// Ends the program if there was an error.
void Must(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}
template <typename T>
T Must(absl::StatusOr<T> value) {
  Must(value.status());
  return *std::move(value);
}

template <typename T>
absl::Span<const std::byte> BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const std::byte*>(values.data()),
          values.size() * sizeof(T)};
}

convgrad::Program ReadProgram(const char* path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return Must(convgrad::ParseProgram(text));
}

// Puts weights with PyTorch's default distribution, uniform within 1 /
// sqrt(fan_in). Biases, which have one dim, are 0.
void PutParameters(const convgrad::Program& program,
                   convgrad::Session* session) {
  std::mt19937 random(1);
  std::vector<std::vector<float>> values;
  std::vector<convgrad::TensorToPut> tensors;
  for (const convgrad::ProgramParameter& parameter : program.parameters) {
    int64_t count = 1;
    for (const int64_t extent : parameter.dims) count *= extent;
    std::vector<float>& drawn = values.emplace_back(count, 0.0f);
    if (parameter.dims.size() > 1) {
      const auto fan_in = static_cast<float>(count / parameter.dims[0]);
      std::uniform_real_distribution<float> uniform(-1 / std::sqrt(fan_in),
                                                    1 / std::sqrt(fan_in));
      for (float& value : drawn) value = uniform(random);
    }
    tensors.push_back({parameter.name, convgrad::ParameterDescriptor(parameter),
                       BytesOf(drawn)});
  }
  Must(session->Put(tensors).status());
}

struct Batch {
  std::vector<float> images;    // [kBatch, 1, kSize, kSize]
  std::vector<int64_t> labels;  // [kBatch]
};

// Returns the brightness of a class's pattern at a pixel.
float PatternAt(int64_t label, int64_t row, int64_t column) {
  switch (label) {
    case 0:
      return row % 4 < 2 ? 1.0f : -1.0f;
    case 1:
      return column % 4 < 2 ? 1.0f : -1.0f;
    case 2:
      return (row % 4 < 2) == (column % 4 < 2) ? 1.0f : -1.0f;
    default:
      return 0.0f;
  }
}

Batch Generate(std::mt19937* random) {
  std::normal_distribution<float> noise(0.0f, 0.5f);
  Batch batch;
  for (int64_t n = 0; n < kBatch; ++n) {
    batch.labels.push_back((*random)() % kClasses);
    for (int64_t i = 0; i < kSize * kSize; ++i) {
      batch.images.push_back(
          PatternAt(batch.labels.back(), i / kSize, i % kSize) +
          noise(*random));
    }
  }
  return batch;
}

// Returns a run of the network on `batch`, which must outlive the run.
convgrad::ProgramRun RunOn(const Batch& batch, const char* fetched) {
  using convgrad::DataType;
  using convgrad::Layout;
  return {.program = "network",
          .inputs = {{"images",
                      {DataType::kF32, Layout::kNCX, {kBatch, 1, kSize, kSize}},
                      BytesOf(batch.images)},
                     {"labels",
                      {DataType::kI64, Layout::kNCX, {kBatch}},
                      BytesOf(batch.labels)}},
          .fetched = {fetched}};
}

const float* FloatsOf(const convgrad::ProgramReply& reply) {
  return reinterpret_cast<const float*>(reply.values[0].data.data());
}

// Returns SGD with momentum over all trainable parameters.
convgrad::v1::UpdateParametersRequest Sgd(const convgrad::Program& program) {
  convgrad::v1::UpdateParametersRequest update;
  update.set_algorithm(convgrad::v1::UpdateParametersRequest::ALGORITHM_SGD);
  auto* group = update.add_groups();
  group->set_learning_rate(0.1);
  group->set_momentum(0.9);
  for (const convgrad::ProgramParameter& parameter : program.parameters) {
    if (parameter.trainable) group->add_parameters(parameter.name);
  }
  return update;
}

// Returns the share of the batch whose largest logit belongs to its label.
double AccuracyOf(const Batch& batch, const float* logits) {
  int64_t right = 0;
  for (int64_t n = 0; n < kBatch; ++n) {
    const float* row = logits + n * kClasses;
    const int64_t best = std::max_element(row, row + kClasses) - row;
    if (best == batch.labels[n]) ++right;
  }
  return static_cast<double>(right) / kBatch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: trainer HOST:PORT NETWORK.txt\n");
    return 2;
  }
  const convgrad::Program program = ReadProgram(argv[2]);
  convgrad::ClientOptions server;
  server.server = argv[1];
  const auto session = Must(convgrad::Session::Open(server));
  PutParameters(program, session.get());
  convgrad::Networks networks(session.get());
  Must(networks.Load("network", program));

  std::mt19937 random(2);
  for (int step = 1; step <= kSteps; ++step) {
    const Batch batch = Generate(&random);
    convgrad::ProgramRun run = RunOn(batch, "loss");
    run.backward.emplace();
    run.update = Sgd(program);
    const convgrad::ProgramReply reply = Must(networks.Run(run));
    if (step % 30 == 0)
      std::printf("step %d: loss %.4f\n", step, *FloatsOf(reply));
  }
  const Batch unseen = Generate(&random);
  const convgrad::ProgramReply reply =
      Must(networks.Run(RunOn(unseen, "logits")));
  const double accuracy = AccuracyOf(unseen, FloatsOf(reply));
  std::printf("accuracy %.2f\n", accuracy);
  Must(session->Close());
  return accuracy >= 0.9 ? 0 : 1;
}
