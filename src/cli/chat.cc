// SPDX-License-Identifier: Apache-2.0
#include "cli/chat.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/generate.h"
#include "cli/interrupt.h"
#include "cli/say.h"
#include "text/chat_template.h"

namespace latent::cli {

struct Chat::Impl {
  text::ChatTemplate chat_template;
  const text::Tokenizer* tokenizer;
  nlohmann::json messages = nlohmann::json::array();
};

Chat::Chat(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Chat::Chat(Chat&&) noexcept = default;
Chat::~Chat() = default;

Result<Chat> Chat::open(const std::string& model_folder, const text::Tokenizer& tokenizer) {
  Result<text::ChatTemplate> loaded = text::ChatTemplate::load(model_folder);
  if (!loaded && loaded.error().code == ErrorCode::kNotFound)
    return make_error(ErrorCode::kUnsupported,
                      "{} has no chat template; leave --chat out to continue plain text", model_folder);
  if (!loaded) return loaded.error();
  return Chat(std::unique_ptr<Impl>(new Impl{*std::move(loaded), &tokenizer}));
}

void Chat::add(const std::string& role, const std::string& content) {
  impl_->messages.push_back({{"role", role}, {"content", content}});
}

void Chat::remove_last() { impl_->messages.erase(impl_->messages.size() - 1); }

Result<std::vector<int32_t>> Chat::encode() const {
  text::ChatInput input;
  input.messages_json = impl_->messages.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const Result<std::vector<text::PromptSegment>> segments = impl_->chat_template.render(input);
  if (!segments) return segments.error().with_context("chat template");
  return impl_->tokenizer->encode(text::text_parts(*segments));
}

namespace {

// One answer to the conversation so far, streamed. False if it could not be given.
bool answer_turn(runtime::Engine& engine, Chat& chat, runtime::Request request) {
  Result<std::vector<int32_t>> ids = chat.encode();
  if (!ids) {
    fail(ids.error());
    return false;
  }
  request.prompt = *std::move(ids);
  const Result<runtime::RequestId> id = engine.submit(std::move(request));
  if (!id) {
    fail(id.error());
    return false;
  }
  Answer answer =
      generate(engine, *id, [](const runtime::RequestOutput& delta) { return stream_out(delta.text); });
  if (const Status ended = stream_out("\n"); !ended && !answer.error) answer.error = ended.error();
  if (answer.error) {
    fail(*answer.error);
    return false;
  }
  chat.add("assistant", answer.text);
  return true;
}

}  // namespace

int converse(OpenModel& open, const std::string& model_folder, const std::string& system,
             const runtime::Request& request) {
  if (open.tokenizer == nullptr)
    return fail(
        make_error(ErrorCode::kUnsupported, "{} has no tokenizer; a conversation needs one", model_folder));
  Result<Chat> chat = Chat::open(model_folder, *open.tokenizer);
  if (!chat) return fail(chat.error());
  if (!system.empty()) chat->add("system", system);
  for (std::string line;;) {
    catch_interrupts(/*end_reads=*/true);
    say("> ");
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    catch_interrupts();
    chat->add("user", line);
    // What could not be answered is not part of the conversation.
    if (!answer_turn(*open.engine, *chat, request)) chat->remove_last();
    if (std::ferror(stdout) != 0) return kRunError;  // answer_turn has said so
  }
  say("\n");
  return interrupted() ? kCancelled : kOk;
}

}  // namespace latent::cli
