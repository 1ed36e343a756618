// SPDX-License-Identifier: Apache-2.0
// The program: environment, command line, command, exit code.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>
#include <system_error>
#include <tuple>

#include "base/env.h"
#include "base/log.h"
#include "base/peak_memory.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/environment.h"
#include "cli/exit_code.h"
#include "cli/usage_error.h"
#include "cli/version.h"

namespace latent::cli {

void add_completion(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("completion", "Print a completion script for a shell");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish: source <(latent completion bash)")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&app, &action, shell] {
    action = [&app, shell] {
      const Result<std::string> script = completion_script(app, *shell);
      if (!script) return fail(script.error());
      std::fputs(script->c_str(), stdout);
      return static_cast<int>(kOk);
    };
  });
}

namespace {

constexpr char kFooter[] =
    R"(Results go to stdout, everything else to stderr. Every flag can also be set in the environment: --max-tokens by
LATENT_MAX_TOKENS, a switch by 1 or 0; the command line wins.

Exit codes: 0 done; 1 failed at run (memory, non-finite numbers, output); 2 wrong flag, value, id or prompt;
3 model or input file missing, corrupt or not supported; 130 ended by Ctrl-C (run prints the answer so far,
bench attention the rows).

Examples:
  latent run models/tiny --prompt "In the beginning" --max-tokens 100
  latent run models/tiny --token-ids ids.json --temperature 0 --json
  latent score models/tiny --text page.txt --logits out.safetensors
  latent inspect --shape v3
)";

// What was closed when we were started gets a file that refuses to be used: otherwise the next file opened, a
// result perhaps, would take the number 2 and be sent what is said on stderr.
void keep_standard_files() {
  for (int fd = 0; fd <= 2; ++fd)
    if (fcntl(fd, F_GETFD) == -1) std::ignore = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
}

int flush_stdout(int code) {
  const bool ok = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (ok || code != kOk) return code;
  return fail(make_error(ErrorCode::kIo, "stdout did not take all of the result"));
}

// A word where a command should be, or "".
std::string unknown_command(const CLI::App& app) {
  const CLI::App* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  const std::vector<std::string> rest = command->remaining();
  return command->get_require_subcommand_min() > 0 && !rest.empty() ? rest.front() : "";
}

// What the libraries below us throw: {fmt} when stdout takes no more, the standard library without memory.
int act(const Action& action) {
  try {
    return action();
  } catch (const std::system_error& error) {
    return fail(
        make_error(ErrorCode::kIo, "stdout did not take all of the result ({})", error.code().message()));
  } catch (const std::bad_alloc&) {
    return fail(
        make_error(ErrorCode::kExhausted, "out of memory; try a smaller --context or --prefill-chunk"));
  }
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Inference engine for models with multi-head latent attention: generate, score, measure.",
               "latent");
  Action action;
  app.set_version_flag("-V,--version", version_text());
  app.require_subcommand(1);
  // A command takes what its flags are told as soon as it is parsed; otherwise every command would read, and
  // refuse, variables that are meant for another.
  app.immediate_callback();
  app.footer(kFooter + environment_help());
  add_run(app, action);
  add_score(app, action);
  add_perplexity(app, action);
  add_inspect(app, action);
  add_compare(app, action);
  add_bench(app, action);
  add_completion(app, action);
  name_environment(app);
  warn_unknown_environment(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (const std::string word = unknown_command(app); !word.empty() && error.get_exit_code() != 0)
      return fail(
          make_error(ErrorCode::kInvalidArgument, "no command is called '{}'; --help lists them", word));
    return error.get_exit_code() == 0 ? app.exit(error) : fail(usage_error(app, error));
  }
  const int code = act(action);
  log(LogLevel::kDebug, "peak resident memory: {} bytes", peak_resident_bytes());
  return code;
}

}  // namespace
}  // namespace latent::cli

int main(int argc, char** argv) {
  using namespace latent;
  cli::keep_standard_files();
  if (const Status s = cli::read_environment(); !s) return cli::fail(s.error());
  return cli::flush_stdout(cli::parse_and_run(argc, argv));
}
