// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <map>
#include <nlohmann/json.hpp>

#include "io/json_text.h"
#include "text/jinja/json_value.h"
#include "text/jinja/printing.h"
#include "text/jinja/template.h"

namespace latent::text {
namespace {

using jinja::Dict;
using jinja::TaggedText;
using jinja::Template;
using jinja::Value;
using jinja::Variables;
using Kind = jinja::Value::Kind;

constexpr int64_t kMaxConfigBytes = int64_t{64} << 20;

// --- The shape of a conversation. All of these throw TemplateError.

const std::vector<Value>& list_at(const Value& value, const std::string& where) {
  if (!value.is(Kind::kSequence)) jinja::fail("{} must be a list, not {}", where, value.type_name());
  return value.as_sequence().items;
}

const Dict& object_at(const Value& value, const std::string& where) {
  if (!value.is(Kind::kDict)) jinja::fail("{} must be an object, not {}", where, value.type_name());
  return value.as_dict();
}

void check_string(const Dict& object, const char* key, const std::string& where, bool required) {
  const Value* value = object.find(key);
  if (!value && required) jinja::fail("{}.{} is missing", where, key);
  if (!value || value->is_string() || (value->is_none() && !required)) return;
  jinja::fail("{}.{} must be a string, not {}", where, key, value->type_name());
}

void check_content(const Value& content, const std::string& where) {
  if (content.is_string() || content.is_none()) return;
  if (!content.is(Kind::kSequence))
    jinja::fail("{} must be a string, null or a list of parts, not {}", where, content.type_name());
  const auto& parts = content.as_sequence().items;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].is_string()) continue;
    const std::string place = fmt::format("{}[{}]", where, i);
    const Dict& part = object_at(parts[i], place);
    check_string(part, "type", place, false);
    const Value* type = part.find("type");
    check_string(part, "text", place, type && type->is_string() && type->as_bytes() == "text");
  }
}

void check_tool_calls(const Value& calls, const std::string& where) {
  if (calls.is_none()) return;
  const auto& list = list_at(calls, where);
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", where, i);
    const Value* function = object_at(list[i], place).find("function");
    if (!function) continue;  // {name, arguments} without the wrapping: the template's affair
    check_string(object_at(*function, place + ".function"), "name", place + ".function", true);
    const Value* arguments = function->as_dict().find("arguments");
    if (arguments && !arguments->is_string() && !arguments->is(Kind::kDict))
      jinja::fail("{}.function.arguments must be a JSON text or an object, not {}", place,
                  arguments->type_name());
  }
}

void check_message(const Value& value, const std::string& where) {
  const Dict& message = object_at(value, where);
  check_string(message, "role", where, true);
  for (const char* key : {"name", "reasoning_content", "tool_call_id"})
    check_string(message, key, where, false);
  if (const Value* content = message.find("content")) check_content(*content, where + ".content");
  if (const Value* calls = message.find("tool_calls")) check_tool_calls(*calls, where + ".tool_calls");
}

// --- Tool-call arguments in the form that a template reads

enum class ArgumentsForm { kAsGiven, kText, kObject };

// A copy of an object with one value put in place of another, or added.
Value with(const Dict& object, const char* key, Value value) {
  Dict copy = object;
  copy.set(Value::string(key, jinja::Origin::kData), std::move(value));
  return Value::dict(std::move(copy));
}

Value convert_arguments(const Value& arguments, ArgumentsForm form, const std::string& where) {
  jinja::Budget unlimited(SIZE_MAX);
  if (form == ArgumentsForm::kText && arguments.is(Kind::kDict))
    return Value::string(jinja::to_json(unlimited, arguments, {}));
  if (form != ArgumentsForm::kObject || !arguments.is_string()) return arguments;
  if (arguments.as_text().empty()) return Value::dict({});  // a call without arguments
  try {
    Value object = jinja::parse_json(arguments.as_bytes());
    object_at(object, where);
    return object;
  } catch (const jinja::TemplateError& error) {
    jinja::fail("{}: the template needs a JSON object here: {}", where, error.message);
  }
}

Value convert_tool_call(const Value& call, ArgumentsForm form, const std::string& where) {
  const Value* function = call.as_dict().find("function");
  const Value* arguments = function ? function->as_dict().find("arguments") : nullptr;
  if (!arguments) return call;
  Value converted = convert_arguments(*arguments, form, where + ".function.arguments");
  return with(call.as_dict(), "function", with(function->as_dict(), "arguments", std::move(converted)));
}

Value prepare_message(const Value& message, ArgumentsForm form, const std::string& where) {
  const Value* calls = message.as_dict().find("tool_calls");
  if (!calls || calls->is_none()) return message;
  std::vector<Value> converted;
  for (const Value& call : calls->as_sequence().items)
    converted.push_back(
        convert_tool_call(call, form, fmt::format("{}.tool_calls[{}]", where, converted.size())));
  Value prepared = with(message.as_dict(), "tool_calls", Value::list(std::move(converted)));
  if (message.as_dict().find("content")) return prepared;
  return with(prepared.as_dict(), "content", Value::none(jinja::Origin::kData));
}

Value prepare_messages(const std::string& json, ArgumentsForm form) {
  const Value given = jinja::parse_json(json);
  std::vector<Value> messages;
  for (const Value& message : list_at(given, "messages")) {
    const std::string where = fmt::format("messages[{}]", messages.size());
    check_message(message, where);
    messages.push_back(prepare_message(message, form, where));
  }
  return Value::list(std::move(messages));
}

// The name of an input, for errors in its JSON.
template <class F>
auto in(const char* what, F f) {
  try {
    return f();
  } catch (jinja::TemplateError& error) {
    if (!error.message.starts_with(what)) error.message = fmt::format("{}: {}", what, error.message);
    throw;
  }
}

std::tm local_time(std::optional<std::time_t> now) {
  const std::time_t seconds = now ? *now : std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

Variables make_variables(const ChatInput& input, const Variables& tokens, ArgumentsForm form) {
  Variables variables;
  variables.emplace_back("messages",
                         in("messages", [&] { return prepare_messages(input.messages_json, form); }));
  Value tools = Value::none();
  if (!input.tools_json.empty()) tools = in("tools", [&] { return jinja::parse_json(input.tools_json); });
  if (!tools.is_none())
    for (const Value& tool : list_at(tools, "tools")) object_at(tool, "each of tools");
  variables.emplace_back("tools", tools);
  variables.emplace_back("documents", Value::none());
  variables.emplace_back("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  variables.insert(variables.end(), tokens.begin(), tokens.end());
  if (input.bos_token) variables.emplace_back("bos_token", Value::string(*input.bos_token));
  if (input.eos_token) variables.emplace_back("eos_token", Value::string(*input.eos_token));
  if (!input.extra_json.empty()) {
    const Value extra = in("extra", [&] { return jinja::parse_json(input.extra_json); });
    for (const auto& [name, value] : object_at(extra, "extra").entries)
      variables.emplace_back(name.as_bytes(), value);
  }
  return variables;
}

Error conversation_error(const jinja::TemplateError& error) { return Error{error.code, error.message}; }

// --- A template and what it was found to read

struct Probed {
  Template source;
  ArgumentsForm form = ArgumentsForm::kAsGiven;
};

// Renders a conversation with a tool call, its arguments once as text and once as an object, to see which the
// template shows. It reads what it is given if it shows both, or neither.
ArgumentsForm probe_arguments_form(const Template& source) {
  const auto shown = [&](const char* arguments) {
    ChatInput input;
    input.bos_token = input.eos_token = "";
    input.messages_json = fmt::format(
        R"([{{"role": "user", "content": "q"}},
            {{"role": "assistant", "content": null, "tool_calls": [{{"id": "call00000", "type": "function",
              "function": {{"name": "f", "arguments": {}}}}}]}},
            {{"role": "tool", "tool_call_id": "call00000", "name": "f", "content": "r"}}])",
        arguments);
    input.tools_json = R"([{"type": "function", "function": {"name": "f", "description": "d",
                            "parameters": {"type": "object", "properties": {}}}}])";
    const Variables variables = make_variables(input, {}, ArgumentsForm::kAsGiven);
    const Result<TaggedText> text = source.render(variables, local_time(0));
    return text.ok() ? text->bytes() : std::string();
  };
  const std::string from_text = shown(R"("{\"probe_key\": \"probe_value\"}")");
  const std::string from_object = shown(R"({"probe_key": "probe_value"})");
  const bool reads_text = from_text.find(R"({"probe_key": "probe_value"})") != std::string::npos;
  const bool reads_object = from_object.find("probe_value") != std::string::npos &&
                            from_object.find("'probe_value'") == std::string::npos;
  if (reads_text == reads_object) return ArgumentsForm::kAsGiven;
  return reads_text ? ArgumentsForm::kText : ArgumentsForm::kObject;
}

Result<Probed> parse_and_probe(const std::string& source) {
  Result<Template> parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.error();
  const ArgumentsForm form = probe_arguments_form(*parsed);
  return Probed{std::move(*parsed), form};
}

// --- Files of a model folder

// The templates by name. An unnamed one is "default".
std::map<std::string, std::string> named_templates(const nlohmann::json& config) {
  std::map<std::string, std::string> sources;
  const auto found = config.find("chat_template");
  if (found == config.end()) return sources;
  if (found->is_string()) sources["default"] = found->get<std::string>();
  if (!found->is_array()) return sources;
  for (const nlohmann::json& entry : *found)
    if (entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
        entry.contains("template") && entry["template"].is_string())
      sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  return sources;
}

// bos_token and its like: texts, or objects with a content.
Variables token_texts(const nlohmann::json& config) {
  Variables tokens;
  for (const char* name :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    const bool wrapped = found->is_object() && found->contains("content");
    const nlohmann::json& text = wrapped ? (*found)["content"] : *found;
    if (text.is_string()) tokens.emplace_back(name, Value::string(text.get<std::string>()));
  }
  return tokens;
}

Result<nlohmann::json> read_config(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) return nlohmann::json::object();
  const Result<std::string> text = io::read_text_file(path, kMaxConfigBytes);
  if (!text.ok()) return text.error();
  if (const Status status = io::check_json(*text); !status.ok())
    return status.error().with_context(path.string());
  nlohmann::json config = nlohmann::json::parse(*text, nullptr, false);
  if (!config.is_object()) return make_error(ErrorCode::kCorrupt, "{}: not a JSON object", path.string());
  return config;
}

}  // namespace

std::vector<TextPart> text_parts(std::span<const PromptSegment> segments) {
  std::vector<TextPart> parts;
  for (const PromptSegment& segment : segments)
    parts.push_back({segment.text, segment.from_template ? SpecialTokens::kParse : SpecialTokens::kAsText});
  return parts;
}

struct ChatTemplate::State {
  Probed usual;
  std::optional<Probed> with_tools;
  Variables tokens;
};

Result<ChatTemplate> ChatTemplate::parse(const std::string& source) {
  Result<Probed> usual = parse_and_probe(source);
  if (!usual.ok()) return usual.error();
  return ChatTemplate(std::make_shared<const State>(State{std::move(*usual), std::nullopt, {}}));
}

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model_folder) {
  const std::filesystem::path config_path = model_folder / "tokenizer_config.json";
  const std::filesystem::path file = model_folder / "chat_template.jinja";
  const Result<nlohmann::json> config = read_config(config_path);
  if (!config.ok()) return config.error();
  std::map<std::string, std::string> sources = named_templates(*config);
  if (std::filesystem::exists(file)) {
    Result<std::string> source = io::read_text_file(file, kMaxConfigBytes);
    if (!source.ok()) return source.error();
    sources = {{"default", std::move(*source)}};
  }
  if (!sources.contains("default"))
    return make_error(ErrorCode::kNotFound,
                      "{} has no chat template: neither chat_template.jinja nor one in {}",
                      model_folder.string(), config_path.filename().string());
  Result<Probed> usual = parse_and_probe(sources["default"]);
  if (!usual.ok()) return usual.error().with_context(model_folder.string());
  State state{std::move(*usual), std::nullopt, token_texts(*config)};
  if (sources.contains("tool_use")) {
    Result<Probed> with_tools = parse_and_probe(sources["tool_use"]);
    if (!with_tools.ok()) return with_tools.error().with_context(model_folder.string() + ", tool_use");
    state.with_tools = std::move(*with_tools);
  }
  return ChatTemplate(std::make_shared<const State>(std::move(state)));
}

Result<std::vector<PromptSegment>> ChatTemplate::render(const ChatInput& input) const {
  const bool tools = !input.tools_json.empty() && input.tools_json != "null";
  const Probed& probed = tools && state_->with_tools ? *state_->with_tools : state_->usual;
  Variables variables;
  try {
    variables = make_variables(input, state_->tokens, probed.form);
  } catch (const jinja::TemplateError& error) {
    return conversation_error(error);
  }
  const Result<TaggedText> text = probed.source.render(variables, local_time(input.now));
  if (!text.ok()) return text.error();
  std::vector<PromptSegment> segments;
  size_t begin = 0;
  for (const TaggedText::Run& run : text->runs()) {
    segments.push_back(
        {text->bytes().substr(begin, run.end - begin), run.origin == jinja::Origin::kTemplate});
    begin = run.end;
  }
  return segments;
}

}  // namespace latent::text
