#include "tests/conformance/tensor_fill.h"

#include <algorithm>

namespace convgrad::testing_support {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kGuardBytes = 256;
constexpr std::byte kGuard{0xa5};

// splitmix64's finaliser (Vigna, public domain) gives unrelated numbers for
// neighbours.
uint64_t Hash(uint64_t seed, uint64_t position) {
  uint64_t z = (seed << 40) + (position + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<double> IntegerFill(int64_t count, uint64_t seed) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<int>(Hash(seed, i) % 8) - 4;
    values[i] = value < 0 ? value : value + 1;
  }
  return values;
}

std::vector<double> RealFill(int64_t count, uint64_t seed, DataType dtype) {
  std::vector<double> values(count);
  for (int64_t i = 0; i < count; ++i) {
    const double unit =
        static_cast<double>(Hash(seed, i) >> 11) / (int64_t{1} << 53);
    float bits;
    StoreRounded(dtype, 2 * unit - 1, &bits);
    values[i] = LoadAsDouble(dtype, &bits);
  }
  return values;
}

GuardedBuffer::GuardedBuffer(int64_t bytes, uint8_t fill)
    : storage_(bytes + 2 * kGuardBytes + kAlignment, kGuard), bytes_(bytes) {
  const auto address = reinterpret_cast<uintptr_t>(storage_.data());
  begin_ = kGuardBytes + (kAlignment - address % kAlignment) % kAlignment;
  std::fill_n(data(), bytes, std::byte{fill});
}

bool GuardedBuffer::GuardsIntact() const {
  const auto is_guard = [](std::byte byte) { return byte == kGuard; };
  return std::all_of(storage_.begin(), storage_.begin() + begin_, is_guard) &&
         std::all_of(storage_.begin() + begin_ + bytes_, storage_.end(),
                     is_guard);
}

std::vector<std::byte> GuardedBuffer::Bytes() const {
  return {data(), data() + bytes_};
}

}  // namespace convgrad::testing_support
