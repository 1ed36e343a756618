// SPDX-License-Identifier: Apache-2.0
#include "runtime/text_stream.h"

namespace latent::runtime {

TextStream::TextStream(const text::Tokenizer* tokenizer, const std::vector<std::string>& stop_strings)
    : stops_(stop_strings) {
  if (tokenizer != nullptr)
    decoder_.emplace(*tokenizer, text::StreamDecoder::Options{.skip_special = true, .at_start = false});
}

bool TextStream::push(int32_t id, std::string& out) {
  return decoder_.has_value() && stops_.push(decoder_->push(id), out);
}

void TextStream::finish(std::string& out) {
  if (!decoder_) return;
  stops_.push(decoder_->flush(), out);
  stops_.flush(out);
}

}  // namespace latent::runtime
