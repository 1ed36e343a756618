// SPDX-License-Identifier: Apache-2.0
#include "cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "base/check.h"
#include "testing/temp_folder.h"

namespace latent::cli {
namespace {

struct Pipe {
  Pipe() { CHECK(pipe2(ends, O_CLOEXEC) == 0, "no pipe"); }
  int ends[2];
};

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> list;
  for (std::string& s : strings) list.push_back(s.data());
  list.push_back(nullptr);
  return list;
}

pid_t start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment, int in,
            int out, int err) {
  std::vector<std::string> argv{std::string(LATENT_BINARY_DIR) + "/latent"},
      env{"PATH=/usr/bin:/bin", "LATENT_THREADS=1"};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  env.insert(env.end(), environment.begin(), environment.end());
  std::vector<char*> argv_pointers = pointers(argv), env_pointers = pointers(env);
  const pid_t pid = fork();
  CHECK(pid >= 0, "no process");
  if (pid > 0) return pid;
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  execve(argv_pointers[0], argv_pointers.data(), env_pointers.data());
  _exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  CHECK(waitpid(pid, &status, 0) == pid, "lost process {}", pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// Reads both pipes to their ends; `on_output` is called until it says that it has seen enough.
template <class OnOutput>
void drain(int out, int err, Outcome& outcome, OnOutput&& on_output) {
  pollfd ends[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* texts[2] = {&outcome.out, &outcome.err};
  bool told = false;
  for (int open = 2; open > 0;) {
    poll(ends, 2, -1);
    for (int i = 0; i < 2; ++i) {
      if (ends[i].fd < 0 || ends[i].revents == 0) continue;
      char buffer[4096];
      const ssize_t n = read(ends[i].fd, buffer, sizeof buffer);
      if (n <= 0) {
        ends[i].fd = -1;
        --open;
        continue;
      }
      texts[i]->append(buffer, static_cast<size_t>(n));
      told = told || on_output();
    }
  }
}

template <class OnOutput>
Outcome run_process(const std::vector<std::string>& arguments, const std::string& input,
                    const std::vector<std::string>& environment, OnOutput&& on_output) {
  const testing::TempFolder folder;
  const std::string stdin_file = folder.write("stdin", input).string();
  const int in = open(stdin_file.c_str(), O_RDONLY | O_CLOEXEC);
  Pipe out, err;
  Outcome outcome;
  const pid_t pid = start(arguments, environment, in, out.ends[1], err.ends[1]);
  for (const int end : {in, out.ends[1], err.ends[1]}) close(end);
  drain(out.ends[0], err.ends[0], outcome, [&] { return on_output(pid, outcome); });
  outcome.exit_code = wait_for(pid);
  close(out.ends[0]);
  close(err.ends[0]);
  return outcome;
}

}  // namespace

Outcome run_latent(const std::vector<std::string>& arguments, const std::string& input,
                   const std::vector<std::string>& environment) {
  return run_process(arguments, input, environment, [](pid_t, const Outcome&) { return true; });
}

Outcome run_latent_and_interrupt(const std::vector<std::string>& arguments, const std::string& sign,
                                 const std::vector<std::string>& environment) {
  return run_process(arguments, "", environment, [&](pid_t pid, const Outcome& so_far) {
    const bool now = sign.empty() ? !so_far.out.empty() : so_far.err.find(sign) != std::string::npos;
    if (now) kill(pid, SIGINT);
    return now;
  });
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace latent::cli
