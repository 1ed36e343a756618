// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

namespace latent::text {
namespace {

// A stretch of a piece: a match of the pattern, or what lies between two.
struct Stretch {
  Span span;
  bool is_match;
};

// Appends `stretches`, which cover a piece without gaps, as `behavior` says.
class StretchJoiner {
 public:
  StretchJoiner(SplitBehavior behavior, std::vector<Span>& out) : behavior_(behavior), out_(out) {}

  void add(Stretch next) {
    const bool join = has_previous_ && joins(next.is_match);
    if (join) {
      out_.back().end = next.span.end;
    } else if (behavior_ != SplitBehavior::kRemoved || !next.is_match) {
      out_.push_back(next.span);
    }
    has_previous_ = true;
    previous_is_match_ = next.is_match;
  }

 private:
  bool joins(bool is_match) const {
    switch (behavior_) {
      case SplitBehavior::kContiguous:
        return is_match == previous_is_match_;
      case SplitBehavior::kMergedWithPrevious:
        return is_match && !previous_is_match_;
      case SplitBehavior::kMergedWithNext:
        return !is_match && previous_is_match_;
      case SplitBehavior::kRemoved:
      case SplitBehavior::kIsolated:
        break;
    }
    return false;
  }

  SplitBehavior behavior_;
  std::vector<Span>& out_;
  bool has_previous_ = false;
  bool previous_is_match_ = false;
};

class Split : public PreTokenizer::Step {
 public:
  Split(Regex pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  Status apply(Pieces& pieces) const override {
    std::vector<Span> out;
    out.reserve(pieces.spans.size());
    std::vector<Span> matches;
    for (const Span piece : pieces.spans) {
      matches.clear();
      const std::string_view text = std::string_view(pieces.text).substr(piece.begin, piece.size());
      if (Status found = pattern_.find_all(text, matches); !found) return found;
      split_piece(piece, matches, out);
    }
    pieces.spans = std::move(out);
    return {};
  }

 private:
  void split_piece(Span piece, const std::vector<Span>& matches, std::vector<Span>& out) const {
    StretchJoiner joiner(behavior_, out);
    uint32_t done = piece.begin;
    const auto add = [&](uint32_t begin, uint32_t end, bool is_match) {
      if (begin != end) joiner.add({{begin, end}, is_match != invert_});
    };
    for (const Span match : matches) {
      add(done, piece.begin + match.begin, false);
      done = piece.begin + match.end;
      add(piece.begin + match.begin, done, true);
    }
    add(done, piece.end, false);
  }

  Regex pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

// Builds a new text piece by piece.
class PieceWriter {
 public:
  void begin_piece() { begin_ = static_cast<uint32_t>(result_.text.size()); }
  void end_piece() {
    const auto end = static_cast<uint32_t>(result_.text.size());
    if (end > begin_) result_.spans.push_back({begin_, end});
  }
  std::string& text() { return result_.text; }
  void finish(Pieces& pieces) {
    pieces.text = std::move(result_.text);
    pieces.spans = std::move(result_.spans);
  }

 private:
  Pieces result_;
  uint32_t begin_ = 0;
};

class PrefixSpace : public PreTokenizer::Step {
 public:
  Status apply(Pieces& pieces) const override {
    PieceWriter writer;
    for (const Span span : pieces.spans) {
      const std::string_view piece = std::string_view(pieces.text).substr(span.begin, span.size());
      writer.begin_piece();
      if (!piece.starts_with(' ')) writer.text().push_back(' ');
      writer.text().append(piece);
      writer.end_piece();
    }
    writer.finish(pieces);
    return {};
  }
};

class Metaspace : public PreTokenizer::Step {
 public:
  Metaspace(std::string replacement, PrependScheme scheme, bool split)
      : replacement_(std::move(replacement)), scheme_(scheme), split_(split) {}

  Status apply(Pieces& pieces) const override {
    PieceWriter writer;
    for (const Span span : pieces.spans) {
      const std::string piece = replaced(std::string_view(pieces.text).substr(span.begin, span.size()),
                                         pieces.at_start && span.begin == 0);
      writer.begin_piece();
      for (size_t i = 0; i < piece.size();) {
        const bool mark = std::string_view(piece).substr(i).starts_with(replacement_);
        if (mark && split_) {
          writer.end_piece();
          writer.begin_piece();
        }
        const size_t length = mark ? replacement_.size() : 1;
        writer.text().append(piece, i, length);
        i += length;
      }
      writer.end_piece();
    }
    writer.finish(pieces);
    return {};
  }

 private:
  std::string replaced(std::string_view piece, bool first) const {
    std::string out;
    for (const char c : piece) c == ' ' ? out.append(replacement_) : out.append(1, c);
    const bool prepend = scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && first);
    if (prepend && !out.starts_with(replacement_)) out.insert(0, replacement_);
    return out;
  }

  std::string replacement_;
  PrependScheme scheme_;
  bool split_;
};

}  // namespace

Status PreTokenizer::apply(Pieces& pieces) const {
  for (const auto& step : steps_)
    if (Status done = step->apply(pieces); !done) return done;
  return {};
}

std::unique_ptr<PreTokenizer::Step> make_split(Regex pattern, SplitBehavior behavior, bool invert) {
  return std::make_unique<Split>(std::move(pattern), behavior, invert);
}

std::unique_ptr<PreTokenizer::Step> make_prefix_space() { return std::make_unique<PrefixSpace>(); }

std::unique_ptr<PreTokenizer::Step> make_metaspace(std::string replacement, PrependScheme scheme,
                                                   bool split) {
  return std::make_unique<Metaspace>(std::move(replacement), scheme, split);
}

}  // namespace latent::text
