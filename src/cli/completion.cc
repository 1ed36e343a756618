// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

#include <CLI/CLI.hpp>

namespace latent::cli {
namespace {

// One command and its flags: "bench model" has path {"bench", "model"}.
struct CommandWords {
  std::vector<std::string> path;
  std::vector<std::pair<std::string, std::string>> subcommands;  // name, description
  std::vector<std::pair<std::string, std::string>> flags;        // "--name", description
};

std::string first_sentence(const std::string& text) {
  return text.substr(0, std::min(text.find_first_of(".;\n"), text.size()));
}

// The flags of a command and of its option groups, which are nameless subcommands.
void collect_flags(const CLI::App& app, CommandWords& words) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      words.flags.emplace_back("--" + name, first_sentence(option->get_description()));
  for (const CLI::App* group :
       app.get_subcommands([](const CLI::App* sub) { return sub->get_name().empty(); }))
    collect_flags(*group, words);
}

void collect(const CLI::App& app, std::vector<std::string> path, std::vector<CommandWords>& out) {
  CommandWords words{.path = path, .subcommands = {}, .flags = {}};
  collect_flags(app, words);
  const std::vector<const CLI::App*> subcommands =
      app.get_subcommands([](const CLI::App* sub) { return !sub->get_name().empty(); });
  for (const CLI::App* sub : subcommands)
    words.subcommands.emplace_back(sub->get_name(), first_sentence(sub->get_description()));
  out.push_back(std::move(words));
  for (const CLI::App* sub : subcommands) {
    path.push_back(sub->get_name());
    collect(*sub, path, out);
    path.pop_back();
  }
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string cases;
  for (const CommandWords& c : commands) {
    std::string words;
    for (const auto& [name, help] : c.subcommands) words += name + " ";
    for (const auto& [name, help] : c.flags) words += name + " ";
    cases += "    '" + join(c.path) + "') words='" + words + "' ;;\n";
  }
  std::string names;
  for (const CommandWords& c : commands)
    if (!c.path.empty()) names += "|'" + join(c.path) + "'";
  return "# bash completion of latent: source <(latent completion bash)\n"
         "_latent() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} command= words= i\n"
         "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
         "    case \"${command:+$command }${COMP_WORDS[i]}\" in\n"
         "      " +
         names.substr(1) +
         ") command=\"${command:+$command }${COMP_WORDS[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$command\" in\n" +
         cases +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F _latent latent\n";
}

std::string escape_quotes(const std::string& text, const std::string& escaped) {
  std::string out;
  for (const char c : text) c == '\'' ? out += escaped : out += c;
  return out;
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  const auto entry = [](const std::string& name, const std::string& help) {
    return " '" + name + ":" + escape_quotes(help, "'\\''") + "'";
  };
  std::string cases, names;
  for (const CommandWords& c : commands) {
    std::string words;
    for (const auto& [name, help] : c.subcommands) words += entry(name, help);
    for (const auto& [name, help] : c.flags) words += entry(name, help);
    cases += "    '" + join(c.path) + "') entries=(" + words + ") ;;\n";
    if (!c.path.empty()) names += "|'" + join(c.path) + "'";
  }
  return "#compdef latent\n"
         "# zsh completion of latent: source <(latent completion zsh)\n"
         "_latent() {\n"
         "  local command= i\n"
         "  local -a entries\n"
         "  for ((i = 2; i < CURRENT; i++)); do\n"
         "    case \"${command:+$command }${words[i]}\" in\n"
         "      " +
         names.substr(1) +
         ") command=\"${command:+$command }${words[i]}\" ;;\n"
         "    esac\n"
         "  done\n"
         "  case \"$command\" in\n" +
         cases +
         "  esac\n"
         "  _describe latent entries || _files\n"
         "}\n"
         "compdef _latent latent\n";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string script = "# fish completion of latent: latent completion fish | source\n";
  const auto line = [&](const std::string& condition, const std::string& what, const std::string& help) {
    script +=
        "complete -c latent -n '" + condition + "' " + what + " -d '" + escape_quotes(help, "\\'") + "'\n";
  };
  for (const CommandWords& c : commands) {
    std::string inside =
        c.path.empty() ? "__fish_use_subcommand" : "__fish_seen_subcommand_from " + c.path.back();
    for (const auto& [name, help] : c.subcommands) line(inside, "-f -a " + name, help);
    for (const auto& [name, help] : c.flags) line(inside, "-l " + name.substr(2), help);
  }
  return script;
}

}  // namespace

Result<std::string> completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  collect(app, {}, commands);
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  return make_error(ErrorCode::kInvalidArgument, "no completion for shell '{}'; there is bash, zsh and fish",
                    shell);
}

}  // namespace latent::cli
