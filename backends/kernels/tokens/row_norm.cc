#include "backends/kernels/tokens/row_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "backends/core/checked_math.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/tokens/row_norm.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/tokens/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

template <class T>
double MeanOf(const T* x, size_t length) {
  WideSum sum;
  ForWide(length,
          [&](auto d, size_t i) HWY_ATTR { sum.Add(d, LoadWide(d, x + i)); });
  return sum.total() / static_cast<double>(length);
}

template <class T>
double VarianceOf(const T* x, size_t length, double mean) {
  WideSum sum;
  ForWide(length, [&](auto d, size_t i) HWY_ATTR {
    const auto distance = hn::Sub(LoadWide(d, x + i), hn::Set(d, mean));
    sum.Add(d, hn::Mul(distance, distance));
  });
  return sum.total() / static_cast<double>(length);
}

// Gathers the elements of one row at a time.
template <class T>
class PlacedRows {
 public:
  PlacedRows(const RowPlaces& places, int64_t length)
      : places_(places), length_(length) {
    if (places.block == 0) return;
    blocks_ = (length + places.block - 1) / places.block;
    row_.resize(blocks_ * places.block);
  }

  // Returns the row, or a copy that lasts until the next call.
  const T* Load(const void* tensor, int64_t row) {
    const T* from = static_cast<const T*>(tensor);
    if (places_.block == 0) return from + row * length_;
    for (int64_t b = 0; b < blocks_; ++b) {
      std::copy_n(from + OffsetOf(row, b), places_.block,
                  row_.data() + b * places_.block);
    }
    return row_.data();
  }
  // Returns the memory to which to write the row's elements before Store.
  T* Place(void* tensor, int64_t row) {
    return places_.block == 0 ? static_cast<T*>(tensor) + row * length_
                              : row_.data();
  }
  void Store(void* tensor, int64_t row) const {
    for (int64_t b = 0; b < blocks_; ++b) {
      std::copy_n(row_.data() + b * places_.block, places_.block,
                  static_cast<T*>(tensor) + OffsetOf(row, b));
    }
  }

 private:
  int64_t OffsetOf(int64_t row, int64_t block) const {
    const int64_t image = row / places_.positions;
    const int64_t at = row % places_.positions;
    return ((image * blocks_ + block) * places_.positions + at) * places_.block;
  }

  const RowPlaces places_;
  const int64_t length_;
  int64_t blocks_ = 0;
  std::vector<T> row_;  // its padding is zeros
};

template <class T>
void ForwardRow(const RowNorm& norm, const RowNormForward& tensors, int64_t row,
                const T* x, T* y) {
  const auto length = static_cast<size_t>(norm.length);
  const double mean = norm.is_centred ? MeanOf(x, length) : 0;
  const double inverse = 1 / std::sqrt(VarianceOf(x, length, mean) + norm.eps);
  tensors.moments[2 * row] = mean;
  tensors.moments[2 * row + 1] = inverse;
  ForWide(length, [&](auto d, size_t i) HWY_ATTR {
    auto value = hn::Mul(hn::Sub(LoadWide(d, x + i), hn::Set(d, mean)),
                         hn::Set(d, inverse));
    if (tensors.weight != nullptr) {
      value = hn::Mul(value, LoadWide(d, tensors.weight + i));
    }
    if (tensors.bias != nullptr) {
      value = hn::Add(value, LoadWide(d, tensors.bias + i));
    }
    StoreWide(d, value, y + i);
  });
}

void ForwardRows(const RowNorm& norm, const RowNormForward& tensors,
                 int64_t begin, int64_t end) {
  WithElements(norm.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    PlacedRows<T> xs(norm.x, norm.length), ys(norm.y, norm.length);
    for (int64_t row = begin; row < end; ++row) {
      ForwardRow<T>(norm, tensors, row, xs.Load(tensors.x, row),
                    ys.Place(tensors.y, row));
      ys.Store(tensors.y, row);
    }
  });
}

// One row of a backward.
template <class T>
struct GradientRow {
  const T* dy;
  const T* x;
  const float* weight;
  double mean, inverse;
  size_t length;

  template <class D>
  HWY_INLINE hn::Vec<D> Normal(D d, size_t i) const {
    return hn::Mul(hn::Sub(LoadWide(d, x + i), hn::Set(d, mean)),
                   hn::Set(d, inverse));
  }
  // Returns the gradients of the normals.
  template <class D>
  HWY_INLINE hn::Vec<D> Weighted(D d, size_t i) const {
    const auto gradient = LoadWide(d, dy + i);
    return weight == nullptr ? gradient
                             : hn::Mul(gradient, LoadWide(d, weight + i));
  }
};

template <class T>
void WriteGradient(const GradientRow<T>& row, bool is_centred, T* dx) {
  WideSum sums, products;
  ForWide(row.length, [&](auto d, size_t i) HWY_ATTR {
    const auto weighted = row.Weighted(d, i);
    sums.Add(d, weighted);
    products.Add(d, hn::Mul(weighted, row.Normal(d, i)));
  });
  const auto length = static_cast<double>(row.length);
  const double sum = is_centred ? sums.total() / length : 0;
  const double product = products.total() / length;
  ForWide(row.length, [&](auto d, size_t i) HWY_ATTR {
    const auto mean =
        hn::MulAdd(row.Normal(d, i), hn::Set(d, product), hn::Set(d, sum));
    StoreWide(
        d, hn::Mul(hn::Sub(row.Weighted(d, i), mean), hn::Set(d, row.inverse)),
        dx + i);
  });
}

// Adds the row's terms to the sums of the weight's and the bias's gradients.
template <class T>
void AddColumns(const GradientRow<T>& row, double* weight, double* bias) {
  ForWide(row.length, [&](auto d, size_t i) HWY_ATTR {
    const auto gradient = LoadWide(d, row.dy + i);
    hn::StoreU(hn::Add(hn::LoadU(d, bias + i), gradient), d, bias + i);
    hn::StoreU(hn::MulAdd(gradient, row.Normal(d, i), hn::LoadU(d, weight + i)),
               d, weight + i);
  });
}

void BackwardRows(const RowNorm& norm, const RowNormBackward& tensors,
                  double* sums, int64_t begin, int64_t end) {
  WithElements(norm.dtype, [&](auto* element) {
    using T = std::remove_pointer_t<decltype(element)>;
    PlacedRows<T> xs(norm.x, norm.length), dys(norm.y, norm.length);
    PlacedRows<T> dxs(norm.x, norm.length);
    for (int64_t i = begin; i < end; ++i) {
      const GradientRow<T> row = {dys.Load(tensors.dy, i),
                                  xs.Load(tensors.x, i),
                                  tensors.weight,
                                  tensors.moments[2 * i],
                                  tensors.moments[2 * i + 1],
                                  static_cast<size_t>(norm.length)};
      if (tensors.dx != nullptr) {
        WriteGradient(row, norm.is_centred, dxs.Place(tensors.dx, i));
        dxs.Store(tensors.dx, i);
      }
      if (sums != nullptr) AddColumns(row, sums, sums + norm.length);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convgrad {
namespace {

HWY_EXPORT(ForwardRows);
HWY_EXPORT(BackwardRows);

// Returns the number of rows of a part, about 64 KiB.
int64_t RowsPerPart(const RowNorm& norm) {
  return std::max<int64_t>(16384 / norm.length, 1);
}

// Returns the number of parts of a backward: enough for the threads of a large
// machine, if each part has so many rows that adding the parts' sums takes
// little time.
int64_t BackwardParts(const RowNorm& norm) {
  return std::clamp<int64_t>(norm.rows / 64, 1, 32);
}

}  // namespace

int64_t RowNorm::scratch() const { return BackwardParts(*this) * 2 * length; }

void NormalizeRows(const RowNorm& norm, const RowNormForward& tensors,
                   RunParts run) {
  const int64_t rows = RowsPerPart(norm);
  run(CeilDiv(norm.rows, rows), [&](int64_t part) {
    HWY_DYNAMIC_DISPATCH(ForwardRows)
    (norm, tensors, part * rows, std::min((part + 1) * rows, norm.rows));
  });
}

void NormalizeRowsBackward(const RowNorm& norm, const RowNormBackward& tensors,
                           RunParts run) {
  const int64_t parts = BackwardParts(norm);
  const int64_t columns = 2 * norm.length;
  const bool sums =
      tensors.weight_gradient != nullptr || tensors.bias_gradient != nullptr;
  run(parts, [&](int64_t part) {
    double* own = sums ? tensors.scratch + part * columns : nullptr;
    if (sums) std::fill_n(own, columns, 0.0);
    HWY_DYNAMIC_DISPATCH(BackwardRows)
    (norm, tensors, own, norm.rows * part / parts,
     norm.rows * (part + 1) / parts);
  });
  const auto write = [&](float* to, int64_t first) {
    for (int64_t i = 0; to != nullptr && i < norm.length; ++i) {
      double total = 0;
      for (int64_t part = 0; part < parts; ++part) {
        total += tensors.scratch[part * columns + first + i];
      }
      to[i] = static_cast<float>(total);
    }
  };
  write(tensors.weight_gradient, 0);
  write(tensors.bias_gradient, norm.length);
}

}  // namespace convgrad
#endif  // HWY_ONCE
