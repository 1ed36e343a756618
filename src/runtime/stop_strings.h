// SPDX-License-Identifier: Apache-2.0
// StopStrings: ends a text before the first stop string in it, while it streams. Holds back only the longest
// suffix that may still become a stop string, so the pieces released add up to what the whole text at once
// would give, however it is cut.
//
// The first stop string is the one that is complete first; of two that are complete at the same byte, the
// longer. Neither it nor anything after it is released.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace latent::runtime {

class StopStrings {
 public:
  // No stop string may be empty (validate_request).
  explicit StopStrings(const std::vector<std::string>& stops);

  // Appends to `out` what can no longer be part of a stop string. True once a stop string is complete;
  // whatever is pushed afterwards is dropped.
  bool push(std::string_view text, std::string& out);
  // At the end of the text: releases what is held, unless a stop string was found.
  void flush(std::string& out);

  bool found() const { return found_; }
  size_t num_held() const { return held_.size(); }

 private:
  // Knuth, Morris and Pratt's automaton: the state is the length of the longest prefix of `text` that the
  // input ends with.
  struct Matcher {
    std::string text;
    std::vector<int> fallback;  // fallback[n]: the longest proper prefix that the first n bytes end with
    int state = 0;
    bool advance(char byte);  // true when the text is complete
  };
  // The longest match that `byte` completes; 0 if none.
  size_t advance_all(char byte);

  std::vector<Matcher> matchers_;
  std::string held_;
  bool found_ = false;
};

}  // namespace latent::runtime
