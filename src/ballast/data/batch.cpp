#include "ballast/data/batch.h"

#include <algorithm>
#include <numeric>

namespace ballast {

BatchArrays assemble(const MicroBatchLayout& layout, const DataSet& data) {
  return assemble(layout, [&data](uint64_t sample, int64_t begin, int64_t length, int64_t* ids, int64_t* targets) { data.read(sample, begin, length, ids, targets); },
                  data.end_of_text());
}

BatchArrays assemble(const MicroBatchLayout& layout, const TokenReader& read, int64_t padding_id) {
  BatchArrays batch;
  int64_t slots = 0;
  batch.starts.push_back(0);
  for (const Piece& piece : layout.pieces) {
    slots += piece.length + piece.padding;
    batch.starts.push_back(slots);
    batch.sample_keys.push_back(piece.sample);
  }
  batch.ids.assign(static_cast<size_t>(slots), padding_id);
  batch.targets.assign(static_cast<size_t>(slots), -1);
  batch.positions.resize(static_cast<size_t>(slots));
  for (size_t p = 0; p < layout.pieces.size(); ++p) {
    const Piece& piece = layout.pieces[p];
    const int64_t start = batch.starts[p], end = batch.starts[p + 1];
    read(piece.sample, piece.begin, piece.length, batch.ids.data() + start, batch.targets.data() + start);
    std::iota(batch.positions.begin() + start, batch.positions.begin() + end, piece.begin);
  }
  batch.trained =
      static_cast<int64_t>(std::count_if(batch.targets.begin(), batch.targets.end(), [](int64_t t) { return t >= 0; }));
  return batch;
}

}  // namespace ballast
