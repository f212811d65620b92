#include "server/memory/admission.h"

#include "gtest/gtest.h"
#include "server/memory/buffer_pool.h"

namespace convgrad {
namespace {

TEST(Admission, CoversMessageAndCopiesOfSixOperands) {
  for (int64_t size : {0, 1, 100, 4095, 65537, 1000001, 123456789}) {
    EXPECT_GE(AdmissionBytes(6 * size),
              6 * size + 6 * BufferPool::CapacityFor(size))
        << size;
  }
}

TEST(Admission, LargestAdmissibleFits) {
  for (int64_t capacity :
       {int64_t{0}, kCallOverheadBytes, kCallOverheadBytes + 17,
        int64_t{1} << 20, int64_t{123456789}, int64_t{1} << 40}) {
    const int64_t largest = LargestAdmissible(capacity);
    EXPECT_GE(largest, 0);
    if (largest > 0) {
      EXPECT_LE(AdmissionBytes(largest), capacity) << capacity;
      EXPECT_GT(AdmissionBytes(largest + 64), capacity) << capacity;
    }
  }
}

}  // namespace
}  // namespace convgrad
