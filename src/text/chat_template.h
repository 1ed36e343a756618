// SPDX-License-Identifier: Apache-2.0
// From a conversation to the text that a model was trained to continue, by the chat template of its folder.
#pragma once

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace latent::text {

// A piece of a prompt. The template writes BOS where its model wants one: the encoder adds none. Special
// tokens are looked for in pieces from the template only, so that text of a user that looks like one stays
// text. Neighbouring pieces differ in from_template; joined they are the whole prompt, and what lies between
// two special tokens is to be pre-tokenised as one, across pieces.
struct PromptSegment {
  std::string text;
  bool from_template = false;
  bool operator==(const PromptSegment&) const = default;
};

// The segments as Tokenizer::encode takes them; views into them.
std::vector<TextPart> text_parts(std::span<const PromptSegment> segments);

struct ChatInput {
  // A JSON array of messages in OpenAI's form: role (needed), content (a string, null or a list of parts),
  // name, reasoning_content, tool_calls, tool_call_id; other keys reach the template as they are. An
  // assistant's absent content beside tool calls counts as null.
  std::string messages_json = "[]";
  std::string tools_json = {};  // a JSON array of tools; empty: none
  bool add_generation_prompt = true;
  // A JSON object of further variables, such as {"enable_thinking": false}; empty: none. They win over all
  // others.
  std::string extra_json = {};
  // Token texts; without a value, those of the folder's tokenizer_config.json.
  std::optional<std::string> bos_token = {};
  std::optional<std::string> eos_token = {};
  std::optional<std::time_t> now = {};  // for strftime_now, local time; none: the clock
};

// Immutable; any number of threads may render one at once. Copies share the template.
class ChatTemplate {
 public:
  // From chat_template.jinja, else from chat_template in tokenizer_config.json: one template, or a list of
  // named ones, of which "default" is used, and "tool_use" where there are tools. Either file also gives its
  // token texts. kNotFound if the folder has no template.
  static Result<ChatTemplate> load(const std::filesystem::path& model_folder);
  static Result<ChatTemplate> parse(const std::string& source);

  // Tool-call arguments, a JSON text in OpenAI's form, become objects for templates that read only objects,
  // and the other way round. Errors name the message and key, or the template's line; kExhausted where a
  // limit of the interpreter ends a render.
  Result<std::vector<PromptSegment>> render(const ChatInput& input) const;

 private:
  struct State;
  explicit ChatTemplate(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

}  // namespace latent::text
