// SPDX-License-Identifier: Apache-2.0
#include "cli/ceilings.h"

#include <gtest/gtest.h>

#include <cstring>

#include "device/host_buffer.h"
#include "testing/random.h"

namespace latent::cli {
namespace {

TEST(Ceilings, every_loop_form_reads_every_byte) {
  const std::vector<ReadForm> forms = read_forms();
  EXPECT_GE(forms.size(), 6u);
  std::mt19937 rng(testing::test_seed());
  // Lengths that leave a rest to every number of streams.
  for (const size_t size : {64, 640, 4096, 64 * 37, 64 * 1021}) {
    Result<HostBuffer> buffer = HostBuffer::create(size);
    ASSERT_TRUE(buffer.ok());
    for (size_t i = 0; i < size; ++i) buffer->data()[i] = static_cast<std::byte>(rng());
    unsigned long long expected = 0;
    for (size_t i = 0; i < size; i += 8) {
      unsigned long long word = 0;
      std::memcpy(&word, buffer->data() + i, 8);
      expected ^= word;
    }
    for (const ReadForm& form : forms)
      EXPECT_EQ(form.read(buffer->data(), buffer->data() + size), expected) << form.name << ", " << size;
  }
}

TEST(Ceilings, the_best_rate_is_kept_and_what_may_be_read_is_bounded) {
  Result<HostBuffer> buffer = HostBuffer::create(1 << 16);
  ASSERT_TRUE(buffer.ok());
  std::memset(buffer->data(), 1, buffer->size_bytes());
  const ByteRegion whole(buffer->data(), buffer->size_bytes());
  ReadCeiling ceiling({whole.subspan(1, 1000), whole}, 10000, 1);
  EXPECT_EQ(ceiling.num_bytes(), 896u + 9088u) << "whole lines only";
  ceiling.measure_for(0);
  const double best = ceiling.best_bytes_per_second();
  EXPECT_GT(best, 0);
  for (int i = 0; i < 10; ++i) ceiling.measure_best();
  EXPECT_GE(ceiling.best_bytes_per_second(), best);
}

}  // namespace
}  // namespace latent::cli
