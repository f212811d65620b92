#include "backends/onednn/networks/steps/products/network_attention_tiles.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>
#include <vector>

#include "backends/core/checked_math.h"
#include "backends/kernels/operators/nonfinite.h"
#include "backends/kernels/operators/softmax.h"
#include "backends/onednn/library/onednn_threads.h"

namespace convgrad::onednn {
namespace {

// Queries of a tile.
constexpr int64_t kQueries = 64;

// Makes the library use only the calling thread during its lifetime. The team
// is already busy, and the library's partition of a product must not depend on
// the team.
class OneThread {
 public:
  explicit OneThread(int threads) : threads_(threads) { UseThreads(1); }
  ~OneThread() { UseThreads(threads_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int threads_;
};

// Computes c (rows x columns, with `pitch`) = scale * a * b, or adds to c.
struct Product {
  int64_t rows, columns, depth;
  float scale = 1;
  bool adds = false;
};

// Returns whether a query sees no key. The weights of its keys are 0 then, as
// in PyTorch.
bool AreHidden(absl::Span<const float> scores) {
  return std::all_of(scores.begin(), scores.end(), [](float score) {
    return score == -std::numeric_limits<float>::infinity();
  });
}

}  // namespace

// The memory of one thread of a run.
struct AttentionTiles::Worker {
  // Rows of problem_.keys, for the queries of a tile.
  float* weights;
  float* slopes;
  dnnl_status_t status = dnnl_success;
  std::vector<double> doubles = {};  // of problem_.keys, if it needs them

  void Multiply(const Product& product, const Matrix& a, const Matrix& b,
                float* c, int64_t pitch) {
    const dnnl_status_t result = dnnl_sgemm(
        a.is_transposed ? 'T' : 'N', b.is_transposed ? 'T' : 'N', product.rows,
        product.columns, product.depth, product.scale, a.data, a.pitch, b.data,
        b.pitch, product.adds ? 1 : 0, c, pitch);
    if (result != dnnl_success) status = result;
  }
};

AttentionTiles::AttentionTiles(const AttentionProblem& problem,
                               AttentionLayout layout, bool is_rounded,
                               int threads)
    : problem_(problem),
      layout_(std::move(layout)),
      is_rounded_(is_rounded),
      threads_(threads) {}

int64_t AttentionTiles::TileScores() const {
  return std::min(kQueries, problem_.queries) * problem_.keys;
}

// Stores the library's errors until all threads have ended, because no
// exception may leave a thread of the team.
void AttentionTiles::ForEach(
    int64_t count, float* scratch,
    absl::FunctionRef<void(int64_t, Worker*)> body) const {
  std::atomic<dnnl_status_t> status = dnnl_success;
  ParallelFor(threads_, count, 1, [&](int thread, int64_t begin, int64_t end) {
    const OneThread one(threads_);
    float* own = scratch + thread * 2 * TileScores();
    Worker worker{own, own + TileScores()};
    if (!is_rounded_) worker.doubles.resize(problem_.keys);
    for (int64_t i = begin; i < end; ++i) body(i, &worker);
    if (worker.status != dnnl_success) status = worker.status;
  });
  dnnl::error::wrap_c_api(status, "could not multiply matrices");
}

int64_t AttentionTiles::tiles() const {
  return CeilDiv(problem_.queries, kQueries);
}

AttentionTiles::Tile AttentionTiles::TileAt(int64_t matrix,
                                            int64_t index) const {
  Tile tile = {matrix, index * kQueries, 0, problem_.keys};
  tile.count = std::min(kQueries, problem_.queries - tile.first);
  tile.keys = Seen(tile, tile.count - 1);
  return tile;
}

AttentionTiles::Matrix AttentionTiles::RowsAt(const float* tensor,
                                              const MatrixPlaces& places,
                                              int64_t matrix, int64_t first) {
  return {tensor + OffsetOf(places.leading, matrix) + first * places.pitch,
          places.pitch};
}

// A tile's product also multiplies keys that a causal query doesn't see, by 0.
// NaN and Inf would propagate through this product.
bool AttentionTiles::IsFinite(const AttentionTensors& tensors, const float* dy,
                              const Tile& tile) const {
  const auto is_finite = [](const Matrix& rows, int64_t count,
                            int64_t columns) {
    int64_t nonfinite = 0;
    for (int64_t i = 0; i < count; ++i) {
      nonfinite +=
          CountNonfinite(DataType::kF32, rows.data + i * rows.pitch, columns);
    }
    return nonfinite == 0;
  };
  const int64_t columns = problem_.out_features;
  return is_finite(QueriesOf(tensors, tile), tile.count, problem_.features) &&
         is_finite(KeysOf(tensors, tile), tile.keys, problem_.features) &&
         is_finite(ValuesOf(tensors, tile), tile.keys, columns) &&
         (dy == nullptr || is_finite({dy + RowOf(tile) * columns, columns},
                                     tile.count, columns));
}

void AttentionTiles::ForTiles(const AttentionTensors& tensors, const float* dy,
                              const Tile& tile,
                              absl::FunctionRef<void(const Tile&)> body) const {
  if (!problem_.causal || IsFinite(tensors, dy, tile)) return body(tile);
  for (int64_t i = 0; i < tile.count; ++i) {
    Tile query = {tile.matrix, tile.first + i, 1, 0};
    query.keys = Seen(query, 0);
    body(query);
  }
}

int64_t AttentionTiles::Seen(const Tile& tile, int64_t query) const {
  return problem_.causal ? std::min(tile.first + query + 1, problem_.keys)
                         : problem_.keys;
}

void AttentionTiles::AddMask(const float* mask, const Tile& tile,
                             float* scores) const {
  const MatrixPlaces& places = layout_.mask;
  const float* row = RowsAt(mask, places, tile.matrix, tile.first).data;
  for (int64_t i = 0; i < tile.count; ++i, row += places.pitch) {
    for (int64_t j = 0; j < tile.keys; ++j) {
      scores[i * problem_.keys + j] += row[j * places.stride];
    }
  }
}

void AttentionTiles::Weigh(const AttentionTensors& tensors, const Tile& tile,
                           Worker* worker) const {
  worker->Multiply({.rows = tile.count,
                    .columns = tile.keys,
                    .depth = problem_.features,
                    .scale = static_cast<float>(problem_.scale)},
                   QueriesOf(tensors, tile), KeysOf(tensors, tile).Transposed(),
                   worker->weights, problem_.keys);
  if (tensors.mask != nullptr) AddMask(tensors.mask, tile, worker->weights);
  for (int64_t i = 0; i < tile.count; ++i) {
    float* row = worker->weights + i * problem_.keys;
    const int64_t seen = Seen(tile, i);
    const auto scores = absl::MakeSpan(row, seen);
    if (AreHidden(scores)) {
      std::fill_n(row, seen, 0.0F);
    } else if (is_rounded_) {
      SoftmaxInF32(scores, row);
    } else {
      Softmax(scores, absl::MakeSpan(worker->doubles), row);
    }
    std::fill(row + seen, row + tile.keys, 0.0F);
  }
}

void AttentionTiles::Forward(const AttentionTensors& tensors, float* y,
                             float* scratch) const {
  const int64_t keys = problem_.keys, columns = problem_.out_features;
  ForEach(problem_.batch * tiles(), scratch, [&](int64_t i, Worker* worker) {
    const Tile whole = TileAt(i / tiles(), i % tiles());
    ForTiles(tensors, nullptr, whole, [&](const Tile& tile) {
      Weigh(tensors, tile, worker);
      worker->Multiply(
          {.rows = tile.count, .columns = columns, .depth = tile.keys},
          {worker->weights, keys}, ValuesOf(tensors, tile),
          y + RowOf(tile) * columns, columns);
    });
  });
}

// Computes the gradients of the scores from those of the weights, dy * value'.
void AttentionTiles::Slope(const AttentionTensors& tensors, const float* dy,
                           const Tile& tile, Worker* worker) const {
  const int64_t keys = problem_.keys, columns = problem_.out_features;
  worker->Multiply({.rows = tile.count, .columns = tile.keys, .depth = columns},
                   {dy + RowOf(tile) * columns, columns},
                   ValuesOf(tensors, tile).Transposed(), worker->slopes, keys);
  for (int64_t i = 0; i < tile.count; ++i) {
    const auto seen = static_cast<size_t>(Seen(tile, i));
    float* slope = worker->slopes + i * keys;
    SoftmaxGradient({worker->weights + i * keys, seen}, slope, slope);
    std::fill(slope + seen, slope + tile.keys, 0.0F);
  }
}

void AttentionTiles::AddGradients(const AttentionTensors& tensors,
                                  const float* dy,
                                  const AttentionGradients& gradients,
                                  const Tile& tile, Worker* worker) const {
  const int64_t keys = problem_.keys, columns = problem_.out_features;
  const int64_t features = problem_.features, row = RowOf(tile);
  const int64_t first_key = tile.matrix * keys;
  const auto scale = static_cast<float>(problem_.scale);
  worker->Multiply({.rows = tile.keys,
                    .columns = columns,
                    .depth = tile.count,
                    .adds = true},
                   {worker->weights, keys, true}, {dy + row * columns, columns},
                   gradients.value + first_key * columns, columns);
  worker->Multiply({.rows = tile.count,
                    .columns = features,
                    .depth = tile.keys,
                    .scale = scale},
                   {worker->slopes, keys}, KeysOf(tensors, tile),
                   gradients.query + row * features, features);
  worker->Multiply({.rows = tile.keys,
                    .columns = features,
                    .depth = tile.count,
                    .scale = scale,
                    .adds = true},
                   {worker->slopes, keys, true}, QueriesOf(tensors, tile),
                   gradients.key + first_key * features, features);
}

void AttentionTiles::Backward(const AttentionTensors& tensors, const float* dy,
                              const AttentionGradients& gradients,
                              float* scratch) const {
  const int64_t keys = problem_.keys * problem_.features;
  const int64_t values = problem_.keys * problem_.out_features;
  ForEach(problem_.batch, scratch, [&](int64_t matrix, Worker* worker) {
    std::fill_n(gradients.key + matrix * keys, keys, 0.0F);
    std::fill_n(gradients.value + matrix * values, values, 0.0F);
    for (int64_t i = 0; i < tiles(); ++i) {
      ForTiles(tensors, dy, TileAt(matrix, i), [&](const Tile& tile) {
        Weigh(tensors, tile, worker);
        Slope(tensors, dy, tile, worker);
        AddGradients(tensors, dy, gradients, tile, worker);
      });
    }
  });
}

void AttentionTiles::ScoreGradients(const AttentionTensors& tensors,
                                    const float* dy, float* scores,
                                    float* scratch) const {
  const int64_t keys = problem_.keys;
  ForEach(problem_.batch * tiles(), scratch, [&](int64_t i, Worker* worker) {
    const Tile whole = TileAt(i / tiles(), i % tiles());
    ForTiles(tensors, dy, whole, [&](const Tile& tile) {
      Weigh(tensors, tile, worker);
      Slope(tensors, dy, tile, worker);
      for (int64_t j = 0; j < tile.count; ++j) {
        float* to = scores + (RowOf(tile) + j) * keys;
        std::copy_n(worker->slopes + j * keys, tile.keys, to);
        std::fill(to + tile.keys, to + keys, 0.0F);
      }
    });
  });
}

}  // namespace convgrad::onednn
