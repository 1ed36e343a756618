// SPDX-License-Identifier: Apache-2.0
// A progress bar on stderr: redrawn in place on a terminal, a line each quarter elsewhere, nothing for work
// that is over at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace latent::cli {

class ProgressBar {
 public:
  // `unit_bytes`: amounts are bytes and shown as MiB.
  ProgressBar(std::string label, bool unit_bytes);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(int64_t done, int64_t total);

 private:
  void draw(int64_t done, int64_t total);
  std::string amounts(int64_t done, int64_t total) const;

  std::string label_;
  bool unit_bytes_;
  bool terminal_;
  bool drawn_ = false;
  int last_quarter_ = 0;
  std::chrono::steady_clock::time_point start_;
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace latent::cli
