// SPDX-License-Identifier: Apache-2.0
#include "runtime/stop_strings.h"

#include <algorithm>

#include "base/check.h"

namespace latent::runtime {
namespace {

std::vector<int> make_fallback(const std::string& text) {
  std::vector<int> fallback(text.size() + 1, 0);
  int k = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (k > 0 && text[i] != text[static_cast<size_t>(k)]) k = fallback[static_cast<size_t>(k)];
    if (text[i] == text[static_cast<size_t>(k)]) ++k;
    fallback[i + 1] = k;
  }
  return fallback;
}

}  // namespace

StopStrings::StopStrings(const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    CHECK(!stop.empty(), "an empty stop string got past the edge");
    matchers_.push_back({.text = stop, .fallback = make_fallback(stop)});
  }
}

bool StopStrings::Matcher::advance(char byte) {
  while (state > 0 && text[static_cast<size_t>(state)] != byte) state = fallback[static_cast<size_t>(state)];
  if (text[static_cast<size_t>(state)] == byte) ++state;
  return state == static_cast<int>(text.size());
}

size_t StopStrings::advance_all(char byte) {
  size_t longest = 0;
  for (Matcher& m : matchers_)
    if (m.advance(byte)) longest = std::max(longest, m.text.size());
  return longest;
}

bool StopStrings::push(std::string_view text, std::string& out) {
  for (const char byte : text) {
    if (found_) break;
    held_.push_back(byte);
    if (const size_t match = advance_all(byte); match > 0) {
      out.append(held_, 0, held_.size() - match);
      held_.clear();
      found_ = true;
    }
  }
  if (found_) return true;
  size_t keep = 0;
  for (const Matcher& m : matchers_) keep = std::max(keep, static_cast<size_t>(m.state));
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::flush(std::string& out) {
  out += held_;
  held_.clear();
}

}  // namespace latent::runtime
