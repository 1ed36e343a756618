// SPDX-License-Identifier: Apache-2.0
#include "text/encoder.h"

#include <unordered_set>

#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

// Offsets are 32 bits, and repairing or normalizing may make text longer.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// Several parts as one text, and where added tokens may be found in it.
struct JoinedText {
  std::string text;
  std::vector<Span> trusted;
  bool all_trusted = true;
};

JoinedText join_parts(std::span<const TextPart> parts) {
  JoinedText joined;
  for (const TextPart& part : parts) {
    const auto begin = static_cast<uint32_t>(joined.text.size());
    is_utf8(part.text) ? joined.text.append(part.text) : joined.text.append(repair_utf8(part.text));
    const Span span{begin, static_cast<uint32_t>(joined.text.size())};
    if (span.size() == 0) continue;
    if (part.special_tokens == SpecialTokens::kAsText) {
      joined.all_trusted = false;
    } else if (!joined.trusted.empty() && joined.trusted.back().end == begin) {
      joined.trusted.back().end = span.end;
    } else {
      joined.trusted.push_back(span);
    }
  }
  return joined;
}

// What BPE works with: the vocabulary in bytes, and nothing that could make a control token out of text.
void fill_bpe_spec(TokenizerParts& parts) {
  std::unordered_set<int32_t> special;
  for (const AddedToken& token : parts.added)
    if (token.special) special.insert(token.id);
  for (const TokenizerParts::Entry& entry : parts.vocabulary) {
    if (special.contains(entry.id)) continue;
    std::optional<std::string> bytes =
        parts.decoder.byte_level ? bytes_of_mapped(entry.content) : std::optional(entry.content);
    if (bytes) parts.bpe.tokens.push_back({std::move(*bytes), entry.id});
  }
  std::erase_if(parts.bpe.merges, [&](const Merge& merge) { return special.contains(merge.result); });
}

Result<AddedTokenFinder> make_finder(const std::vector<AddedToken>& tokens, const Normalizer& normalizer) {
  std::vector<std::string> patterns;
  for (const AddedToken& token : tokens) {
    Result<std::string> pattern = normalizer.apply(token.content);
    if (!pattern) return pattern.error();
    patterns.push_back(std::move(*pattern));
  }
  return AddedTokenFinder::create(tokens, patterns);
}

}  // namespace

Result<Encoder> Encoder::create(TokenizerParts& parts) {
  fill_bpe_spec(parts);
  Result<Bpe> bpe = Bpe::create(parts.bpe);
  if (!bpe) return bpe.error();
  std::vector<AddedToken> raw, normalized;
  for (const AddedToken& token : parts.added) (token.normalized ? normalized : raw).push_back(token);
  Result<AddedTokenFinder> raw_finder = make_finder(raw, Normalizer());
  Result<AddedTokenFinder> normalized_finder = make_finder(normalized, parts.normalizer);
  Result<AddedTokenFinder> all_finder = make_finder(parts.added, Normalizer());
  for (const auto* finder : {&raw_finder, &normalized_finder, &all_finder})
    if (!*finder) return finder->error();
  Encoder encoder(std::move(*bpe), std::move(*raw_finder), std::move(*normalized_finder),
                  std::move(*all_finder));
  encoder.normalizer_ = std::move(parts.normalizer);
  encoder.pre_tokenizer_ = std::move(parts.pre_tokenizer);
  return encoder;
}

// Appends the added tokens that `finder` sees and hands the spans of text between them to `on_text`, in
// order.
template <class OnText>
Status Encoder::each_segment(const AddedTokenFinder& finder, std::string_view text, Span within,
                             const std::vector<Span>& trusted, std::vector<int32_t>& ids, OnText&& on_text) {
  std::vector<Segment> segments;
  if (Status split = finder.split(text, within, trusted, segments); !split) return split;
  for (const Segment& segment : segments) {
    if (segment.id != Segment::kText) {
      ids.push_back(segment.id);
    } else if (Status done = on_text(segment.span); !done) {
      return done;
    }
  }
  return {};
}

Result<std::vector<int32_t>> Encoder::encode(std::span<const TextPart> parts) const {
  size_t num_bytes = 0;
  for (const TextPart& part : parts) num_bytes += part.text.size();
  if (num_bytes >= kMaxTextBytes)
    return make_error(ErrorCode::kInvalidArgument, "a text of {} bytes; at most {} can be encoded at once",
                      num_bytes, kMaxTextBytes - 1);
  const JoinedText joined = join_parts(parts);
  const Span whole{0, static_cast<uint32_t>(joined.text.size())};
  // Normalizing moves text, so trust cannot follow it. Where some of the text is not trusted, the tokens that
  // belong into normalized text are found before that step.
  const bool identity = normalizer_.is_identity();
  const bool all_at_first = !joined.all_trusted && !identity;

  const auto on_text = [&](Span span, std::vector<int32_t>& ids) -> Status {
    if (identity)
      return each_segment(normalized_finder_, joined.text, span, joined.trusted, ids, [&](Span words) {
        return encode_words(std::string_view(joined.text).substr(words.begin, words.size()), words.begin == 0,
                            ids);
      });
    const Result<std::string> text =
        normalizer_.apply(std::string_view(joined.text).substr(span.begin, span.size()));
    if (!text) return text.error();
    const Span all{0, static_cast<uint32_t>(text->size())};
    const std::vector<Span> trusted(all_at_first ? 0 : 1, all);
    return each_segment(normalized_finder_, *text, all, trusted, ids, [&](Span words) {
      return encode_words(std::string_view(*text).substr(words.begin, words.size()),
                          span.begin == 0 && words.begin == 0, ids);
    });
  };

  std::vector<int32_t> ids;
  Status done = each_segment(all_at_first ? all_finder_ : raw_finder_, joined.text, whole, joined.trusted,
                             ids, [&](Span span) { return on_text(span, ids); });
  if (!done) return done.error();
  return ids;
}

Status Encoder::encode_words(std::string_view text, bool at_start, std::vector<int32_t>& ids) const {
  Pieces pieces{
      .text = std::string(text), .spans = {{0, static_cast<uint32_t>(text.size())}}, .at_start = at_start};
  if (Status split = pre_tokenizer_.apply(pieces); !split) return split;
  for (const Span span : pieces.spans)
    bpe_.encode(std::string_view(pieces.text).substr(span.begin, span.size()), ids);
  return {};
}

}  // namespace latent::text
