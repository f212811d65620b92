// mse: the mean or sum of squared distances.
#include <algorithm>

#include "backends/kernels/operators/elements.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

// Elements that are added up by one part.
constexpr int64_t kChunk = 1 << 14;

struct MseShape {
  int64_t size;  // padding included, which is zero in both
  DataType dtype;
  double denominator;

  int64_t chunks() const { return (size + kChunk - 1) / kChunk; }
  template <typename Visit>
  void ForChunk(int64_t chunk, const Visit& visit) const {
    const int64_t end = std::min(size, (chunk + 1) * kChunk);
    for (int64_t i = chunk * kChunk; i < end; ++i) visit(i);
  }
};

double DenominatorOf(const ProgramStep& step, const ChannelBlocks& blocks) {
  if (WordAttribute(step, "reduction") == "sum") return 1;
  if (HasAttribute(step, "denominator")) {
    return FloatAttribute(step, "denominator");
  }
  return static_cast<double>(blocks.batch * blocks.channels * blocks.spatial);
}

class Mse final : public NetworkGroup {
 public:
  explicit Mse(const ProgramStep& step) : step_(step) {}

  absl::Status Forward(NetworkBuilder* builder) override {
    const NetworkTensor x = builder->Value(step_.operands[0]);
    x_ = x.buffer;
    target_ = builder->Value(step_.operands[1]).buffer;
    shape_ = {x.blocks.size(), x.blocks.dtype, DenominatorOf(step_, x.blocks)};
    const BufferId chunks = builder->schedule().AddBuffer(
        shape_.chunks() * int64_t{sizeof(double)});
    const BufferId loss = builder->AddValue(step_.result).buffer;
    builder->schedule().Add(
        {.kind = "loss",
         .reads = {x_, target_},
         .writes = {loss, chunks},
         .function = [=, shape = shape_, x_id = x_,
                      target_id = target_](const RunContext& context) {
           const auto distance_at = [&](int64_t i) {
             return double{LoadElement(shape.dtype, context.At(x_id), i)} -
                    LoadElement(shape.dtype, context.At(target_id), i);
           };
           auto* sums = context.Write<double>(chunks);
           context.ForParts(shape.chunks(), [&](int64_t chunk) {
             sums[chunk] = 0;
             shape.ForChunk(chunk, [&](int64_t i) {
               const double distance = distance_at(i);
               sums[chunk] += distance * distance;
             });
           });
           double sum = 0;
           for (int64_t i = 0; i < shape.chunks(); ++i) sum += sums[i];
           *context.Write<float>(loss) =
               static_cast<float>(sum / shape.denominator);
         }});
    return absl::OkStatus();
  }

  absl::Status Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result);
    if (dy == kNoBuffer) return absl::OkStatus();
    for (const size_t operand : {0, 1}) {
      AddGradient(dy, operand == 0 ? 2 : -2,
                  builder->NewGradient(step_.operands[operand]), builder);
    }
    return absl::OkStatus();
  }

 private:
  void AddGradient(BufferId dy, double factor, BufferId gradient,
                   NetworkBuilder* builder) const {
    builder->schedule().Add(
        {.kind = "loss",
         .reads = {dy, x_, target_},
         .writes = {gradient},
         .function = [=, shape = shape_, x_id = x_,
                      target_id = target_](const RunContext& context) {
           const auto distance_at = [&](int64_t i) {
             return double{LoadElement(shape.dtype, context.At(x_id), i)} -
                    LoadElement(shape.dtype, context.At(target_id), i);
           };
           const double scale =
               factor * *context.Read<float>(dy) / shape.denominator;
           context.ForParts(shape.chunks(), [&](int64_t chunk) {
             shape.ForChunk(chunk, [&](int64_t i) {
               StoreElement(shape.dtype,
                            static_cast<float>(scale * distance_at(i)),
                            context.At(gradient), i);
             });
           });
         }});
  }

  const ProgramStep& step_;
  MseShape shape_ = {};
  BufferId x_ = kNoBuffer, target_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkMse() {
  return {{Operator::kMse, &MakeOfStep<Mse>}};
}

}  // namespace convgrad::onednn
