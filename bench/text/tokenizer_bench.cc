// SPDX-License-Identifier: Apache-2.0
// How fast a tokenizer loads, encodes and decodes on one core:
//   latent_bench_tokenizer MODEL_FOLDER [FILE…]
// Without files: made-up texts that are hard for some tokenizers. Best of several runs, in 10^6 bytes a
// second.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

#include "text/tokenizer.h"

namespace {

using latent::text::SpecialTokens;
using latent::text::Tokenizer;

constexpr int kRuns = 7;

double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Seconds of the fastest of several runs.
template <class Body>
double best_seconds(Body body) {
  double best = 1e30;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now();
    body();
    best = std::min(best, now() - begin);
  }
  return best;
}

void report(const Tokenizer& tokenizer, std::string_view name, const std::string& text) {
  std::vector<int32_t> ids;
  const double encode = best_seconds([&] {
    auto encoded = tokenizer.encode(text, SpecialTokens::kParse);
    if (!encoded) {
      fmt::print(stderr, "{}\n", encoded.error().message);
      std::exit(1);
    }
    ids = std::move(*encoded);
  });
  size_t decoded = 0;
  const double decode = best_seconds([&] { decoded = tokenizer.decode(ids, false).size(); });
  fmt::print("{:<28} {:>9} bytes {:>8} tokens  encode {:6.1f} MB/s  decode {:6.1f} MB/s\n", name, text.size(),
             ids.size(), text.size() / encode * 1e-6, decoded / decode * 1e-6);
}

std::string repeated(std::string_view text, size_t size) {
  std::string out;
  while (out.size() < size) out += text;
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} MODEL_FOLDER [FILE...]\n", argv[0]);
    return 2;
  }
  auto loaded = Tokenizer::load(argv[1]);
  if (!loaded) {
    fmt::print(stderr, "{}\n", loaded.error().message);
    return 1;
  }
  fmt::print("load {:.0f} ms, {} tokens\n", 1e3 * best_seconds([&] { loaded = Tokenizer::load(argv[1]); }),
             (*loaded)->vocab_size());
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    report(**loaded, std::string_view(argv[i]).substr(std::string_view(argv[i]).rfind('/') + 1), text);
  }
  if (argc > 2) return 0;
  constexpr size_t kSize = 1 << 20;
  report(**loaded, "one letter", repeated("a", kSize));
  report(**loaded, "spaces, then a letter", repeated(" ", kSize) + "x");
  report(**loaded, "line ends", repeated("\n", kSize));
  report(**loaded, "Han without a break", repeated("北京東京日本語", kSize));
  report(**loaded, "letters with marks", repeated("e\u0301", kSize));
  report(**loaded, "the start of a control token", repeated("<", kSize));
  return 0;
}
