// SPDX-License-Identifier: Apache-2.0
// TextStream: the ids of one answer to its text, ended before the first stop string. Whole characters only;
// the pieces add up to what the whole answer at once would give.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/stop_strings.h"
#include "text/stream_decoder.h"

namespace latent::runtime {

class TextStream {
 public:
  // Without a tokenizer (null) there is no text. A tokenizer must outlive the stream.
  TextStream(const text::Tokenizer* tokenizer, const std::vector<std::string>& stop_strings);

  // Appends to `out` the text that is certain after `id`; true once a stop string is complete.
  bool push(int32_t id, std::string& out);
  // After the last id: whatever was held back.
  void finish(std::string& out);

 private:
  std::optional<text::StreamDecoder> decoder_;
  StopStrings stops_;
};

}  // namespace latent::runtime
