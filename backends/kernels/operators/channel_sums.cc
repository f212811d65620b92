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

enum class Kind { kSquares, kProducts, kMasked, kMaskedSum };

// Selects the terms of the sums, and whether the masked tensor bypasses the
// caches.
template <Kind kKindOf, Activation kActivationOf = Activation::kNone,
          bool kStreamOf = false>
struct Terms {
  static constexpr Kind kKind = kKindOf;
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
    middle[v] = hn::LoadU(d, center + at);
    sum[v] = hn::LoadU(d, sums + at);
    product[v] = hn::LoadU(d, products + at);
  }
  for (int64_t r = 0; r < rows.count; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      const size_t at = r * rows.pitch + c + v * hn::Lanes(d);
      // The CPU prefetches a single stream too late; this prefetch saves 20 %.
      if constexpr (Terms::kKind == Kind::kSquares)
        hwy::Prefetch(rows.a + at + 256);
      auto a =
          hn::PromoteTo(d, Counted<Terms>(df, rows, at, c + v * hn::Lanes(d),
                                          LoadElements(df, rows.a + at)));
      if constexpr (Terms::kKind == Kind::kSquares) {
        a = hn::Sub(a, middle[v]);
        product[v] = hn::MulAdd(a, a, product[v]);
      } else {
        const auto b = hn::PromoteTo(d, LoadElements(df, rows.b + at));
        product[v] = hn::MulAdd(a, hn::Sub(b, middle[v]), product[v]);
      }
      sum[v] = hn::Add(sum[v], a);
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const size_t at = c + v * hn::Lanes(d);
    hn::StoreU(sum[v], d, sums + at);
    hn::StoreU(product[v], d, products + at);
  }
}

template <class Terms, class T>
void AddRows(const Rows<T>& rows, size_t channels, const double* center,
             double* sums, double* products) {
  const hn::CappedTag<double, 8> wide;
  const hn::CappedTag<double, 1> single;
  const size_t lanes = hn::Lanes(wide);
  size_t c = 0;
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

template <class Terms, class T>
void AddRun(const ChannelBlocks& blocks, const ChannelTerms& terms,
            const RowRun& run, double* sums, double* products) {
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
    AddRows<Terms>(rows, blocks.block, terms.center + first, sums, products);
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
  WithElements(blocks.dtype, [&](auto* element) HWY_ATTR {
    using T = std::remove_pointer_t<decltype(element)>;
    if (terms.b == nullptr) {
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

int64_t SumScratch(const ChannelBlocks& blocks) {
  return 2 * ChannelParts(blocks).pieces() * blocks.padded_channels();
}

void SumTerms(const ChannelBlocks& blocks, const ChannelTerms& terms,
              double* scratch, RunParts run, double* sum, double* product) {
  const ChannelParts parts(blocks);
  const int64_t padded = blocks.padded_channels();
  double* sums = scratch;
  double* products = scratch + parts.pieces() * padded;
  run(parts.count(), [&](int64_t part) {
    const int64_t at =
        part % parts.pieces() * padded + part / parts.pieces() * blocks.block;
    std::fill_n(sums + at, blocks.block, 0.0);
    std::fill_n(products + at, blocks.block, 0.0);
    parts.ForEachRun(part, [&](const RowRun& rows) {
      HWY_DYNAMIC_DISPATCH(AddTerms)
      (blocks, terms, rows, sums + at, products + at);
    });
  });
  std::fill_n(sum, padded, 0.0);
  std::fill_n(product, padded, 0.0);
  for (int64_t piece = 0; piece < parts.pieces(); ++piece) {
    for (int64_t c = 0; c < padded; ++c) {
      sum[c] += sums[piece * padded + c];
      product[c] += products[piece * padded + c];
    }
  }
}

}  // namespace convgrad
#endif  // HWY_ONCE
