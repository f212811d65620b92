// These functions choose the elements of a large result that are checked.
#include <algorithm>
#include <random>

#include "tests/cases/oracle/element_oracle.h"

namespace convgrad::testing_support {
namespace {

constexpr int64_t kMostGroups = 256;
constexpr int64_t kMostBiasElements = 8192;
constexpr int kPointsOnBorder = 8;

// `Chooser` draws elements of one result.
class Chooser {
 public:
  Chooser(const ConvProblem& problem, Result which)
      : dims_(DimsOf(problem, which)),
        groups_(problem.groups),
        group_axis_(which == Result::kGradWeight ? 0 : 1),
        random_(static_cast<uint32_t>(which) + 17) {}

  std::vector<Dims> Choose(int64_t target) {
    int64_t count = 1;
    for (int64_t extent : dims_) count *= extent;
    const int64_t most = dims_.size() < 2 ? kMostBiasElements : 2 * target;
    if (count <= most) return All(count);
    AddCorners();
    AddBorders();
    AddGroups();
    while (static_cast<int64_t>(chosen_.size()) < target) {
      chosen_.push_back(Random());
    }
    return std::move(chosen_);
  }

 private:
  std::vector<Dims> All(int64_t count) const {
    std::vector<Dims> all;
    for (int64_t i = 0; i < count; ++i) {
      Dims index(dims_.size());
      int64_t rest = i;
      for (size_t axis = dims_.size(); axis-- > 0;) {
        index[axis] = rest % dims_[axis];
        rest /= dims_[axis];
      }
      all.push_back(index);
    }
    return all;
  }

  Dims Random() {
    Dims index;
    for (int64_t extent : dims_) index.push_back(random_() % extent);
    return index;
  }

  // Adds all corners, including those of the first two axes.
  void AddCorners() {
    for (int mask = 0; mask < 1 << dims_.size(); ++mask) {
      Dims index;
      for (size_t axis = 0; axis < dims_.size(); ++axis) {
        index.push_back(mask >> axis & 1 ? dims_[axis] - 1 : 0);
      }
      chosen_.push_back(index);
    }
  }

  void AddBorders() {
    for (size_t axis = 2; axis < dims_.size(); ++axis) {
      for (int64_t side : {int64_t{0}, dims_[axis] - 1}) {
        for (int i = 0; i < kPointsOnBorder; ++i) {
          chosen_.push_back(Random());
          chosen_.back()[axis] = side;
        }
      }
    }
  }

  // Adds the ends of groups; a weight's other channel axis also takes its ends.
  void AddGroups() {
    if (dims_.size() < 2) return;
    const int64_t per_group = dims_[group_axis_] / groups_;
    const int64_t looked_at = std::min(groups_, kMostGroups);
    for (int64_t i = 0; i < looked_at; ++i) {
      const int64_t group =
          looked_at == 1 ? 0 : i * (groups_ - 1) / (looked_at - 1);
      for (int64_t channel : {int64_t{0}, per_group - 1}) {
        chosen_.push_back(Random());
        Dims& index = chosen_.back();
        index[group_axis_] = group * per_group + channel;
        if (group_axis_ == 0) index[1] = random_() % 2 ? dims_[1] - 1 : 0;
      }
    }
  }

  const Dims dims_;
  const int64_t groups_;
  const size_t group_axis_;
  std::mt19937 random_;
  std::vector<Dims> chosen_;
};

}  // namespace

std::vector<Dims> ChooseElements(const ConvProblem& problem, Result which,
                                 int target) {
  return Chooser(problem, which).Choose(target);
}

}  // namespace convgrad::testing_support
