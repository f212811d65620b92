#include "backends/core/optimizer/update_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/time/clock.h"

namespace convgrad {
namespace {

// Elements of one piece, small enough for a thread's cache.
constexpr int64_t kPieceElements = 1 << 14;

struct Piece {
  size_t parameter;
  int64_t begin, end;
};

// Pointers to one parameter's tensors; missing states are null.
struct Tensors {
  const float* value;
  const float* gradient;
  const float* states[2];
  float* new_value;
  float* new_states[2];
  const int64_t* step;
  int64_t* new_step;
};

// SGD's step on each element.
struct Sgd {
  float scale, weight_decay, momentum, fresh, rate;
  bool has_momentum, nesterov;

  Sgd(const ParameterSettings& settings, double gradient_scale, bool has_state)
      : scale(static_cast<float>(settings.maximize != 0 ? -gradient_scale
                                                        : gradient_scale)),
        weight_decay(static_cast<float>(settings.weight_decay)),
        momentum(static_cast<float>(settings.momentum)),
        // The first momentum buffer is the gradient itself.
        fresh(has_state ? static_cast<float>(1 - settings.dampening) : 1.0F),
        rate(static_cast<float>(-settings.learning_rate)),
        has_momentum(settings.momentum != 0),
        nesterov(settings.nesterov != 0) {}

  void Run(const Tensors& at, int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      float direction = at.gradient[i] * scale;
      if (weight_decay != 0) direction += weight_decay * at.value[i];
      if (has_momentum) {
        const float old = at.states[0] == nullptr ? 0 : at.states[0][i];
        const float buffer = momentum * old + fresh * direction;
        at.new_states[0][i] = buffer;
        direction = nesterov ? direction + momentum * buffer : buffer;
      }
      at.new_value[i] = at.value[i] + rate * direction;
    }
  }
};

// The step of Adam and AdamW on each element; `step` counts from 1.
struct Adam {
  float scale, weight_decay, shrink, beta2, epsilon, rate, root;
  // 1 - beta, rounded once.
  float fresh_mean, fresh_square;

  Adam(const ParameterSettings& settings, double gradient_scale,
       bool is_decoupled, int64_t step)
      : scale(static_cast<float>(settings.maximize != 0 ? -gradient_scale
                                                        : gradient_scale)),
        weight_decay(is_decoupled ? 0
                                  : static_cast<float>(settings.weight_decay)),
        shrink(is_decoupled ? static_cast<float>(1 - settings.learning_rate *
                                                         settings.weight_decay)
                            : 1.0F),
        beta2(static_cast<float>(settings.beta2)),
        epsilon(static_cast<float>(settings.epsilon)),
        rate(static_cast<float>(
            -settings.learning_rate /
            (1 - std::pow(settings.beta1, static_cast<double>(step))))),
        root(static_cast<float>(std::sqrt(
            1 - std::pow(settings.beta2, static_cast<double>(step))))),
        fresh_mean(static_cast<float>(1 - settings.beta1)),
        fresh_square(static_cast<float>(1 - settings.beta2)) {}

  // Interpolates from the nearer end, as torch.lerp does, so that a far larger
  // old mean doesn't round off a new gradient with most of the weight.
  float MeanOf(float old_mean, float gradient) const {
    const float change = gradient - old_mean;
    return fresh_mean < 0.5F ? old_mean + fresh_mean * change
                             : gradient - (1 - fresh_mean) * change;
  }

  void Run(const Tensors& at, int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      float gradient = at.gradient[i] * scale;
      if (weight_decay != 0) gradient += weight_decay * at.value[i];
      const float old_mean = at.states[0] == nullptr ? 0 : at.states[0][i];
      const float old_square = at.states[1] == nullptr ? 0 : at.states[1][i];
      const float mean = MeanOf(old_mean, gradient);
      const float square =
          beta2 * old_square + fresh_square * gradient * gradient;
      at.new_states[0][i] = mean;
      at.new_states[1][i] = square;
      at.new_value[i] = at.value[i] * shrink +
                        rate * (mean / (std::sqrt(square) / root + epsilon));
    }
  }
};

class UpdatePlan final : public Plan {
 public:
  UpdatePlan(const UpdateOperation& operation, const Backend& backend,
             int threads)
      : operation_(operation.optimizer(), operation.parameters()),
        backend_(backend),
        threads_(threads) {
    for (size_t i = 0; i < operation.parameters().size(); ++i) {
      TensorDescriptor value;
      value.dims = operation.parameters()[i].dims;
      sizes_.push_back(ElementCount(value));
      for (int64_t begin = 0; begin < sizes_[i]; begin += kPieceElements) {
        pieces_.push_back(
            {i, begin, std::min(begin + kPieceElements, sizes_[i])});
      }
    }
  }

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    const absl::Time start = absl::Now();
    std::vector<Tensors> tensors = Bind(buffers);
    const auto* bytes = static_cast<const std::byte*>(buffers.operands[0]);
    UpdateSettings settings;
    std::memcpy(&settings, bytes, sizeof(settings));
    UpdateSummary summary;
    double scale = settings.gradient_scale;
    if (settings.clip_norm > 0 || settings.skip_nonfinite != 0) {
      const double norm = Norm(tensors) * std::abs(scale);
      summary.gradient_norm = static_cast<float>(norm);
      if (settings.clip_norm > 0) {
        // Same formula as clip_grad_norm_: 1e-6 avoids a division by 0. A norm
        // that isn't finite propagates to the gradients.
        const double clip = settings.clip_norm / (norm + 1e-6);
        if (!(clip >= 1)) scale *= clip;
      }
      summary.skipped =
          settings.skip_nonfinite != 0 && !std::isfinite(norm) ? 1 : 0;
    }
    if (summary.skipped != 0) {
      Copy(&tensors);
    } else {
      Step(bytes + sizeof(settings), scale, tensors);
    }
    std::memcpy(buffers.results.back(), &summary, sizeof(summary));
    RunTimes times;
    times.compute = absl::Now() - start;
    return times;
  }

  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(sizeof(*this) +
                                sizes_.size() * sizeof(Tensors) +
                                pieces_.size() * sizeof(Piece));
  }
  absl::string_view implementation() const override { return "loops"; }

 private:
  std::vector<Tensors> Bind(const RunBuffers& buffers) const {
    const size_t states = StateCount(operation_.optimizer());
    std::vector<Tensors> tensors;
    size_t operand = 1;
    size_t result = 0;
    const auto next_operand = [&] { return buffers.operands[operand++]; };
    const auto next_result = [&] { return buffers.results[result++]; };
    for (const UpdatedParameter& parameter : operation_.parameters()) {
      Tensors at = {};
      at.value = static_cast<const float*>(next_operand());
      at.gradient = static_cast<const float*>(next_operand());
      at.new_value = static_cast<float*>(next_result());
      for (size_t i = 0; i < states; ++i) {
        const void* old = next_operand();
        void* now = parameter.keeps_state ? next_result() : nullptr;
        if (i == 2) {
          at.step = static_cast<const int64_t*>(old);
          at.new_step = static_cast<int64_t*>(now);
        } else {
          at.states[i] = static_cast<const float*>(old);
          at.new_states[i] = static_cast<float*>(now);
        }
      }
      tensors.push_back(at);
    }
    return tensors;
  }

  void ForEachPiece(absl::FunctionRef<void(size_t)> body) const {
    backend_.ParallelFor(threads_, static_cast<int64_t>(pieces_.size()),
                         [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) body(i);
                         });
  }

  // Returns the norm of all gradients together. Adds the pieces' sums in a
  // fixed order.
  double Norm(const std::vector<Tensors>& tensors) const {
    std::vector<double> sums(pieces_.size());
    ForEachPiece([&](size_t i) {
      const Piece& piece = pieces_[i];
      const float* gradient = tensors[piece.parameter].gradient;
      double sum = 0;
      for (int64_t at = piece.begin; at < piece.end; ++at) {
        sum += static_cast<double>(gradient[at]) * gradient[at];
      }
      sums[i] = sum;
    });
    double sum = 0;
    for (const double part : sums) sum += part;
    return std::sqrt(sum);
  }

  void Step(const std::byte* settings_bytes, double scale,
            std::vector<Tensors>& tensors) const {
    std::vector<ParameterSettings> settings(tensors.size());
    if (!settings.empty()) {
      std::memcpy(settings.data(), settings_bytes,
                  settings.size() * sizeof(ParameterSettings));
    }
    for (Tensors& at : tensors) {
      if (at.new_step != nullptr) {
        *at.new_step = (at.step == nullptr ? 0 : *at.step) + 1;
      }
    }
    const Optimizer optimizer = operation_.optimizer();
    ForEachPiece([&](size_t i) {
      const Piece& piece = pieces_[i];
      const Tensors& at = tensors[piece.parameter];
      const ParameterSettings& own = settings[piece.parameter];
      if (optimizer == Optimizer::kSgd) {
        Sgd(own, scale, at.states[0] != nullptr)
            .Run(at, piece.begin, piece.end);
      } else {
        Adam(own, scale, optimizer == Optimizer::kAdamW, *at.new_step)
            .Run(at, piece.begin, piece.end);
      }
    });
  }

  // Copies values and states unchanged.
  void Copy(std::vector<Tensors>* tensors) const {
    for (size_t i = 0; i < tensors->size(); ++i) {
      const Tensors& at = (*tensors)[i];
      const int64_t size = sizes_[i];
      std::copy_n(at.value, size, at.new_value);
      for (size_t state = 0; state < 2; ++state) {
        float* const now = at.new_states[state];
        if (now == nullptr) continue;
        const float* const old = at.states[state];
        if (old != nullptr) {
          std::copy_n(old, size, now);
        } else {
          std::fill_n(now, size, 0.0F);
        }
      }
      if (at.new_step != nullptr) {
        *at.new_step = at.step == nullptr ? 0 : *at.step;
      }
    }
  }

  const UpdateOperation operation_;
  const Backend& backend_;
  const int threads_;
  std::vector<int64_t> sizes_;  // by parameter
  std::vector<Piece> pieces_;
};

}  // namespace

std::unique_ptr<Plan> MakeUpdatePlan(const UpdateOperation& operation,
                                     const Backend& backend, int threads) {
  return std::make_unique<UpdatePlan>(operation, backend, threads);
}

}  // namespace convgrad
