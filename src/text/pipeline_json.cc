// SPDX-License-Identifier: Apache-2.0
#include "text/pipeline_json.h"

#include <functional>
#include <map>

#include "text/json_fields.h"

namespace latent::text {
namespace {

// Sequences may nest; deeper than this is no real file.
constexpr int kMaxDepth = 8;
// The pattern of ByteLevel with use_regex: GPT-2's.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

Error unsupported(std::string_view part, std::string_view what) {
  return make_error(ErrorCode::kUnsupported, "{} '{}' is not supported", part, what);
}

// Calls visit on every component that is no Sequence, in order. `key` holds the list of a Sequence.
Status for_each_component(const Json& json, const char* key, const std::function<Status(const Json&)>& visit,
                          int depth = 0) {
  if (json.is_null()) return {};
  if (depth > kMaxDepth) return make_error(ErrorCode::kCorrupt, "'{}' nest deeper than {}", key, kMaxDepth);
  if (type_of(json) != "Sequence") return visit(json);
  for (const Json& inner : field(json, key))
    if (Status done = for_each_component(inner, key, visit, depth + 1); !done) return done;
  return {};
}

// {"String": …} or {"Regex": …}.
Result<Regex> read_pattern(const Json& json) {
  if (const auto text = string_field(json, "String")) return Regex::compile(escape_pattern(*text));
  if (const auto regex = string_field(json, "Regex")) return Regex::compile(*regex);
  return make_error(ErrorCode::kCorrupt, "a pattern that is neither a String nor a Regex");
}

Status read_normalizer_step(const Json& json, Normalizer& out) {
  static const std::map<std::string, UnicodeForm> kForms = {{"NFC", UnicodeForm::kNfc},
                                                            {"NFD", UnicodeForm::kNfd},
                                                            {"NFKC", UnicodeForm::kNfkc},
                                                            {"NFKD", UnicodeForm::kNfkd}};
  const std::string type = type_of(json);
  if (const auto form = kForms.find(type); form != kForms.end()) {
    out.add(form->second);
  } else if (type == "Prepend") {
    out.add(PrependText{string_field(json, "prepend").value_or("")});
  } else if (type == "Replace") {
    Result<Regex> pattern = read_pattern(field(json, "pattern"));
    if (!pattern) return pattern.error();
    out.add(ReplaceText{std::move(*pattern), string_field(json, "content").value_or("")});
  } else {
    return unsupported("normalizer", type);
  }
  return {};
}

Result<SplitBehavior> read_behavior(const Json& json) {
  static const std::map<std::string, SplitBehavior> kBehaviors = {
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  const std::string name = string_field(json, "behavior").value_or("(none)");
  const auto behavior = kBehaviors.find(name);
  if (behavior == kBehaviors.end()) return unsupported("Split behavior", name);
  return behavior->second;
}

Status read_split(const Json& json, PreTokenizerShape& out) {
  Result<Regex> pattern = read_pattern(field(json, "pattern"));
  if (!pattern) return pattern.error();
  const Result<SplitBehavior> behavior = read_behavior(json);
  if (!behavior) return behavior.error();
  out.steps.add(make_split(std::move(*pattern), *behavior, bool_or(json, "invert", false)));
  return {};
}

Status add_isolating(std::string_view pattern, PreTokenizerShape& out) {
  Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return regex.error();
  out.steps.add(make_split(std::move(*regex), SplitBehavior::kIsolated, false));
  return {};
}

Status read_byte_level(const Json& json, PreTokenizerShape& out) {
  out.byte_level = true;
  if (bool_or(json, "add_prefix_space", true)) out.steps.add(make_prefix_space());
  return bool_or(json, "use_regex", true) ? add_isolating(kByteLevelPattern, out) : Status();
}

Status read_metaspace(const Json& json, PreTokenizerShape& out) {
  static const std::map<std::string, PrependScheme> kSchemes = {
      {"always", PrependScheme::kAlways}, {"first", PrependScheme::kFirst}, {"never", PrependScheme::kNever}};
  const bool old_prefix = bool_or(json, "add_prefix_space", true);
  const std::string name = string_field(json, "prepend_scheme").value_or(old_prefix ? "always" : "never");
  const auto scheme = kSchemes.find(name);
  if (scheme == kSchemes.end()) return unsupported("Metaspace prepend_scheme", name);
  const std::string replacement = string_field(json, "replacement").value_or("");
  if (replacement.empty()) return make_error(ErrorCode::kCorrupt, "Metaspace without a replacement");
  out.steps.add(make_metaspace(replacement, scheme->second, bool_or(json, "split", true)));
  return {};
}

Status read_pre_tokenizer_step(const Json& json, PreTokenizerShape& out) {
  const std::string type = type_of(json);
  if (out.byte_level) return unsupported("pre_tokenizer after ByteLevel", type);
  if (type == "Split") return read_split(json, out);
  if (type == "ByteLevel") return read_byte_level(json, out);
  if (type == "Metaspace") return read_metaspace(json, out);
  if (type == "Digits")
    return add_isolating(bool_or(json, "individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)", out);
  return unsupported("pre_tokenizer", type);
}

Status read_strip(const Json& json, bool fused, DecoderSpec& out) {
  const std::optional<int64_t> start = integer(field(json, "start"));
  const std::optional<int64_t> stop = integer(field(json, "stop"));
  const bool understood = fused && string_field(json, "content") == " " && start && *start >= 0 && stop == 0;
  if (!understood)
    return unsupported("decoder", "Strip " + json.dump(-1, ' ', true, Json::error_handler_t::replace));
  out.strip_leading_spaces = static_cast<size_t>(*start);
  return {};
}

Status read_decoder_step(const Json& json, bool& fused, DecoderSpec& out) {
  const std::string type = type_of(json);
  if (type == "Strip") return read_strip(json, fused, out);
  if (fused || out.byte_level) return unsupported("decoder after Fuse or ByteLevel", type);
  if (type == "ByteLevel") {
    out.byte_level = true;
  } else if (type == "ByteFallback") {
    out.byte_fallback = true;
  } else if (type == "Fuse") {
    fused = true;
  } else if (type == "Metaspace") {
    out.replacements.emplace_back(string_field(json, "replacement").value_or("\xE2\x96\x81"), " ");
    out.first_token_drops_spaces = string_field(json, "prepend_scheme").value_or("always") != "never" &&
                                   bool_or(json, "add_prefix_space", true);
  } else if (type == "Replace") {
    const auto from = string_field(field(json, "pattern"), "String");
    if (!from || from->empty()) return unsupported("decoder", "Replace by regex");
    out.replacements.emplace_back(*from, string_field(json, "content").value_or(""));
  } else {
    return unsupported("decoder", type);
  }
  return {};
}

// The ids that TemplateProcessing's "special_tokens" gives for a name.
Result<std::vector<int32_t>> template_ids(const Json& json, const std::string& name) {
  std::vector<int32_t> ids;
  for (const Json& value : field(field(field(json, "special_tokens"), name.c_str()), "ids")) {
    const std::optional<int64_t> id = integer(value);
    if (!id || *id < 0 || *id >= TokenizerParts::kMaxTokens)
      return make_error(ErrorCode::kCorrupt, "TemplateProcessing: an id of '{}' is no token id", name);
    ids.push_back(static_cast<int32_t>(*id));
  }
  if (ids.empty()) return make_error(ErrorCode::kCorrupt, "TemplateProcessing: no ids for '{}'", name);
  return ids;
}

Status read_template(const Json& json, TokenizerParts& parts) {
  bool after_text = false;
  for (const Json& piece : field(json, "single")) {
    const auto name = string_field(field(piece, "SpecialToken"), "id");
    if (!name) {
      if (after_text || string_field(field(piece, "Sequence"), "id") != "A")
        return unsupported("TemplateProcessing", "single with more than one sequence");
      after_text = true;
      continue;
    }
    const Result<std::vector<int32_t>> ids = template_ids(json, *name);
    if (!ids) return ids.error();
    std::vector<int32_t>& side = after_text ? parts.suffix : parts.prefix;
    side.insert(side.end(), ids->begin(), ids->end());
  }
  if (!after_text) return make_error(ErrorCode::kCorrupt, "TemplateProcessing: 'single' holds no sequence");
  return {};
}

}  // namespace

Status read_normalizer(const Json& json, Normalizer& out) {
  return for_each_component(json, "normalizers", [&](const Json& j) { return read_normalizer_step(j, out); });
}

Result<PreTokenizerShape> read_pre_tokenizer(const Json& json) {
  PreTokenizerShape shape;
  Status read = for_each_component(json, "pretokenizers",
                                   [&](const Json& j) { return read_pre_tokenizer_step(j, shape); });
  if (!read) return read.error();
  return shape;
}

Result<DecoderSpec> read_decoder(const Json& json) {
  if (json.is_null()) return unsupported("decoder", "null");
  DecoderSpec decoder;
  bool fused = false;
  Status read = for_each_component(json, "decoders",
                                   [&](const Json& j) { return read_decoder_step(j, fused, decoder); });
  if (!read) return read.error();
  return decoder;
}

Status read_post_processor(const Json& json, TokenizerParts& parts) {
  return for_each_component(json, "processors", [&](const Json& j) -> Status {
    const std::string type = type_of(j);
    if (type == "ByteLevel") return {};  // it only trims offsets
    if (type == "TemplateProcessing") return read_template(j, parts);
    return unsupported("post_processor", type);
  });
}

}  // namespace latent::text
