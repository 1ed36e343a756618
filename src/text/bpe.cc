// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <algorithm>
#include <bit>

#include "text/utf8.h"

namespace latent::text {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
// Up to here a scan for the lowest rank is cheaper than a heap.
constexpr size_t kShortPiece = 48;
constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, sentencepiece's space

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t pair_hash(uint64_t pair) {
  pair *= 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(pair ^ (pair >> 32));
}

// True if a mark stands in `token` behind something else: then merges cross the boundary of words.
bool has_inner_mark(std::string_view token) {
  while (token.starts_with(kMark)) token.remove_prefix(kMark.size());
  return token.find(kMark) != std::string_view::npos;
}

// Where the part of `text` that starts at `begin` may end: before the next mark that follows no mark.
size_t part_end(std::string_view text, size_t begin) {
  size_t at = begin;
  while (text.substr(at).starts_with(kMark)) at += kMark.size();
  return std::min(text.find(kMark, at), text.size());
}

}  // namespace

Result<Bpe> Bpe::create(const BpeSpec& spec) {
  Bpe bpe;
  bpe.pairs_.resize(std::bit_ceil(2 * spec.merges.size() + 2));
  for (const Merge& merge : spec.merges) {
    if (merge.left < 0 || merge.right < 0 || merge.result < 0 || merge.rank == kNoRank)
      return make_error(ErrorCode::kCorrupt, "merge of tokens {} and {} to {} with rank {}: a negative id",
                        merge.left, merge.right, merge.result, merge.rank);
    bpe.insert_merge(merge);
  }
  bpe.byte_level_ = spec.byte_level;
  bpe.fuse_unknown_ = spec.fuse_unknown;
  bpe.unknown_ = spec.unknown;
  bpe.find_initial_symbols(spec);
  bpe.find_whole_pieces(spec);
  // No token crosses from a word into the next one's mark: words can be taken one by one.
  bpe.cut_before_marks_ = !spec.byte_level && !spec.whole_pieces_first &&
                          bpe.characters_.find(kMark) != TokenTable::kNone &&
                          std::none_of(spec.tokens.begin(), spec.tokens.end(),
                                       [](const BpeSpec::Token& t) { return has_inner_mark(t.bytes); });
  return bpe;
}

void Bpe::insert_merge(const Merge& merge) {
  const uint64_t key = pair_key(merge.left, merge.right);
  const size_t mask = pairs_.size() - 1;
  size_t i = pair_hash(key) & mask;
  while (pairs_[i].pair != kNoPair && pairs_[i].pair != key) i = (i + 1) & mask;
  pairs_[i] = {.pair = key, .rank = merge.rank, .result = merge.result};
}

const Bpe::PairSlot* Bpe::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  const size_t mask = pairs_.size() - 1;
  for (size_t i = pair_hash(key) & mask;; i = (i + 1) & mask) {
    if (pairs_[i].pair == key) return &pairs_[i];
    if (pairs_[i].pair == kNoPair) return nullptr;
  }
}

void Bpe::find_initial_symbols(const BpeSpec& spec) {
  byte_ids_.fill(TokenTable::kNone);
  characters_ = TokenTable(spec.byte_level ? 0 : spec.tokens.size());
  for (const BpeSpec::Token& token : spec.tokens) {
    if (spec.byte_level) {
      if (token.bytes.size() == 1) byte_ids_[static_cast<uint8_t>(token.bytes[0])] = token.id;
      continue;
    }
    if (token.bytes.empty()) continue;
    const Utf8Unit first = scan_utf8(token.bytes);
    if (first.kind == Utf8Kind::kCharacter && first.length == token.bytes.size())
      characters_.insert(token.bytes, token.id);
    for (unsigned byte = 0; spec.byte_fallback && token.bytes.size() == 6 && byte < 256; ++byte)
      if (token.bytes == fmt::format("<0x{:02X}>", byte)) byte_ids_[byte] = token.id;
  }
}

void Bpe::find_whole_pieces(const BpeSpec& spec) {
  whole_pieces_ = TokenTable(spec.tokens.size());
  std::vector<int32_t> ids;
  for (const BpeSpec::Token& token : spec.tokens) {
    ids.clear();
    if (!spec.whole_pieces_first) merge_part(token.bytes, ids);
    if (spec.whole_pieces_first || (ids.size() == 1 && ids[0] == token.id))
      whole_pieces_.insert(token.bytes, token.id);
  }
}

void Bpe::encode(std::string_view piece, std::vector<int32_t>& ids) const {
  if (!cut_before_marks_) return encode_part(piece, ids);
  for (size_t begin = 0; begin < piece.size();) {
    const size_t end = part_end(piece, begin);
    encode_part(piece.substr(begin, end - begin), ids);
    begin = end;
  }
}

void Bpe::encode_part(std::string_view part, std::vector<int32_t>& ids) const {
  const int32_t whole = whole_pieces_.find(part);
  if (whole != TokenTable::kNone) {
    ids.push_back(whole);
  } else {
    merge_part(part, ids);
  }
}

void Bpe::merge_part(std::string_view part, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  byte_level_ ? append_bytes(part, ids) : append_characters(part, ids);
  const size_t count = ids.size() - first;
  if (count < 2) return;
  const bool is_short = count <= kShortPiece;
  ids.resize(first + (is_short ? merge_short(&ids[first], count) : merge_long(&ids[first], count)));
}

void Bpe::append_bytes(std::string_view part, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  for (const char c : part) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id != TokenTable::kNone) {
      symbols.push_back(id);
    } else if (unknown_ && !(after_unknown && fuse_unknown_)) {
      symbols.push_back(*unknown_);
    }
    after_unknown = id == TokenTable::kNone;
  }
}

void Bpe::append_characters(std::string_view part, std::vector<int32_t>& symbols) const {
  bool after_unknown = false;
  while (!part.empty()) {
    const std::string_view character = part.substr(0, scan_utf8(part).length);
    part.remove_prefix(character.size());
    const int32_t id = characters_.find(character);
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)]; };
    const bool fallback = std::none_of(character.begin(), character.end(),
                                       [&](char c) { return byte_id(c) == TokenTable::kNone; });
    if (id != TokenTable::kNone) {
      symbols.push_back(id);
    } else if (fallback) {
      for (const char c : character) symbols.push_back(byte_id(c));
    } else if (unknown_ && !(after_unknown && fuse_unknown_)) {
      symbols.push_back(*unknown_);
    }
    after_unknown = id == TokenTable::kNone && !fallback;
  }
}

size_t Bpe::merge_short(int32_t* symbols, size_t count) const {
  std::array<uint32_t, kShortPiece> ranks;
  std::array<int32_t, kShortPiece> results;
  const auto look_up = [&](size_t i) {
    const PairSlot* merge = find_merge(symbols[i], symbols[i + 1]);
    ranks[i] = merge ? merge->rank : kNoRank;
    results[i] = merge ? merge->result : TokenTable::kNone;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    const size_t best =
        static_cast<size_t>(std::min_element(ranks.begin(), ranks.begin() + (count - 1)) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    symbols[best] = results[best];
    for (size_t i = best + 1; i + 1 < count; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i] = ranks[i + 1];
      results[i] = results[i + 1];
    }
    --count;
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  return count;
}

size_t Bpe::merge_long(int32_t* symbols, size_t count) const {
  constexpr uint32_t kEnd = UINT32_MAX;
  struct Node {
    uint32_t previous, next;
    uint32_t rank;  // of the pair (this, next); kNoRank once this symbol is merged away
    int32_t result;
  };
  std::vector<Node> nodes(count);
  std::vector<uint64_t> heap;  // rank, then position: the lowest is the next merge, if it still stands
  heap.reserve(count);
  const auto look_up = [&](uint32_t i) {
    Node& node = nodes[i];
    const PairSlot* merge = node.next == kEnd ? nullptr : find_merge(symbols[i], symbols[node.next]);
    node.rank = merge ? merge->rank : kNoRank;
    node.result = merge ? merge->result : TokenTable::kNone;
    if (merge) heap.push_back(static_cast<uint64_t>(merge->rank) << 32 | i);
    return merge != nullptr;
  };
  const auto last = static_cast<uint32_t>(count - 1);
  for (uint32_t i = 0; i <= last; ++i) {
    nodes[i] = {.previous = i == 0 ? kEnd : i - 1, .next = i == last ? kEnd : i + 1, .rank = 0, .result = 0};
    look_up(i);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push = [&](uint32_t i) {
    if (look_up(i)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto i = static_cast<uint32_t>(top);
    if (nodes[i].rank != top >> 32) continue;  // the pair is gone
    symbols[i] = nodes[i].result;
    const uint32_t gone = nodes[i].next;
    nodes[gone].rank = kNoRank;
    nodes[i].next = nodes[gone].next;
    if (nodes[i].next != kEnd) nodes[nodes[i].next].previous = i;
    if (nodes[i].previous != kEnd) push(nodes[i].previous);
    push(i);
  }
  size_t left = 0;
  for (uint32_t i = 0; i != kEnd; i = nodes[i].next) symbols[left++] = symbols[i];
  return left;
}

}  // namespace latent::text
