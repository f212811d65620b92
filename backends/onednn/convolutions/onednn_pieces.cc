#include "backends/onednn/convolutions/onednn_pieces.h"

#include "backends/core/checked_math.h"

namespace convgrad::onednn {
namespace {

ConvProblem PieceOf(ConvProblem problem, CutAxis axis, int64_t begin,
                    int64_t end) {
  const int64_t units = UnitsOf(problem, axis);
  const int64_t out_channels = problem.out_channels;
  switch (axis) {
    case CutAxis::kNone:
      break;
    case CutAxis::kBatch:
      problem.batch = end - begin;
      break;
    case CutAxis::kRows: {
      // Input rows that a stride skips belong to the preceding window.
      SpatialAxis& axis = problem.axes[0];
      axis.in =
          (end == units ? axis.in : end * axis.stride) - begin * axis.stride;
      axis.out = end - begin;
      break;
    }
    case CutAxis::kGroups:
      problem.in_channels = problem.in_channels / units * (end - begin);
      problem.out_channels = problem.out_channels / units * (end - begin);
      problem.groups = end - begin;
      break;
  }
  if (problem.bias) {
    for (int64_t& extent : *problem.bias) {
      if (extent == out_channels) extent = problem.out_channels;
    }
  }
  return problem;
}

TensorRange RangeOf(const TensorDescriptor& whole, const Dims& dims,
                    int64_t units, int64_t begin) {
  TensorRange range = {whole};
  range.descriptor.dims = dims;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == whole.dims[i]) continue;
    range.axis = static_cast<int>(i);
    range.begin = begin * CeilDiv(whole.dims[i], units);
  }
  return range;
}

Piece CutPiece(const ConvOperation& operation, CutAxis axis, int64_t begin,
               int64_t end) {
  const int64_t units = UnitsOf(operation.problem, axis);
  Piece piece;
  piece.operation = operation;
  ConvOperation& part = piece.operation;
  part.problem = PieceOf(operation.problem, axis, begin, end);
  for (Operand which : kAllOperands) {
    auto& descriptor = part.operand(which);
    if (!descriptor) continue;
    const TensorRange range =
        RangeOf(*descriptor, DimsOf(part.problem, which), units, begin);
    piece.operands[static_cast<size_t>(which)] = range;
    descriptor = range.descriptor;
  }
  part.results.clear();
  for (size_t i = 0; i < operation.results.size(); ++i) {
    ResultRequest request = operation.results[i];
    const TensorRange range = RangeOf(
        request.descriptor, DimsOf(part.problem, request.which), units, begin);
    piece.results.push_back({i, range, range.is_whole()});
    request.descriptor = range.descriptor;
    part.results.push_back(request);
  }
  DropUnneeded(&part);
  return piece;
}

}  // namespace

std::vector<Piece> CutInto(const ConvOperation& operation,
                           const Partition& partition, int threads) {
  const std::vector<int64_t> bounds =
      BoundsOf(operation.problem, partition, threads);
  std::vector<Piece> pieces;
  for (size_t i = 0; i + 1 < bounds.size(); ++i) {
    pieces.push_back(
        CutPiece(operation, partition.axis, bounds[i], bounds[i + 1]));
  }
  return pieces;
}

}  // namespace convgrad::onednn
