// SPDX-License-Identifier: Apache-2.0
// Text of a growing list of ids. Bytes are held back only while the character they begin is incomplete (3 at
// most), so every returned string is valid UTF-8 and nothing is ever taken back: the concatenation of all
// push() and of flush() is Tokenizer::decode of the ids at once, bytes that are not UTF-8 included. Ids given
// to one decoder are the only text it returns: a prompt that is not pushed cannot leak.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace latent::text {

class StreamDecoder {
 public:
  struct Options {
    bool skip_special = true;
    // The first id begins a text. False after a prompt: then the space that sentencepiece tokenizers strip
    // from the start of a text is kept.
    bool at_start = false;
  };

  // `tokenizer` must outlive the decoder. One decoder belongs to one thread at a time.
  StreamDecoder(const Tokenizer& tokenizer, Options options);

  // The text that `id` completes; may be empty. Unknown ids are nothing.
  std::string push(int32_t id);

  // U+FFFD for an incomplete tail, if any. After it the decoder stands in the middle of a text, like a new
  // one with at_start = false.
  std::string flush();

  size_t num_held_bytes() const { return repair_.num_held(); }

 private:
  std::string_view strip_start(std::string_view bytes);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  bool first_token_;  // and its spaces are to go
  size_t spaces_to_strip_;
  std::string stripped_;
  Utf8Repair repair_;
};

}  // namespace latent::text
