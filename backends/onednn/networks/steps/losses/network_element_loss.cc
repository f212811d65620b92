// Implements losses that are the mean or the sum of a function of each element
// and its target: mse, l1, smooth_l1 and binary_cross_entropy_with_logits.
#include <algorithm>
#include <cmath>

#include "backends/kernels/operators/elements.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Elements that are added up by one part.
constexpr int64_t kChunk = 1 << 14;

// Computes `number`, an attribute of the operator, x and the target in f64.
using Function = double (*)(double number, double x, double target);

// One operator: the function, and its derivatives by x and by the target.
struct ElementLossRow {
  Operator op;
  absl::string_view number;  // the attribute; "": none
  Function value, by_x, by_target;
};

double Square(double, double x, double t) { return (x - t) * (x - t); }
double SquareByX(double, double x, double t) { return 2 * (x - t); }
double SquareByTarget(double, double x, double t) { return 2 * (t - x); }

// Returns -1, 0 or 1; 0 of NaN, as PyTorch.
double SignOf(double x) { return x > 0 ? 1 : (x < 0 ? -1 : 0); }

double Distance(double, double x, double t) { return std::fabs(x - t); }
double DistanceByX(double, double x, double t) { return SignOf(x - t); }
double DistanceByTarget(double, double x, double t) { return SignOf(t - x); }

double Smooth(double beta, double x, double t) {
  const double distance = std::fabs(x - t);
  return distance < beta ? 0.5 * distance * distance / beta
                         : distance - 0.5 * beta;
}
double SmoothByX(double beta, double x, double t) {
  const bool is_far = beta == 0 || std::fabs(x - t) >= beta;
  return is_far ? SignOf(x - t) : (x - t) / beta;
}
double SmoothByTarget(double beta, double x, double t) {
  return -SmoothByX(beta, x, t);
}

// Returns log(1 + exp(-x)).
double LogOfSum(double x) {
  return std::log1p(std::exp(-std::fabs(x))) + std::max(-x, 0.0);
}

double Binary(double pos_weight, double x, double t) {
  return (1 - t) * x + (1 + (pos_weight - 1) * t) * LogOfSum(x);
}
double BinaryByX(double pos_weight, double x, double t) {
  // Not from 1 - sigmoid(x), which would lose a small result's digits.
  return (1 - t) / (1 + std::exp(-x)) - pos_weight * t / (1 + std::exp(x));
}
double BinaryByTarget(double pos_weight, double x, double) {
  return (pos_weight - 1) * LogOfSum(x) - x;
}

constexpr ElementLossRow kRows[] = {
    {Operator::kMse, "", Square, SquareByX, SquareByTarget},
    {Operator::kL1, "", Distance, DistanceByX, DistanceByTarget},
    {Operator::kSmoothL1, "beta", Smooth, SmoothByX, SmoothByTarget},
    {Operator::kBinaryCrossEntropy, "pos_weight", Binary, BinaryByX,
     BinaryByTarget}};

const ElementLossRow& RowOf(Operator op) {
  return *std::find_if(
      std::begin(kRows), std::end(kRows),
      [op](const ElementLossRow& row) { return row.op == op; });
}

double DenominatorOf(const ProgramStep& step, const ChannelBlocks& blocks) {
  if (WordAttribute(step, "reduction") == "sum") return 1;
  if (HasAttribute(step, "denominator")) {
    return FloatAttribute(step, "denominator");
  }
  return static_cast<double>(blocks.batch * blocks.channels * blocks.spatial);
}

// The elements of both operands, which lie alike.
struct Pairs {
  ChannelBlocks blocks;
  BufferId x = kNoBuffer, target = kNoBuffer;

  int64_t chunks() const { return (blocks.size() + kChunk - 1) / kChunk; }

  // Calls visit(i, x, target) for each element of the chunk that isn't padding.
  template <typename Visit>
  void ForChunk(const RunContext& context, int64_t chunk,
                const Visit& visit) const {
    const std::byte* const x_data = context.At(x);
    const std::byte* const target_data = context.At(target);
    const int64_t end = std::min(blocks.size(), (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) {
      visit(i, double{LoadElement(blocks.dtype, x_data, i)},
            double{LoadElement(blocks.dtype, target_data, i)});
    }
  }

  // Returns whether element `i` is padding, whose function needn't be 0.
  bool IsPadding(int64_t i) const {
    if (blocks.padded_channels() == blocks.channels) return false;
    const int64_t block = i / (blocks.spatial * blocks.block);
    const int64_t first = block % blocks.block_count() * blocks.block;
    return first + i % blocks.block >= blocks.channels;
  }
};

class ElementLoss final : public NetworkGroup {
 public:
  explicit ElementLoss(const ProgramStep& step)
      : step_(step),
        row_(RowOf(step.op)),
        number_(row_.number.empty() ? 0 : FloatAttribute(step, row_.number)) {}

  void Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    pairs_ = {x.blocks, x.buffer, builder->Value(step_.operands[1]).buffer};
    denominator_ = DenominatorOf(step_, x.blocks);
    const BufferId chunks = builder->AddArray<double>(pairs_.chunks());
    const BufferId loss = builder->AddValue(step_.result).buffer;
    builder->Add(
        "loss", {pairs_.x, pairs_.target}, {loss, chunks},
        [=, pairs = pairs_, number = number_, value = row_.value,
         denominator = denominator_](const RunContext& context) {
          auto* sums = context.Write<double>(chunks);
          context.ForParts(pairs.chunks(), [&](int64_t chunk) {
            double sum = 0;
            pairs.ForChunk(context, chunk, [&](int64_t i, double a, double b) {
              if (!pairs.IsPadding(i)) sum += value(number, a, b);
            });
            sums[chunk] = sum;
          });
          double sum = 0;
          for (int64_t i = 0; i < pairs.chunks(); ++i) sum += sums[i];
          *context.Write<float>(loss) = static_cast<float>(sum / denominator);
        });
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    AddGradient(dy, row_.by_x, builder->NewGradient(step_.operands[0]).buffer,
                builder);
    AddGradient(dy, row_.by_target,
                builder->NewGradient(step_.operands[1]).buffer, builder);
  }

 private:
  void AddGradient(BufferId dy, Function derivative, BufferId gradient,
                   NetworkBuilder* builder) const {
    builder->Add(
        "loss", {dy, pairs_.x, pairs_.target}, {gradient},
        [=, pairs = pairs_, number = number_,
         denominator = denominator_](const RunContext& context) {
          const double scale = *context.Read<float>(dy) / denominator;
          std::byte* const to = context.At(gradient);
          context.ForParts(pairs.chunks(), [&](int64_t chunk) {
            pairs.ForChunk(context, chunk, [&](int64_t i, double a, double b) {
              const double slope =
                  pairs.IsPadding(i) ? 0 : scale * derivative(number, a, b);
              StoreElement(pairs.blocks.dtype, static_cast<float>(slope), to,
                           i);
            });
          });
        });
  }

  const ProgramStep& step_;
  const ElementLossRow& row_;
  const double number_;
  double denominator_ = 1;
  Pairs pairs_;
};

}  // namespace

std::vector<NetworkOperator> NetworkElementLosses() {
  std::vector<NetworkOperator> rows;
  for (const ElementLossRow& row : kRows) {
    rows.push_back({row.op, &MakeOfStep<ElementLoss>});
  }
  return rows;
}

}  // namespace convgrad::onednn
