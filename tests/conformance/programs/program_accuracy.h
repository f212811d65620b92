// How near results of a program have to come to float64.
//
// The bound is measured, not derived by hand, so that it knows how much each
// program amplifies errors: the program is evaluated in double with every
// number that a step reads or writes off by a random relative error of at most
// its unit roundoff, several times. To first order in the roundoff that is what
// correct rounding does, sums in f32 included, whose error of some
// roundoff * sqrt(K) * rms(products) is what inexact operands give, too; so are
// the numbers off that batch_norm and losses work with on the way, which may
// cancel, and the sums of poolings, rounded term by term. A
// tensor's error may be kFactor times the worst of these, since f32 functions
// and orders of summation are less than perfect, plus a few roundoffs of the
// tensor itself.
#pragma once

#include "gtest/gtest.h"
#include "tests/conformance/programs/program_run.h"

namespace convgrad::testing_support {

// What a program gives in double, and how far off rounding may be.
struct ProgramTruth {
  ProgramOutcome exact;
  std::vector<ProgramOutcome> perturbed;
};

// Requires: `operation` is a kBackward or kTrain with all gradients.
ProgramTruth TruthOf(const ProgramOperation& operation,
                     const ProgramData& data);

// Returns whether a comparison (ReLU's, max_pool's) is decided by so little
// that rounding may turn it over, and the gradient with it.
bool IsNearKink(const ProgramOperation& operation, const ProgramData& data);

// Checks the values, and the gradients if `with_gradients`, that `got` has.
testing::AssertionResult IsAccurate(const ProgramOutcome& got,
                                    const ProgramTruth& truth, DataType dtype,
                                    bool with_gradients);

}  // namespace convgrad::testing_support
