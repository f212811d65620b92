// `AttentionTiles` computes attention in tiles of queries, so that no matrix of
// all queries and keys is in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "backends/core/program/operators/products.h"
#include "backends/onednn/networks/schedule/network_row_views.h"

namespace convgrad::onednn {

// The places of a stack of matrices. Units: elements.
struct MatrixPlaces {
  // The axes that number the matrices, the outermost first.
  std::vector<StridedAxis> leading;
  int64_t pitch = 0;   // from one row to the next
  int64_t stride = 1;  // from one column to the next
};

// The places of the operands. Queries, keys and values have the stride 1.
struct AttentionLayout {
  MatrixPlaces query, key, value, mask;
};

// f32 tensors; `mask` is null if there is none.
struct AttentionTensors {
  const float* query;
  const float* key;
  const float* value;
  const float* mask;
};

// Row-major gradients, which a backward writes.
struct AttentionGradients {
  float* query;
  float* key;
  float* value;
};

// Computes one attention. Immutable; thread-safe. The functions run on the
// calling thread's team and throw dnnl::error.
class AttentionTiles {
 public:
  // `is_rounded` tells that the results are rounded to bf16.
  AttentionTiles(const AttentionProblem& problem, AttentionLayout layout,
                 bool is_rounded, int threads);

  // Returns the floats of scratch that each function needs.
  int64_t scratch() const { return threads_ * 2 * TileScores(); }

  // `y` and `dy` are row-major.
  void Forward(const AttentionTensors& tensors, float* y, float* scratch) const;
  void Backward(const AttentionTensors& tensors, const float* dy,
                const AttentionGradients& gradients, float* scratch) const;
  // Writes the whole gradient of scale * query * key' + mask.
  void ScoreGradients(const AttentionTensors& tensors, const float* dy,
                      float* scores, float* scratch) const;

 private:
  struct Worker;
  // A matrix whose rows are `pitch` elements apart, or its transpose.
  struct Matrix {
    const float* data;
    int64_t pitch;
    bool is_transposed = false;

    Matrix Transposed() const { return {data, pitch, true}; }
  };
  // Some queries of one matrix.
  struct Tile {
    int64_t matrix, first, count;
    int64_t keys;  // number of keys that any of the queries sees
  };

  // Scores of the largest tile.
  int64_t TileScores() const;
  int64_t tiles() const;
  Tile TileAt(int64_t matrix, int64_t index) const;
  // Return the tile's queries, and the keys and values of its matrix.
  Matrix QueriesOf(const AttentionTensors& tensors, const Tile& tile) const {
    return RowsAt(tensors.query, layout_.query, tile.matrix, tile.first);
  }
  Matrix KeysOf(const AttentionTensors& tensors, const Tile& tile) const {
    return RowsAt(tensors.key, layout_.key, tile.matrix, 0);
  }
  Matrix ValuesOf(const AttentionTensors& tensors, const Tile& tile) const {
    return RowsAt(tensors.value, layout_.value, tile.matrix, 0);
  }
  // Returns the rows of one matrix of a stack, from row `first` on.
  static Matrix RowsAt(const float* tensor, const MatrixPlaces& places,
                       int64_t matrix, int64_t first);
  // Returns the row of the tile's first query among all queries.
  int64_t RowOf(const Tile& tile) const {
    return tile.matrix * problem_.queries + tile.first;
  }
  // Calls body(i, worker) for each i in [0, count) on the team.
  void ForEach(int64_t count, float* scratch,
               absl::FunctionRef<void(int64_t, Worker*)> body) const;
  // Returns how many keys the tile's `query` sees.
  int64_t Seen(const Tile& tile, int64_t query) const;
  // Returns whether all elements that the tile's products read are finite. `dy`
  // may be null.
  bool IsFinite(const AttentionTensors& tensors, const float* dy,
                const Tile& tile) const;
  // Calls body with the tile, or with a tile for each query if the whole tile
  // would give wrong NaN.
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
  const AttentionLayout layout_;
  const bool is_rounded_;
  const int threads_;
};

}  // namespace convgrad::onednn
