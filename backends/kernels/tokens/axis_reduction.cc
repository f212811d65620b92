#include "backends/kernels/tokens/axis_reduction.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/kernels/operators/elements.h"

namespace convgrad {
namespace {

// Finds the rows of the operand, along its last axis, that belong to a row of
// the result.
class ReducedRows {
 public:
  explicit ReducedRows(const AxisReduction& reduction)
      : length(reduction.dims.back()),
        columns(reduction.kept.back()),
        kept_(reduction.kept.begin(), reduction.kept.end() - 1),
        reduced_(reduction.dims.begin(), reduction.dims.end() - 1),
        strides_(reduced_.size()) {
    int64_t stride = length;
    for (size_t i = reduced_.size(); i-- > 0;) {
      strides_[i] = stride;
      stride *= reduced_[i];
      if (kept_[i] != 1) reduced_[i] = 1;
    }
    terms_ = *CheckedProduct(reduced_);
    group = static_cast<double>(columns == 1 ? terms_ * length : terms_);
  }

  int64_t count() const { return *CheckedProduct(kept_); }
  // Calls body(element, column) with each element of the operand that belongs
  // to the row.
  template <class Body>
  void ForElements(int64_t row, const Body& body) const {
    const int64_t origin = OffsetOf(kept_, row);
    for (int64_t term = 0; term < terms_; ++term) {
      const int64_t first = origin + OffsetOf(reduced_, term);
      if (columns == 1) {
        for (int64_t i = 0; i < length; ++i) body(first + i, 0);
      } else {
        for (int64_t i = 0; i < length; ++i) body(first + i, i);
      }
    }
  }

  const int64_t length, columns;
  double group = 1;  // elements of one result

 private:
  int64_t OffsetOf(const Dims& extents, int64_t index) const {
    int64_t offset = 0;
    for (size_t i = extents.size(); i-- > 0;) {
      offset += index % extents[i] * strides_[i];
      index /= extents[i];
    }
    return offset;
  }

  Dims kept_, reduced_, strides_;
  int64_t terms_ = 1;
};

// Reads and writes elements of f32 or bf16.
template <DataType kDtype>
struct Elements {
  static double Load(const void* tensor, int64_t i) {
    return LoadElement(kDtype, static_cast<const std::byte*>(tensor), i);
  }
  static void Store(double value, void* tensor, int64_t i) {
    StoreElement(kDtype, static_cast<float>(value),
                 static_cast<std::byte*>(tensor), i);
  }
};

template <class E>
std::vector<double> SumsOf(const ReducedRows& rows, const void* x,
                           int64_t row) {
  std::vector<double> sums(rows.columns);
  rows.ForElements(
      row, [&](int64_t at, int64_t column) { sums[column] += E::Load(x, at); });
  return sums;
}

template <class E>
std::vector<double> MeansOf(const ReducedRows& rows, const void* x,
                            int64_t row) {
  std::vector<double> means = SumsOf<E>(rows, x, row);
  for (double& mean : means) mean /= rows.group;
  return means;
}

template <class E>
std::vector<double> SquaresOf(const ReducedRows& rows, const void* x,
                              int64_t row, const std::vector<double>& centers) {
  std::vector<double> squares(rows.columns);
  rows.ForElements(row, [&](int64_t at, int64_t column) {
    const double distance = E::Load(x, at) - centers[column];
    squares[column] += distance * distance;
  });
  return squares;
}

template <class E>
std::vector<double> MaximaOf(const ReducedRows& rows, const void* x,
                             int64_t row) {
  std::vector<double> maxima(rows.columns,
                             -std::numeric_limits<double>::infinity());
  rows.ForElements(row, [&](int64_t at, int64_t column) {
    const double value = E::Load(x, at);
    if (value > maxima[column] || std::isnan(value)) maxima[column] = value;
  });
  return maxima;
}

template <class E>
std::vector<double> ResultsOf(const AxisReduction& reduction,
                              const ReducedRows& rows, const void* x,
                              int64_t row) {
  switch (reduction.kind) {
    case Reduction::kMean:
      return MeansOf<E>(rows, x, row);
    case Reduction::kMaximum:
      return MaximaOf<E>(rows, x, row);
    case Reduction::kNorm: {
      auto norms =
          SquaresOf<E>(rows, x, row, std::vector<double>(rows.columns));
      for (double& norm : norms) norm = std::sqrt(norm);
      return norms;
    }
    case Reduction::kVariance: {
      auto variances = SquaresOf<E>(rows, x, row, MeansOf<E>(rows, x, row));
      const double freedom =
          rows.group - static_cast<double>(reduction.correction);
      for (double& variance : variances) variance /= std::max(freedom, 0.0);
      return variances;
    }
    default:
      return SumsOf<E>(rows, x, row);
  }
}

// Computes each element's share of the gradient of its result.
template <class E>
std::vector<double> SharesOf(const AxisReduction& reduction,
                             const ReducedRows& rows,
                             const ReductionGradient& tensors, int64_t row) {
  std::vector<double> shares(rows.columns), equal(rows.columns);
  const int64_t first = row * rows.columns;
  if (reduction.kind == Reduction::kMaximum) {
    rows.ForElements(row, [&](int64_t at, int64_t column) {
      const bool is_largest =
          E::Load(tensors.x, at) == E::Load(tensors.y, first + column);
      equal[column] += is_largest ? 1 : 0;
    });
  }
  for (int64_t i = 0; i < rows.columns; ++i) {
    const double dy = E::Load(tensors.dy, first + i);
    shares[i] = dy;
    if (reduction.kind == Reduction::kMean) shares[i] = dy / rows.group;
    if (reduction.kind == Reduction::kMaximum) shares[i] = dy / equal[i];
    if (reduction.kind == Reduction::kVariance) {
      shares[i] =
          2 * dy / (rows.group - static_cast<double>(reduction.correction));
    }
    if (reduction.kind == Reduction::kNorm) {
      const double y = E::Load(tensors.y, first + i);
      shares[i] = y == 0 ? 0 : dy / y;
    }
  }
  return shares;
}

template <class E>
void WriteGradients(const AxisReduction& reduction, const ReducedRows& rows,
                    const ReductionGradient& tensors, int64_t row) {
  const std::vector<double> shares = SharesOf<E>(reduction, rows, tensors, row);
  std::vector<double> means(rows.columns);
  if (reduction.kind == Reduction::kVariance) {
    means = MeansOf<E>(rows, tensors.x, row);
  }
  const int64_t first = row * rows.columns;
  rows.ForElements(row, [&](int64_t at, int64_t column) {
    double factor = 1;
    if (reduction.kind == Reduction::kMaximum) {
      factor = E::Load(tensors.x, at) == E::Load(tensors.y, first + column);
    } else if (reduction.kind >= Reduction::kNorm) {
      factor = E::Load(tensors.x, at) - means[column];
    }
    E::Store(shares[column] * factor, tensors.dx, at);
  });
}

// Calls body(an Elements).
template <class Body>
void WithElementsOf(DataType dtype, const Body& body) {
  if (dtype == DataType::kBF16) {
    body(Elements<DataType::kBF16>());
  } else {
    body(Elements<DataType::kF32>());
  }
}

}  // namespace

void ReduceAxes(const AxisReduction& reduction, const void* x, void* y,
                RunParts run) {
  const ReducedRows rows(reduction);
  run(rows.count(), [&](int64_t row) {
    WithElementsOf(reduction.dtype, [&](auto elements) {
      using E = decltype(elements);
      const auto results = ResultsOf<E>(reduction, rows, x, row);
      for (int64_t i = 0; i < rows.columns; ++i) {
        E::Store(results[i], y, row * rows.columns + i);
      }
    });
  });
}

void ReduceAxesGradient(const AxisReduction& reduction,
                        const ReductionGradient& tensors, RunParts run) {
  const ReducedRows rows(reduction);
  run(rows.count(), [&](int64_t row) {
    WithElementsOf(reduction.dtype, [&](auto elements) {
      WriteGradients<decltype(elements)>(reduction, rows, tensors, row);
    });
  });
}

}  // namespace convgrad
