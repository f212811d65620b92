// `IsAccurate` decides how near a program's results must be to float64.
//
// The bound is measured, not derived, so that it includes how much each program
// amplifies errors. The program is evaluated in double several times; each
// time, every number that a step reads or writes has a random relative error of
// at most its unit roundoff. To first order in the roundoff, that is the effect
// of correct rounding:
// * Sums in f32 have an error of some roundoff * sqrt(K) * rms(products), which
//   inexact operands cause as well. It is some roundoff * K * rms(products) if
//   a library adds the products of a convolution or a linear layer one by one,
//   for which their operands have larger errors (StepData::WriteTerms).
// * The intermediate numbers of batch_norm and losses, which may cancel, have
//   such errors.
// * The sums of poolings are rounded term by term.
//
// One more evaluation rounds each of these numbers, because close numbers may
// round to the same one, which no small error does: a batch_norm then has a
// variance of 0, and multiplies the gradient by 1 / sqrt(eps).
//
// A tensor's error may be kFactor times the largest of these, because f32
// functions and orders of summation aren't perfect, plus a few roundoffs of the
// tensor itself.
//
// Winograd's F(2x2,3x3) rounds larger numbers than the definition of a
// convolution: its transforms add 4 elements of x, and weigh 16 products. On
// random data, the squares of the products in a result's sum are 25/9 times as
// large, and at most 4 times beside a padding of 1 and in a weight's gradient.
// So errors may be twice as large. (In a corner beside a padding of 2 they are
// 6.25 times as large as those of the one product of each channel there, but
// are a fourth of those of an inner element.) The algorithm's own bound, with
// sums over tiles, is tested with its kernels; a program may amplify errors
// within it, for example if its gradients are largest where a result is near 0.
#pragma once

#include "gtest/gtest.h"
#include "tests/conformance/programs/program_run.h"

namespace convgrad::testing_support {

// A program's results in double, and its results with random errors.
struct ProgramTruth {
  ProgramOutcome exact;
  std::vector<ProgramOutcome> perturbed;
  // Whether a convolution may be computed by Winograd's algorithm.
  bool is_fast = false;
};

// Computes the truth. Requires: `operation` is a kBackward or kTrain with all
// gradients.
ProgramTruth TruthOf(const ProgramOperation& operation,
                     const ProgramData& data);

// Returns whether a comparison (ReLU's, max_pool's, l1's) is so close that
// rounding may change its result, and with it the gradient.
bool IsNearKink(const ProgramOperation& operation, const ProgramData& data);

// Checks the values of `got`, and its gradients if `with_gradients`.
testing::AssertionResult IsAccurate(const ProgramOutcome& got,
                                    const ProgramTruth& truth, DataType dtype,
                                    bool with_gradients);

}  // namespace convgrad::testing_support
