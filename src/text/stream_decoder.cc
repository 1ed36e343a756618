// SPDX-License-Identifier: Apache-2.0
#include "text/stream_decoder.h"

#include <algorithm>

namespace latent::text {

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      skip_special_(options.skip_special),
      first_token_(options.at_start && tokenizer.start_rule().all_spaces_of_first_token),
      spaces_to_strip_(options.at_start ? tokenizer.start_rule().num_spaces : 0) {}

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  if (skip_special_ && tokenizer_->is_special(id)) return out;
  repair_.push(strip_start(tokenizer_->token_bytes(id)), out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  repair_.flush(out);
  first_token_ = false;
  spaces_to_strip_ = 0;
  return out;
}

std::string_view StreamDecoder::strip_start(std::string_view bytes) {
  if (first_token_ && !bytes.empty()) {
    first_token_ = false;
    stripped_ = bytes;
    std::erase(stripped_, ' ');
    bytes = stripped_;
  }
  while (spaces_to_strip_ > 0 && !bytes.empty()) {
    if (bytes.front() != ' ') spaces_to_strip_ = 0;
    if (spaces_to_strip_ == 0) break;
    bytes.remove_prefix(1);
    --spaces_to_strip_;
  }
  return bytes;
}

}  // namespace latent::text
