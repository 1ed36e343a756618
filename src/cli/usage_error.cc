// SPDX-License-Identifier: Apache-2.0
#include "cli/usage_error.h"

#include <CLI/CLI.hpp>
#include <string_view>

namespace latent::cli {
namespace {

// The command that was being parsed, "latent bench model" say, and its words.
struct Command {
  const CLI::App* app;
  std::string words;
};

Command parsed_command(const CLI::App& app) {
  Command command{&app, app.get_name()};
  while (!command.app->get_subcommands().empty()) {
    command.app = command.app->get_subcommands().front();
    command.words += " " + command.app->get_name();
  }
  return command;
}

std::string kind_of_value(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  const std::string type = option != nullptr ? option->get_type_name() : "";
  if (type.compare(0, 4, "UINT") == 0) return "a whole number that is not negative";
  if (type.compare(0, 3, "INT") == 0) return "a whole number";
  return type.compare(0, 5, "FLOAT") == 0 ? "a number" : "another kind of value";
}

// "Could not convert: --context = 1.5" and "--context: 1 required INT missing" say neither what would do nor,
// readably, what is wrong.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = error.what();
  constexpr std::string_view kConvert = "Could not convert: ", kEquals = " = ";
  if (const size_t equals = text.find(kEquals);
      equals != std::string::npos && text.compare(0, kConvert.size(), kConvert) == 0) {
    const std::string flag = text.substr(kConvert.size(), equals - kConvert.size());
    return fmt::format("{} '{}' is too large or not {}", flag, text.substr(equals + kEquals.size()),
                       kind_of_value(app, flag));
  }
  if (error.get_name() == "ArgumentMismatch" && text.find(" missing") != std::string::npos)
    return text.substr(0, text.find(':')) + " needs a value";
  return text;
}

}  // namespace

Error usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const Command command = parsed_command(app);
  return make_error(ErrorCode::kInvalidArgument, "{}; see {} --help", explain(*command.app, error),
                    command.words);
}

}  // namespace latent::cli
