#include "backends/onednn/networks/steps/convolutions/network_conv_taps.h"

#include <algorithm>
#include <vector>

#include "backends/onednn/execution/onednn_library_step.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_descs.h"
#include "backends/onednn/networks/steps/convolutions/network_conv_pass.h"

namespace convgrad::onednn {
namespace {

constexpr int64_t kFloat = sizeof(float);

// Copies of what the taps see cost as much as the products of some channels,
// and all of this is in vain where they see most of the image.
constexpr int64_t kLeastChannels = 32;
constexpr double kMostSeen = 0.8, kMostSeenBesideWinograd = 0.7;
// Bound the steps of a plan, whose number planning takes quadratic time in.
constexpr int64_t kMostTaps = 9;
constexpr size_t kMostSteps = 2000;

// The positions of an image at which a tap sees no padding, along an axis.
struct Range {
  int64_t y, x;  // the first of them in the output and in the input
  int64_t count;
};

Range RangeOf(const SpatialAxis& axis, int64_t element) {
  const auto [begin, end] = OutputsOf(AxisOf(axis), element);
  const int64_t offset = element * axis.dilation - axis.pad_begin;
  return {begin, begin + offset, end - begin};
}

struct Tap {
  int64_t number;  // in the row-major kernel
  Range rows, columns;
  int64_t area() const { return rows.count * columns.count; }
};

int64_t TapCount(const ConvProblem& problem) {
  return problem.axes[0].kernel * problem.axes[1].kernel;
}

// Returns the taps that see an element of the image. Sorts them by the number
// of elements that they see, the largest first.
std::vector<Tap> TapsOf(const ConvProblem& problem) {
  std::vector<Tap> taps;
  const SpatialAxis& rows = problem.axes[0];
  const SpatialAxis& columns = problem.axes[1];
  for (int64_t i = 0; i < TapCount(problem); ++i) {
    const Tap tap = {i, RangeOf(rows, i / columns.kernel),
                     RangeOf(columns, i % columns.kernel)};
    if (tap.area() > 0) taps.push_back(tap);
  }
  std::stable_sort(taps.begin(), taps.end(), [](const Tap& a, const Tap& b) {
    return a.area() > b.area();
  });
  return taps;
}

bool IsWhole(const Tap& tap, const ConvProblem& problem) {
  const auto is_whole = [](const Range& range, const SpatialAxis& axis) {
    return range.count == axis.in && range.count == axis.out;
  };
  return is_whole(tap.rows, problem.axes[0]) &&
         is_whole(tap.columns, problem.axes[1]);
}

// The part of a tensor in blocks that a tap sees.
struct Part {
  const NetworkTensor& tensor;
  int64_t first_row, first_column;
  int64_t rows, columns;

  int64_t width() const { return tensor.dims[3]; }
  int64_t block() const { return tensor.blocks.block; }
  int64_t planes() const {
    return tensor.blocks.batch * tensor.blocks.block_count();
  }
  int64_t plane_size() const { return tensor.blocks.spatial * block(); }
  int64_t row_size() const { return width() * block(); }
  // Offset of the first element, in elements.
  int64_t first() const {
    return first_row * row_size() + first_column * block();
  }
  // Returns a tensor of the part alone, without memory.
  NetworkTensor Alone() const {
    return TensorLike({tensor.dims[0], tensor.dims[1], rows, columns},
                      DataType::kF32, Form::kImage, block());
  }
};

Part PartOfX(const NetworkTensor& x, const Tap& tap) {
  return {x, tap.rows.x, tap.columns.x, tap.rows.count, tap.columns.count};
}
Part PartOfY(const NetworkTensor& y, const Tap& tap) {
  return {y, tap.rows.y, tap.columns.y, tap.rows.count, tap.columns.count};
}

// Appends a copy of the part, and returns it.
NetworkTensor AddCopyOf(const Part& part, Schedule* schedule) {
  NetworkTensor copy = part.Alone();
  copy.buffer = schedule->AddBuffer(copy.blocks.bytes());
  const int64_t row = part.columns * part.block();
  const PhysicalLayout from = {{{part.planes(), part.plane_size()},
                                {part.rows, part.row_size()},
                                {row, 1}}};
  const PhysicalLayout to = {
      {{part.planes(), part.rows * row}, {part.rows, row}, {row, 1}}};
  AddReorder({from, DataType::kF32,
              Location(part.tensor.buffer).At(part.first() * kFloat)},
             {to, DataType::kF32, copy.buffer}, schedule);
  return copy;
}

// Appends a step that adds `numbers`, which lie like part.Alone(), to the part.
void AddSum(BufferId numbers, const Part& part, absl::string_view kind,
            Schedule* schedule) {
  const int64_t rows = part.rows, row = part.columns * part.block();
  const int64_t plane_size = part.plane_size(), row_size = part.row_size();
  const Location to = Location(part.tensor.buffer).At(part.first() * kFloat);
  schedule->Add(kind, {numbers, to.buffer}, {to.buffer},
                [=, planes = part.planes()](const RunContext& context) {
                  context.ForParts(planes, [&](int64_t plane) {
                    const float* from =
                        context.Read<float>(numbers) + plane * rows * row;
                    float* sums = context.Write<float>(to) + plane * plane_size;
                    for (int64_t i = 0; i < rows; ++i) {
                      for (int64_t j = 0; j < row; ++j) sums[j] += from[j];
                      from += row;
                      sums += row_size;
                    }
                  });
                });
}

// Returns the 1x1 convolution of the part of the image that a tap sees.
ConvProblem ProblemOf(const Tap& tap, const ConvProblem& problem) {
  ConvProblem alone = problem;
  for (size_t i = 0; i < alone.axes.size(); ++i) {
    const int64_t count = (i == 0 ? tap.rows : tap.columns).count;
    alone.axes[i] = {.in = count, .out = count};
  }
  return alone;
}

int64_t WeightsOfTap(const ConvProblem& problem) {
  return problem.out_channels * problem.in_channels;
}
// Weights of one tap after the other.
Elements TapAfterTap(const ConvProblem& problem, BufferId weights) {
  const int64_t count = WeightsOfTap(problem);
  return {{{{count, 1}, {TapCount(problem), count}}}, DataType::kF32, weights};
}
Elements RowMajor(const ConvProblem& problem, BufferId weights) {
  const int64_t taps = TapCount(problem);
  return {
      {{{WeightsOfTap(problem), taps}, {taps, 1}}}, DataType::kF32, weights};
}
BufferId AddWeightBuffer(const ConvProblem& problem, Schedule* schedule) {
  return schedule->AddArray<float>(WeightsOfTap(problem) * TapCount(problem));
}

// Appends the passes of the taps.
class Taps {
 public:
  Taps(const FastPass& pass, absl::string_view kind, const std::string& name,
       Schedule* schedule)
      : pass_(pass),
        problem_(pass.problem),
        kind_(kind),
        name_(name),
        schedule_(*schedule),
        weights_(AddWeightBuffer(pass.problem, schedule)) {}

  // Appends a forward or a backward-data: the tap that sees all writes the
  // result, and the others add to it.
  void AddSums() {
    AddReorder(RowMajor(problem_, pass_.weight),
               TapAfterTap(problem_, weights_), &schedule_);
    for (const Tap& tap : TapsOf(problem_)) {
      if (IsWhole(tap, problem_)) {
        Add(tap, pass_.x, pass_.y, pass_.bias);
        continue;
      }
      const Part x = PartOfX(pass_.x, tap), y = PartOfY(pass_.y, tap);
      const bool is_forward = pass_.pass == Pass::kForward;
      const NetworkTensor from = AddCopyOf(is_forward ? x : y, &schedule_);
      NetworkTensor to = (is_forward ? y : x).Alone();
      to.buffer = schedule_.AddBuffer(to.blocks.bytes());
      Add(tap, is_forward ? from : to, is_forward ? to : from);
      AddSum(to.buffer, is_forward ? y : x, kind_, &schedule_);
    }
  }

  // Appends a backward-weight: taps that see padding only have zeros.
  void AddGradients() {
    const std::vector<Tap> taps = TapsOf(problem_);
    if (static_cast<int64_t>(taps.size()) < TapCount(problem_)) {
      AddZeros(kind_, weights_, &schedule_);
    }
    for (const Tap& tap : taps) {
      const bool is_whole = IsWhole(tap, problem_);
      Add(tap,
          is_whole ? pass_.x : AddCopyOf(PartOfX(pass_.x, tap), &schedule_),
          is_whole ? pass_.y : AddCopyOf(PartOfY(pass_.y, tap), &schedule_));
    }
    AddReorder(TapAfterTap(problem_, weights_),
               RowMajor(problem_, pass_.weight), &schedule_);
  }

 private:
  void Add(const Tap& tap, const NetworkTensor& x, const NetworkTensor& y,
           BufferId bias = kNoBuffer) {
    const ConvProblem alone = ProblemOf(tap, problem_);
    const LibraryTensor weight = {
        {weights_, tap.number * WeightsOfTap(problem_) * kFloat},
        PlainWeightDesc(alone)};
    AddConvPass({.pass = pass_.pass,
                 .problem = alone,
                 .data = TensorOf(x),
                 .weight = weight,
                 .out = TensorOf(y),
                 .bias = bias,
                 .kind = kind_,
                 .macs = static_cast<double>(MultiplyAdds(alone)),
                 .name = name_},
                &schedule_);
  }

  const FastPass& pass_;
  const ConvProblem& problem_;
  const absl::string_view kind_;
  const std::string& name_;
  Schedule& schedule_;
  // The weights or their gradients, tap after tap.
  const BufferId weights_;
};

}  // namespace

bool IsFastByTaps(const FastPass& pass, bool has_winograd,
                  size_t steps_before) {
  const ConvProblem& problem = pass.problem;
  const auto is_dilated = [](const SpatialAxis& axis) {
    return axis.kernel > 1 && axis.dilation > 1 && axis.stride == 1;
  };
  if (problem.axes.size() != 2 || problem.groups != 1 || problem.transposed ||
      !std::all_of(problem.axes.begin(), problem.axes.end(), is_dilated) ||
      !HasF32Blocks(pass) || problem.batch == 0 ||
      TapCount(problem) > kMostTaps || steps_before > kMostSteps ||
      std::min(problem.in_channels, problem.out_channels) < kLeastChannels) {
    return false;
  }
  const std::vector<Tap> taps = TapsOf(problem);
  if (taps.empty() || !IsWhole(taps[0], problem)) return false;
  int64_t seen = 0;
  for (const Tap& tap : taps) seen += tap.area();
  return static_cast<double>(seen) <=
         (has_winograd ? kMostSeenBesideWinograd : kMostSeen) *
             static_cast<double>(TapCount(problem) * taps[0].area());
}

void AddByTaps(const FastPass& pass, absl::string_view kind,
               const std::string& name, Schedule* schedule) {
  Taps taps(pass, kind, name, schedule);
  if (pass.pass == Pass::kBackwardWeight) {
    taps.AddGradients();
  } else {
    taps.AddSums();
  }
}

}  // namespace convgrad::onednn
