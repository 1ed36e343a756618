// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>

#include "cli/say.h"

namespace latent::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kSilence = std::chrono::milliseconds(300);  // work shorter than this shows nothing
constexpr auto kRedraw = std::chrono::milliseconds(50);
constexpr int kBarCells = 30;

}  // namespace

ProgressBar::ProgressBar(std::string label, bool unit_bytes)
    : label_(std::move(label)),
      unit_bytes_(unit_bytes),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      last_draw_(start_) {}

ProgressBar::~ProgressBar() {
  if (drawn_ && terminal_) say("\r\033[K");
}

void ProgressBar::update(int64_t done, int64_t total) {
  const Clock::time_point now = Clock::now();
  if (total <= 0 || now - start_ < kSilence) return;
  if (terminal_) {
    if (now - last_draw_ < kRedraw && done < total) return;
    last_draw_ = now;
    draw(done, total);
    return;
  }
  const int quarter = static_cast<int>(4 * done / total);
  if (quarter <= last_quarter_) return;
  last_quarter_ = quarter;
  say("{}: {} % ({})\n", label_, 25 * quarter, amounts(done, total));
}

void ProgressBar::draw(int64_t done, int64_t total) {
  const int cells = static_cast<int>(kBarCells * done / total);
  say("\r{} [{}{}] {}\033[K", label_, std::string(static_cast<size_t>(cells), '#'),
      std::string(static_cast<size_t>(kBarCells - cells), '.'), amounts(done, total));
  std::fflush(stderr);
  drawn_ = true;
}

std::string ProgressBar::amounts(int64_t done, int64_t total) const {
  if (!unit_bytes_) return fmt::format("{} of {}", done, total);
  return fmt::format("{} of {} MiB", done >> 20, total >> 20);
}

}  // namespace latent::cli
