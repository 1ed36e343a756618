// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_emulated/emulated_partition.h"

#include "attention/backends/cuda_common/partition.cuh"
#include "base/check.h"
#include "gpu_emulator/emulator.h"

namespace latent::testing {

namespace cuda = attention::cuda;

std::vector<FoundStretch> find_stretches(std::span<const int32_t> kv_lens, int max_parts,
                                         const EmulatedRule& r) {
  const cuda::PartitionRule rule = {.tile_tokens = r.tile_tokens,
                                    .fixed_tiles = r.fixed_tiles,
                                    .least_tiles = r.least_tiles,
                                    .least_stretch = r.least_stretch,
                                    .slack_tiles = r.slack_tiles};
  const auto num_seqs = static_cast<int>(kv_lens.size());
  std::vector<FoundStretch> found(static_cast<size_t>(max_parts));
  const auto kernel = [&](unsigned char*) {
    const auto part = static_cast<int>(blockIdx.x);
    const cuda::BatchTiles batch(kv_lens.data(), num_seqs, rule);
    const cuda::Line line = cuda::measure_line(batch, max_parts, rule);
    cuda::Cut begin{num_seqs, 0, 0}, end = begin;
    if (part < line.parts) cuda::find_stretch(batch, line, part, rule, &begin, &end);
    const auto pieces = [&](const cuda::Cut& cut) {
      if (cut.seq >= num_seqs) return FoundPieces{};
      const int tiles = cuda::num_tiles(kv_lens[static_cast<size_t>(cut.seq)], rule);
      const cuda::Pieces p = cuda::find_pieces(line, cut.first, tiles, rule);
      return FoundPieces{p.first_part, p.count};
    };
    if (threadIdx.x == 0)
      found[static_cast<size_t>(part)] = {.parts = line.parts,
                                          .begin_seq = begin.seq,
                                          .begin_tile = begin.tile,
                                          .end_seq = end.seq,
                                          .end_tile = end.tile,
                                          .of_first = pieces(begin),
                                          .of_last = pieces(end)};
  };
  const std::string failure = emulator::run({.ctas = max_parts, .threads = 32, .ctas_at_once = 1}, kernel);
  CHECK(failure.empty(), "partition: {}", failure);
  return found;
}

}  // namespace latent::testing
