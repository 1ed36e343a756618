// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text: starting from bytes (or characters), the adjacent pair with the
// lowest rank is merged, the leftmost first, until no pair of the piece has a merge.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/token_table.h"

namespace latent::text {

struct Merge {
  int32_t left;
  int32_t right;
  int32_t result;
  uint32_t rank;  // lower first; merges of one rank must have one result
};

struct BpeSpec {
  struct Token {
    std::string bytes;
    int32_t id;
  };
  std::vector<Token> tokens;  // what pieces are made of, control tokens left out
  std::vector<Merge> merges;  // of two merges of one pair the later counts
  bool byte_level = true;     // start from bytes, else from characters
  // A piece that is a token becomes that token even if merges do not lead there.
  bool whole_pieces_first = false;
  // Of characters without a token: their bytes' tokens "<0xNN>" if all are there, else `unknown`, else
  // nothing. `fuse_unknown`: a run of unknown characters becomes one token.
  bool byte_fallback = false;
  bool fuse_unknown = false;
  std::optional<int32_t> unknown;
};

// Immutable; encode may be called from any number of threads.
// Cost: O(n) table look-ups for a piece that is one token, O(n log n) else.
class Bpe {
 public:
  static Result<Bpe> create(const BpeSpec& spec);

  // Appends the ids of `piece` (valid UTF-8 unless byte_level).
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct PairSlot {
    uint64_t pair = kNoPair;
    uint32_t rank;
    int32_t result;
  };
  static constexpr uint64_t kNoPair = UINT64_MAX;

  void insert_merge(const Merge& merge);
  const PairSlot* find_merge(int32_t left, int32_t right) const;
  void encode_part(std::string_view part, std::vector<int32_t>& ids) const;
  void merge_part(std::string_view part, std::vector<int32_t>& ids) const;
  void append_bytes(std::string_view part, std::vector<int32_t>& symbols) const;
  void append_characters(std::string_view part, std::vector<int32_t>& symbols) const;
  size_t merge_short(int32_t* symbols, size_t count) const;
  size_t merge_long(int32_t* symbols, size_t count) const;
  void find_initial_symbols(const BpeSpec& spec);
  void find_whole_pieces(const BpeSpec& spec);

  std::vector<PairSlot> pairs_;        // open addressing, a power of two, at most half full
  TokenTable characters_;              // what a piece starts from, where it does not start from bytes
  TokenTable whole_pieces_;            // pieces known to become this one token
  std::array<int32_t, 256> byte_ids_;  // byte level: of the byte; else of "<0xNN>"; kNone where absent
  bool byte_level_ = true;
  bool fuse_unknown_ = false;
  bool cut_before_marks_ = false;
  std::optional<int32_t> unknown_;
};

}  // namespace latent::text
