// SPDX-License-Identifier: Apache-2.0
// A conversation in the model's own chat template.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/open_model.h"

namespace latent::cli {

class Chat {
 public:
  // kUnsupported if the model has no chat template. `tokenizer` must outlive the chat.
  static Result<Chat> open(const std::string& model_folder, const text::Tokenizer& tokenizer);
  Chat(Chat&&) noexcept;
  ~Chat();

  void add(const std::string& role, const std::string& content);
  void remove_last();
  // The conversation with the opening of the next answer; what messages say never becomes a control token.
  Result<std::vector<int32_t>> encode() const;

 private:
  struct Impl;
  explicit Chat(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Reads messages from the terminal, one a line, and answers until end of input; Ctrl-C ends an answer, and at
// the prompt the conversation. Everything of `request` but its prompt holds for every answer.
int converse(OpenModel& open, const std::string& model_folder, const std::string& system,
             const runtime::Request& request);

}  // namespace latent::cli
