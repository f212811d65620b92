// Every operator of a program by its definition: the forward, and the backward
// as the product of the result's gradient with the operator's Jacobian. PyTorch
// says what is meant, with NaN and Inf too. Nothing is rounded.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "backends/reference/program_step_data.h"

namespace convgrad {

// Each function knows its operators and no others. Thread-safe.
using ForwardFunction = Values (*)(const StepData& data);
using BackwardFunction = StepGradients (*)(const StepData& data,
                                           absl::Span<const double> gradient);

ForwardFunction ForwardOf(Operator op);
BackwardFunction BackwardOf(Operator op);

// conv, conv_transpose and linear.
Values ConvolutionForward(const StepData& data);
StepGradients ConvolutionBackward(const StepData& data,
                                  absl::Span<const double> gradient);

Values BatchNormForward(const StepData& data);
StepGradients BatchNormBackward(const StepData& data,
                                absl::Span<const double> gradient);
// New values of running_mean, running_var and num_batches_tracked, empty where
// the step hasn't got them. Requires: a training batch_norm.
StepGradients UpdatedStatisticsOf(const StepData& data);

Values NormalizeForward(const StepData& data);
StepGradients NormalizeBackward(const StepData& data,
                                absl::Span<const double> gradient);

Values MaxPoolForward(const StepData& data);
StepGradients MaxPoolBackward(const StepData& data,
                              absl::Span<const double> gradient);

// avg_pool, adaptive_avg_pool and upsample: linear along each axis.
Values SeparableForward(const StepData& data);
StepGradients SeparableBackward(const StepData& data,
                                absl::Span<const double> gradient);

// relu, relu6, leaky_relu, sigmoid and silu.
Values ActivationForward(const StepData& data);
StepGradients ActivationBackward(const StepData& data,
                                 absl::Span<const double> gradient);

// add and mul.
Values BroadcastForward(const StepData& data);
StepGradients BroadcastBackward(const StepData& data,
                                absl::Span<const double> gradient);

// concat and flatten.
Values CopyForward(const StepData& data);
StepGradients CopyBackward(const StepData& data,
                           absl::Span<const double> gradient);

Values DropoutForward(const StepData& data);
StepGradients DropoutBackward(const StepData& data,
                              absl::Span<const double> gradient);

Values CrossEntropyForward(const StepData& data);
StepGradients CrossEntropyBackward(const StepData& data,
                                   absl::Span<const double> gradient);
// Checks that each class index is one, or ignore_index.
// Errors: kInvalidArgument, reason OUT_OF_RANGE.
absl::Status CheckTargets(const StepData& data);

Values MseForward(const StepData& data);
StepGradients MseBackward(const StepData& data,
                          absl::Span<const double> gradient);

}  // namespace convgrad
