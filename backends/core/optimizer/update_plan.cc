#include "backends/core/optimizer/update_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/core/next_count.h"
#include "backends/core/optimizer/update_rules.h"
#include "backends/core/steady_now.h"

namespace convgrad {
namespace {

// Elements of one piece, small enough for a thread's cache.
constexpr int64_t kPieceElements = 1 << 14;

struct Piece {
  size_t parameter;
  ElementRange range;
};

class UpdatePlan final : public Plan {
 public:
  UpdatePlan(const UpdateOperation& operation, const Backend& backend,
             int threads)
      : operation_(operation), backend_(backend), threads_(threads) {
    for (size_t i = 0; i < operation.parameters().size(); ++i) {
      const UpdatedParameter& parameter = operation.parameters()[i];
      sizes_.push_back(*CheckedProduct(parameter.dims));
      for (int64_t begin = 0; begin < sizes_[i]; begin += kPieceElements) {
        const Piece piece = {
            i, {begin, std::min(begin + kPieceElements, sizes_[i])}};
        if (parameter.is_stepped) stepped_.push_back(piece);
        if (parameter.is_averaged) averaged_.push_back(piece);
      }
    }
  }

  absl::StatusOr<RunTimes> Run(const RunBuffers& buffers) const override {
    const absl::Time start = SteadyNow();
    const std::vector<UpdateTensors> tensors = Bind(buffers);
    const auto* bytes = static_cast<const std::byte*>(buffers.operands[0]);
    UpdateSettings settings;
    std::memcpy(&settings, bytes, sizeof(settings));
    GradientRule rule = {settings.gradient_scale, settings.clip_value};
    UpdateSummary summary;
    if (settings.clip_norm > 0 || settings.skip_nonfinite != 0) {
      const double norm = Norm(tensors, rule);
      summary.gradient_norm = static_cast<float>(norm);
      if (settings.clip_norm > 0) {
        // Same formula as clip_grad_norm_: 1e-6 avoids a division by 0. A norm
        // that isn't finite propagates to the gradients.
        const double clip = settings.clip_norm / (norm + 1e-6);
        if (!(clip >= 1)) rule.clip = clip;
      }
      // Limited gradients are finite even if the gradients aren't. Products
      // with the scale may overflow f32, but not their norm in f64. A norm
      // beyond f32 counts as infinite even if each product is finite.
      const bool is_finite =
          rule.limit > 0 ? std::isfinite(Norm(tensors, GradientRule()))
                         : std::isfinite(static_cast<float>(norm * rule.clip));
      summary.skipped = settings.skip_nonfinite != 0 && !is_finite ? 1 : 0;
    }
    if (summary.skipped != 0) {
      Copy(tensors);
    } else {
      Step(bytes + sizeof(settings), rule, tensors);
      Average(settings.ema_decay, tensors);
    }
    std::memcpy(buffers.results.back(), &summary, sizeof(summary));
    RunTimes times;
    times.compute = SteadyNow() - start;
    return times;
  }

  int64_t scratch_bytes() const override { return 0; }
  int64_t resident_bytes() const override {
    return static_cast<int64_t>(
        sizeof(*this) + sizes_.size() * sizeof(UpdateTensors) +
        (stepped_.size() + averaged_.size()) * sizeof(Piece));
  }
  absl::string_view implementation() const override { return "loops"; }

 private:
  std::vector<UpdateTensors> Bind(const RunBuffers& buffers) const {
    const auto names = StateNames(operation_.optimizer());
    std::vector<UpdateTensors> tensors;
    size_t operand = 1;
    size_t result = 0;
    const auto next_operand = [&] {
      return static_cast<const float*>(buffers.operands[operand++]);
    };
    const auto next_result = [&](bool is_written) {
      return is_written ? static_cast<float*>(buffers.results[result++])
                        : nullptr;
    };
    for (const UpdatedParameter& parameter : operation_.parameters()) {
      UpdateTensors at = {};
      at.value = next_operand();
      at.gradient = next_operand();
      at.new_value = next_result(parameter.is_stepped);
      for (size_t i = 0; i < names.size(); ++i) {
        const float* const old = next_operand();
        float* const now = next_result((parameter.states >> i & 1) != 0);
        if (names[i] == "step") {
          at.step = reinterpret_cast<const int64_t*>(old);
          at.new_step = reinterpret_cast<int64_t*>(now);
        } else {
          at.states[i] = old;
          at.new_states[i] = now;
        }
      }
      at.average = next_operand();
      at.new_average = next_result(parameter.is_averaged);
      tensors.push_back(at);
    }
    return tensors;
  }

  // Calls body(i, piece) for each piece.
  void ForEach(const std::vector<Piece>& pieces,
               absl::FunctionRef<void(size_t, const Piece&)> body) const {
    backend_.ParallelFor(threads_, std::ssize(pieces),
                         [&](int64_t begin, int64_t end) {
                           for (int64_t i = begin; i < end; ++i) {
                             body(i, pieces[i]);
                           }
                         });
  }

  // Returns the norm of all gradients together. Adds the pieces' sums in a
  // fixed order.
  double Norm(const std::vector<UpdateTensors>& tensors,
              const GradientRule& rule) const {
    std::vector<double> sums(stepped_.size());
    ForEach(stepped_, [&](size_t i, const Piece& piece) {
      sums[i] = SquaresOf(tensors[piece.parameter].gradient, rule, piece.range);
    });
    double sum = 0;
    for (const double part : sums) sum += part;
    return NormOf(sum, rule);
  }

  void Step(const std::byte* settings_bytes, const GradientRule& rule,
            const std::vector<UpdateTensors>& tensors) const {
    std::vector<ParameterSettings> settings(tensors.size());
    if (!settings.empty()) {
      std::memcpy(settings.data(), settings_bytes,
                  settings.size() * sizeof(ParameterSettings));
    }
    for (const UpdateTensors& at : tensors) {
      if (at.new_step != nullptr) {
        *at.new_step = at.step == nullptr ? 1 : NextCount(*at.step);
      }
    }
    ForEach(stepped_, [&](size_t, const Piece& piece) {
      RunStep(operation_.optimizer(), settings[piece.parameter], rule,
              tensors[piece.parameter], piece.range);
    });
    if (operation_.optimizer() == Optimizer::kLamb) Trust(settings, tensors);
  }

  // Writes LAMB's values. Adds the pieces' sums in a fixed order.
  void Trust(const std::vector<ParameterSettings>& settings,
             const std::vector<UpdateTensors>& tensors) const {
    std::vector<TrustNorms> parts(stepped_.size());
    ForEach(stepped_, [&](size_t i, const Piece& piece) {
      parts[i] = TrustNormsOf(settings[piece.parameter],
                              tensors[piece.parameter], piece.range);
    });
    std::vector<TrustNorms> norms(tensors.size());
    for (size_t i = 0; i < stepped_.size(); ++i) {
      norms[stepped_[i].parameter].value += parts[i].value;
      norms[stepped_[i].parameter].update += parts[i].update;
    }
    ForEach(stepped_, [&](size_t, const Piece& piece) {
      RunTrustedStep(settings[piece.parameter], norms[piece.parameter],
                     tensors[piece.parameter], piece.range);
    });
  }

  void Average(double decay, const std::vector<UpdateTensors>& tensors) const {
    ForEach(averaged_, [&](size_t, const Piece& piece) {
      RunAverage(decay, tensors[piece.parameter], piece.range);
    });
  }

  // Copies values, states and averages unchanged.
  void Copy(const std::vector<UpdateTensors>& tensors) const {
    const auto copy = [](const float* old, int64_t size, float* now) {
      if (now == nullptr) return;
      if (old != nullptr) {
        std::copy_n(old, size, now);
      } else {
        std::fill_n(now, size, 0.0F);
      }
    };
    for (size_t i = 0; i < tensors.size(); ++i) {
      const UpdateTensors& at = tensors[i];
      copy(at.value, sizes_[i], at.new_value);
      for (size_t state = 0; state < kMaxStates; ++state) {
        copy(at.states[state], sizes_[i], at.new_states[state]);
      }
      copy(at.average, sizes_[i], at.new_average);
      if (at.new_step != nullptr) {
        *at.new_step = at.step == nullptr ? 0 : *at.step;
      }
    }
  }

  const UpdateOperation operation_;
  const Backend& backend_;
  const int threads_;
  std::vector<int64_t> sizes_;  // by parameter
  // The pieces of stepped and of averaged parameters.
  std::vector<Piece> stepped_, averaged_;
};

}  // namespace

std::unique_ptr<Plan> MakeUpdatePlan(const UpdateOperation& operation,
                                     const Backend& backend, int threads) {
  return std::make_unique<UpdatePlan>(operation, backend, threads);
}

}  // namespace convgrad
