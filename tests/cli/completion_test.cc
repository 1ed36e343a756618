// SPDX-License-Identifier: Apache-2.0
// latent completion, run as a user runs it, on a tiny checkpoint.
#include <cstdlib>

#include "cli/fixture.h"

namespace latent::cli {
namespace {

using CompletionCommand = TinyModelTest;

TEST_F(CompletionCommand, completion_scripts_name_every_command) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const Outcome script = run_latent({"completion", shell});
    EXPECT_EQ(script.exit_code, 0);
    for (const char* word : {"perplexity", "max-tokens", "decode-tokens", "token-ids"})
      EXPECT_TRUE(contains(script.out, word)) << shell << " " << word;
  }
  const std::string file = write("completion.bash", run_latent({"completion", "bash"}).out);
  const std::string check =
      "bash -c 'source " + file +
      "; COMP_WORDS=(latent run --max); COMP_CWORD=2; _latent; [ \"$COMPREPLY\" = --max-tokens ]'";
  EXPECT_EQ(std::system(check.c_str()), 0);
}

}  // namespace
}  // namespace latent::cli
