// SPDX-License-Identifier: Apache-2.0
// A tokenizer of single characters, for tests that need text of any small model.
#pragma once

#include <memory>
#include <string>

#include "text/tokenizer.h"

namespace latent::runtime {

// tokenizer.json of a byte-level BPE without merges: id i is the byte 0x20 + i % 95, ids past 94 are special
// tokens "<i>".
std::string tiny_tokenizer_json(int vocab);
std::unique_ptr<text::Tokenizer> make_tiny_tokenizer(int vocab);

}  // namespace latent::runtime
