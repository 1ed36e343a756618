// SPDX-License-Identifier: Apache-2.0
// Splits text into the pieces inside which BPE may merge, as the pre_tokenizer of tokenizer.json says. Each
// step works on the pieces of the step before it, each piece a text of its own: no pattern sees beyond it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace latent::text {

// Text and its pieces: disjoint, in order, never empty; gaps are text that was removed.
struct Pieces {
  std::string text;
  std::vector<Span> spans;
  bool at_start = true;  // the text stands at the very beginning of what is encoded
};

// What becomes of a pattern's matches.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

class PreTokenizer {
 public:
  class Step {
   public:
    virtual ~Step() = default;
    virtual Status apply(Pieces& pieces) const = 0;
  };

  void add(std::unique_ptr<Step> step) { steps_.push_back(std::move(step)); }
  // `pieces` comes with its text (valid UTF-8, under 2 GiB) and one span over all of it.
  Status apply(Pieces& pieces) const;

 private:
  std::vector<std::unique_ptr<Step>> steps_;
};

// Splits at the matches of `pattern`; inverted, the text between them counts as matches.
std::unique_ptr<PreTokenizer::Step> make_split(Regex pattern, SplitBehavior behavior, bool invert);

// Puts a space in front of every piece that does not begin with one (ByteLevel's add_prefix_space).
std::unique_ptr<PreTokenizer::Step> make_prefix_space();

enum class PrependScheme { kNever, kFirst, kAlways };

// Spaces become `replacement`, which the scheme also puts in front; `split` cuts before each of them.
std::unique_ptr<PreTokenizer::Step> make_metaspace(std::string replacement, PrependScheme scheme, bool split);

}  // namespace latent::text
