#include "backends/kernels/operators/channel_sums.h"

#include <algorithm>

#include "backends/kernels/operators/channel_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/kernels/operators/channel_sums.cc"
#include <hwy/foreach_target.h>

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {
namespace {

enum class Kind { kSum, kSquares, kProducts, kMasked, kMaskedSum };

// Selects the terms of the sums, and whether the masked tensor bypasses the
// caches.
template <Kind kKindOf, Activation kActivationOf = Activation::kNone,
          bool kStreamOf = false>
struct Terms {
  static constexpr Kind kKind = kKindOf;
  static constexpr bool kHasProducts = kKind != Kind::kSum;
  static constexpr Activation kActivation = kActivationOf;
  static constexpr bool kStream = kStreamOf;
};

template <class T>
struct Rows {
  const T* a;
  const T* b;
  const T* mask;
  const T* more;
  T* masked;
  ChannelScale numbers;
  int64_t count;
  int64_t pitch;
};

// Returns the elements of `a` from `at` on, with channels from c on, with the
// masked ones replaced by 0.
template <class Terms, class D, class T>
HWY_INLINE hn::Vec<D> Counted(D d, const Rows<T>& rows, size_t at, size_t c,
                              hn::Vec<D> a) {
  if constexpr (Terms::kActivation != Activation::kNone) {
    const auto x = hn::Sub(LoadElements(d, rows.b + at),
                           hn::LoadU(d, rows.numbers.center + c));
    const auto y = hn::MulAdd(x, hn::LoadU(d, rows.numbers.scale + c),
                              hn::LoadU(d, rows.numbers.shift + c));
    a = RectifyGradient<Terms::kActivation>(d, y, a);
  }
  if constexpr (Terms::kKind == Kind::kMaskedSum) {
    a = RoundedTo<T>(d, hn::Add(a, LoadElements(d, rows.more + at)));
  }
  if constexpr (Terms::kKind == Kind::kMasked ||
                Terms::kKind == Kind::kMaskedSum) {
    const auto mask = LoadElements(d, rows.mask + at);
    a = RectifyGradient<Activation::kRelu>(d, mask, a);
    StoreElements<Terms::kStream>(d, a, rows.masked + at);
  }
  return a;
}

// Adds the terms of kVectors * Lanes(d) channels, from channel c on. Products
// of f32 are exact in double.
template <class Terms, int kVectors, class D, class T>
HWY_INLINE void AddChannels(D d, const Rows<T>& rows, size_t c,
                            const double* center, double* sums,
                            double* products) {
  const hn::Rebind<float, D> df;
  hn::Vec<D> middle[kVectors], sum[kVectors], product[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const size_t at = c + v * hn::Lanes(d);
    sum[v] = hn::LoadU(d, sums + at);
    if constexpr (Terms::kHasProducts) {
      middle[v] = hn::LoadU(d, center + at);
      product[v] = hn::LoadU(d, products + at);
    }
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = r * rows.pitch + c + v * hn::Lanes(d);
      // The CPU prefetches a single stream too late; this prefetch saves 20 %.
      if constexpr (Terms::kKind == Kind::kSum ||
                    Terms::kKind == Kind::kSquares) {
        hwy::Prefetch(rows.a + at + 256);
      }
      auto a =
          hn::PromoteTo(d, Counted<Terms>(df, rows, at, c + v * hn::Lanes(d),
                                          LoadElements(df, rows.a + at)));
      if constexpr (Terms::kKind == Kind::kSquares) {
        a = hn::Sub(a, middle[v]);
        product[v] = hn::MulAdd(a, a, product[v]);
      } else if constexpr (Terms::kHasProducts) {
        const auto b = hn::PromoteTo(d, LoadElements(df, rows.b + at));
        product[v] = hn::MulAdd(a, hn::Sub(b, middle[v]), product[v]);
      }
      sum[v] = hn::Add(sum[v], a);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const size_t at = c + v * hn::Lanes(d);
    hn::StoreU(sum[v], d, sums + at);
    if constexpr (Terms::kHasProducts) {
      hn::StoreU(product[v], d, products + at);
    }
  }
}

template <class Terms, class T>
void AddRows(const Rows<T>& rows, size_t channels, const double* center,
             double* sums, double* products) {
  const hn::CappedTag<double, 8> wide;
  const hn::CappedTag<double, 1> single;
  const size_t lanes = hn::Lanes(wide);
  size_t c = 0;
  // Independent additions overlap.
  if constexpr (!Terms::kHasProducts) {
    for (; c + 4 * lanes <= channels; c += 4 * lanes) {
      AddChannels<Terms, 4>(wide, rows, c, center, sums, products);
    }
  }
  for (; c + 2 * lanes <= channels; c += 2 * lanes) {
    AddChannels<Terms, 2>(wide, rows, c, center, sums, products);
  }
  for (; c + lanes <= channels; c += lanes) {
    AddChannels<Terms, 1>(wide, rows, c, center, sums, products);
  }
  for (; c < channels; ++c) {
    AddChannels<Terms, 1>(single, rows, c, center, sums, products);
  }
}

// Returns the sum of elements of one channel.
template <class T>
double SumElements(const T* elements, int64_t count) {
  const hn::CappedTag<double, 8> wide;
  const hn::CappedTag<double, 1> single;
  constexpr int kVectors = 4;  // whose additions overlap
  const auto lanes = static_cast<int64_t>(hn::Lanes(wide));
  const auto load = [&](auto d, int64_t at) HWY_ATTR {
    const hn::Rebind<float, decltype(d)> df;
    return hn::PromoteTo(d, LoadElements(df, elements + at));
  };
  hn::Vec<decltype(wide)> sum[kVectors];
  for (auto& part : sum) part = hn::Zero(wide);
  int64_t i = 0;
  for (; i + kVectors * lanes <= count; i += kVectors * lanes) {
    hwy::Prefetch(elements + i + 256);
    for (int v = 0; v < kVectors; ++v) {
      sum[v] = hn::Add(sum[v], load(wide, i + v * lanes));
    }
  }
  for (; i + lanes <= count; i += lanes) {
    sum[0] = hn::Add(sum[0], load(wide, i));
  }
  sum[0] = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  double total = hn::GetLane(hn::SumOfLanes(wide, sum[0]));
  for (; i < count; ++i) total += hn::GetLane(load(single, i));
  return total;
}

template <class Terms, class T>
void AddRun(const ChannelBlocks& blocks, const ChannelTerms& terms,
            const RowRun& run, double* sums, double* products) {
  if constexpr (!Terms::kHasProducts) {
    if (blocks.block == 1) {
      *sums += SumElements(Moved<const T>(terms.a, run.offset), run.rows);
      return;
    }
  }
  const int64_t first = run.block_index * blocks.block;
  ChannelScale numbers = {};
  if (Terms::kActivation != Activation::kNone) {
    numbers = {terms.numbers->center + first, terms.numbers->scale + first,
               terms.numbers->shift + first};
  }
  const int64_t step = RowsOfSum(blocks);
  for (int64_t row = 0; row < run.rows; row += step) {
    const int64_t at = run.offset + row * blocks.block;
    const Rows<T> rows{
        Moved<const T>(terms.a, at),    Moved<const T>(terms.b, at),
        Moved<const T>(terms.mask, at), Moved<const T>(terms.more, at),
        Moved<T>(terms.masked, at),     numbers,
        std::min(step, run.rows - row), blocks.block};
    AddRows<Terms>(rows, blocks.block, Moved<const double>(terms.center, first),
                   sums, products);
  }
}

template <Kind kKind, class T>
void AddMaskedRun(const ChannelBlocks& blocks, const ChannelTerms& terms,
                  const RowRun& run, double* sums, double* products) {
  const auto* masked = static_cast<const T*>(terms.masked);
  Streamed(blocks, masked, [&](auto stream) HWY_ATTR {
    AddRun<Terms<kKind, Activation::kNone, stream()>, T>(blocks, terms, run,
                                                         sums, products);
  });
}

void AddTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              const RowRun& run, double* sums, double* products) {
  if (blocks.dtype == DataType::kF16) {
    return AddRun<Terms<Kind::kSum>, hwy::float16_t>(blocks, terms, run, sums,
                                                     products);
  }
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    if (products == nullptr) {
      AddRun<Terms<Kind::kSum>, T>(blocks, terms, run, sums, products);
    } else if (terms.b == nullptr) {
      AddRun<Terms<Kind::kSquares>, T>(blocks, terms, run, sums, products);
    } else if (terms.mask == nullptr) {
      WithRectifier(terms.activation, [&](auto kind) HWY_ATTR {
        AddRun<Terms<Kind::kProducts, kind()>, T>(blocks, terms, run, sums,
                                                  products);
      });
    } else if (terms.more == nullptr) {
      AddMaskedRun<Kind::kMasked, T>(blocks, terms, run, sums, products);
    } else {
      AddMaskedRun<Kind::kMaskedSum, T>(blocks, terms, run, sums, products);
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

HWY_EXPORT(AddTerms);

}  // namespace

int64_t SumScratch(const ChannelBlocks& blocks, int sums) {
  // The first piece's sums are written to the result.
  return std::max<int64_t>(ChannelParts(blocks).pieces() - 1, 0) * sums *
         blocks.padded_channels();
}

void SumTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              double* scratch, RunParts run, double* sum, double* product) {
  const ChannelParts parts(blocks);
  const int64_t padded = blocks.padded_channels();
  const int64_t results = product == nullptr ? 1 : 2;
  const auto sums_of = [&](int64_t piece, int64_t first) -> ChannelSums {
    double* own = piece == 0 ? sum : scratch + (piece - 1) * results * padded;
    double* products = piece == 0 ? product : own + padded;
    return {own + first, product == nullptr ? nullptr : products + first};
  };
  const auto clear = [](const ChannelSums& sums, int64_t count) {
    std::fill_n(sums.sum, count, 0.0);
    if (sums.product != nullptr) std::fill_n(sums.product, count, 0.0);
  };
  if (parts.count() == 0) clear({sum, product}, padded);
  run(parts.count(), [&](int64_t part) {
    const ChannelSums own =
        sums_of(part % parts.pieces(), part / parts.pieces() * blocks.block);
    clear(own, blocks.block);
    parts.ForEachRun(part, [&](const RowRun& rows) {
      HWY_DYNAMIC_DISPATCH(AddTerms)
      (blocks, terms, rows, own.sum, own.product);
    });
  });
  for (int64_t piece = 1; piece < parts.pieces(); ++piece) {
    const ChannelSums more = sums_of(piece, 0);
    for (int64_t c = 0; c < padded; ++c) {
      sum[c] += more.sum[c];
      if (product != nullptr) product[c] += more.product[c];
    }
  }
}

}  // namespace convgrad
#endif  // HWY_ONCE
