// Attention in tiles of queries: no matrix of all queries and keys is ever in
// memory.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "backends/core/program/operators/products.h"
#include "backends/onednn/execution/onednn_schedule.h"

namespace convgrad::onednn {

// Where the mask of each matrix and query is. Units: elements.
struct MaskLayout {
  Dims leading;  // of the scores: all axes but the last two
  Dims strides;  // by axis of the scores (batch..., L, S)
};

// Tensors of f32, row-major; `mask` is null where there is none.
struct AttentionTensors {
  const float* query;
  const float* key;
  const float* value;
  const float* mask;
};

// Gradients, which a backward writes.
struct AttentionGradients {
  float* query;
  float* key;
  float* value;
};

// One attention. Immutable; thread-safe. The functions run on the calling
// thread's team and throw dnnl::error.
class AttentionTiles {
 public:
  AttentionTiles(const AttentionProblem& problem, MaskLayout mask, int threads);

  // Floats that a run of any function works with.
  int64_t scratch() const { return threads_ * 2 * TileScores(); }

  void Forward(const AttentionTensors& tensors, float* y, float* scratch) const;
  void Backward(const AttentionTensors& tensors, const float* dy,
                const AttentionGradients& gradients, float* scratch) const;
  // Writes the gradient of scale * query * key' + mask, whole.
  void ScoreGradients(const AttentionTensors& tensors, const float* dy,
                      float* scores, float* scratch) const;

 private:
  struct Worker;
  // Some queries of one matrix.
  struct Tile {
    int64_t matrix, first, count;
    int64_t keys;  // that one of the queries sees
  };

  // Scores of the largest tile.
  int64_t TileScores() const;
  int64_t tiles() const;
  Tile TileAt(int64_t matrix, int64_t index) const;
  // Returns the row of the tile's first query among all queries.
  int64_t RowOf(const Tile& tile) const {
    return tile.matrix * problem_.queries + tile.first;
  }
  // Calls body(i, worker) for each i in [0, count) on the team.
  void ForEach(int64_t count, float* scratch,
               absl::FunctionRef<void(int64_t, Worker*)> body) const;
  // Returns how many keys the tile's `query` sees.
  int64_t Seen(const Tile& tile, int64_t query) const;
  // Returns whether all that the tile's products read is finite. `dy` may be
  // null.
  bool IsFinite(const AttentionTensors& tensors, const float* dy,
                const Tile& tile) const;
  // Calls body with the tile, or with tiles of its queries one by one if the
  // whole tile would give the wrong NaN.
  void ForTiles(const AttentionTensors& tensors, const float* dy,
                const Tile& tile,
                absl::FunctionRef<void(const Tile&)> body) const;
  // Writes the tile's weights. A key that a query doesn't see has the weight 0.
  void Weigh(const AttentionTensors& tensors, const Tile& tile,
             Worker* worker) const;
  void AddMask(const float* mask, const Tile& tile, float* scores) const;
  // Writes the gradients of the tile's scores. Requires: its weights.
  void Slope(const AttentionTensors& tensors, const float* dy, const Tile& tile,
             Worker* worker) const;
  // Writes the gradients of the tile's queries and adds those of its keys and
  // values. Requires: its weights and the gradients of its scores.
  void AddGradients(const AttentionTensors& tensors, const float* dy,
                    const AttentionGradients& gradients, const Tile& tile,
                    Worker* worker) const;

  const AttentionProblem problem_;
  const MaskLayout mask_;
  const int threads_;
};

}  // namespace convgrad::onednn
