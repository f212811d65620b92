// Loads and stores vectors of doubles along a row of f32 or bf16 elements, for
// files that highway compiles once per CPU type. Only such files may include
// this header, outside their namespaces.
#if defined(CONVGRAD_ROW_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVGRAD_ROW_VECTORS_INL_H_
#undef CONVGRAD_ROW_VECTORS_INL_H_
#else
#define CONVGRAD_ROW_VECTORS_INL_H_
#endif

#include "backends/kernels/operators/channel_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convgrad {
namespace HWY_NAMESPACE {

// Return vectors of elements as doubles, and store them: rounded to f32, then
// to the elements' type.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadWide(D d, const T* p) {
  return hn::PromoteTo(d, LoadElements(hn::Rebind<float, D>(), p));
}

template <class D, class T>
HWY_INLINE void StoreWide(D /*d*/, hn::Vec<D> value, T* p) {
  const hn::Rebind<float, D> narrow;
  StoreElements(narrow, hn::DemoteTo(narrow, value), p);
}

// Calls body(d, i) so that vectors of d's lanes from element i on cover
// [0, count). The first argument of all but the last calls has the most lanes.
template <class Body>
HWY_INLINE void ForWide(size_t count, const Body& body) {
  const hn::CappedTag<double, 8> wide;
  const hn::CappedTag<double, 1> single;
  size_t i = 0;
  for (; i + hn::Lanes(wide) <= count; i += hn::Lanes(wide)) body(wide, i);
  for (; i < count; ++i) body(single, i);
}

// Adds up terms in an order that depends only on the numbers of lanes and
// terms. Its terms are those that ForWide visits.
class WideSum {
 public:
  // A default member initializer has no target's attribute.
  HWY_INLINE WideSum() : sums_(hn::Zero(Wide())) {}

  template <class D>
  HWY_INLINE void Add(D /*d*/, hn::Vec<D> terms) {
    if constexpr (hn::MaxLanes(D()) == 1) {
      rest_ += hn::GetLane(terms);
    } else {
      sums_ = hn::Add(sums_, terms);
    }
  }
  HWY_INLINE double total() const {
    return hn::GetLane(hn::SumOfLanes(Wide(), sums_)) + rest_;
  }

 private:
  using Wide = hn::CappedTag<double, 8>;

  hn::Vec<Wide> sums_;
  double rest_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace convgrad
HWY_AFTER_NAMESPACE();

#endif  // CONVGRAD_ROW_VECTORS_INL_H_
