// Implements dropout. Its mask has a byte per element, in the activation's
// layout.
#include <algorithm>

#include "backends/core/program/philox.h"
#include "backends/kernels/operators/elements.h"
#include "backends/onednn/networks/schedule/network_groups.h"
#include "backends/onednn/networks/steps/network_operator.h"

namespace convgrad::onednn {
namespace {

struct DropoutShape {
  ChannelBlocks blocks;
  int64_t items;  // extent of the first axis
  int64_t step;   // index in the program
  double p;
  bool by_row;

  // Return the number of logical elements with a random word each, and the
  // number of words in a part.
  int64_t elements() const {
    return by_row ? items : blocks.batch * blocks.channels * blocks.spatial;
  }
};

constexpr int64_t kGroupsPerPart = 4096;

// Writes the mask of a logical element or, if the mask is by row, of a whole
// item.
void WriteMask(const DropoutShape& shape, int64_t element, uint8_t kept,
               uint8_t* mask) {
  const ChannelBlocks& blocks = shape.blocks;
  if (shape.by_row) {
    const int64_t item = blocks.size() / shape.items;
    std::fill_n(mask + element * item, item, kept);
    return;
  }
  const int64_t s = element % blocks.spatial;
  const int64_t c = element / blocks.spatial % blocks.channels;
  const int64_t n = element / blocks.spatial / blocks.channels;
  const int64_t block = n * blocks.block_count() + c / blocks.block;
  mask[(block * blocks.spatial + s) * blocks.block + c % blocks.block] = kept;
}

void MakeMask(const DropoutShape& shape, const int64_t* randomness,
              uint8_t* mask, const RunContext& context) {
  const int64_t groups = (shape.elements() + 3) / 4;
  const uint64_t threshold = DropoutThreshold(shape.p);
  context.ForParts(
      (groups + kGroupsPerPart - 1) / kGroupsPerPart, [&](int64_t part) {
        const int64_t end = std::min(groups, (part + 1) * kGroupsPerPart);
        for (int64_t group = part * kGroupsPerPart; group < end; ++group) {
          const PhiloxBlock words =
              DropoutWords({randomness[0], randomness[1]}, shape.step, group);
          for (int64_t i = 0; i < 4 && group * 4 + i < shape.elements(); ++i) {
            WriteMask(shape, group * 4 + i, words[i] >= threshold ? 1 : 0,
                      mask);
          }
        }
      });
}

// y = x * mask / (1 - p); NaN and Inf stay NaN where the mask is 0.
void ApplyMask(const DropoutShape& shape, const std::byte* x,
               const uint8_t* mask, std::byte* y, const RunContext& context) {
  constexpr int64_t kPart = 1 << 16;
  const auto scale = static_cast<float>(1 / (1 - shape.p));
  const int64_t size = shape.blocks.size();
  const DataType dtype = shape.blocks.dtype;
  context.ForParts((size + kPart - 1) / kPart, [&](int64_t part) {
    const int64_t end = std::min(size, (part + 1) * kPart);
    for (int64_t i = part * kPart; i < end; ++i) {
      StoreElement(dtype,
                   LoadElement(dtype, x, i) * (mask[i] != 0 ? scale : 0.0f), y,
                   i);
    }
  });
}

class Dropout final : public NetworkGroup {
 public:
  Dropout(const convgrad::Program& program, const GroupSteps& steps)
      : step_(program.steps[steps.first]) {
    shape_.step = static_cast<int64_t>(steps.first);
    shape_.p = FloatAttribute(step_, "p");
    shape_.by_row = BoolAttribute(step_, "by_row");
  }

  void Forward(NetworkBuilder* builder) override {
    form_ = builder->Like(step_.result).form;
    const NetworkTensor x = builder->Value(step_.operands[0], form_);
    if (!BoolAttribute(step_, "training")) {
      builder->AddValue(step_.result, x.buffer);
      return;
    }
    shape_.blocks = x.blocks;
    shape_.items = x.dims[0];
    mask_ = builder->AddBuffer(x.blocks.size());
    const BufferId randomness = builder->Randomness();
    builder->Add("dropout", {randomness}, {mask_},
                 [=, shape = shape_, mask = mask_](const RunContext& context) {
                   // Writes padding as well, so that no byte is undefined.
                   std::fill_n(context.Write<uint8_t>(mask),
                               shape.blocks.size(), 0);
                   MakeMask(shape, context.Read<int64_t>(randomness),
                            context.Write<uint8_t>(mask), context);
                 });
    AddProduct(x.buffer, builder->AddValue(step_.result).buffer, builder);
  }

  void Backward(NetworkBuilder* builder) override {
    const BufferId dy = builder->GradientOf(step_.result).buffer;
    if (mask_ == kNoBuffer) {
      builder->AddGradient(step_.operands[0], dy, form_);
    } else {
      AddProduct(dy, builder->NewGradient(step_.operands[0], form_).buffer,
                 builder);
    }
  }

 private:
  void AddProduct(BufferId x, BufferId y, NetworkBuilder* builder) const {
    builder->Add("dropout", {x, mask_}, {y},
                 [=, shape = shape_, mask = mask_](const RunContext& context) {
                   ApplyMask(shape, context.At(x), context.Read<uint8_t>(mask),
                             context.At(y), context);
                 });
  }

  const ProgramStep& step_;
  DropoutShape shape_;
  Form form_ = Form::kImage;
  BufferId mask_ = kNoBuffer;
};

}  // namespace

std::vector<NetworkOperator> NetworkDropout() {
  return {{Operator::kDropout, &MakeOfStep<Dropout>}};
}

}  // namespace convgrad::onednn
