// SPDX-License-Identifier: Apache-2.0
// Which form of the cache a kernel is built for. No CUDA here.
#pragma once

namespace latent::attention::cuda {

// How the cache holds its columns (ops/kv_layout.h): as 16-bit floats, as e4m3 codes with one scale, or as
// codes with a scale for each 128 columns and a rope key in bf16.
enum class Codes { kNone, kOneScale, kBlocks };

// A row of codes in shared memory.
template <int kRank, int kRope, Codes kCodes>
struct CodeRow {
  static constexpr int kScaleGroups = kCodes == Codes::kBlocks ? kRank / 128 : 1;
  static constexpr int kColumns = kCodes == Codes::kBlocks ? kRank : kRank + kRope;  // those that are codes
  static constexpr int kRopeAt = kRank + kScaleGroups * 4;                           // of kBlocks, in bytes
  static constexpr int kBytes = kCodes == Codes::kBlocks ? kRopeAt + kRope * 2 : kRank + kRope;
  // From row to row: an odd multiple of 16, which keeps ldmatrix free of bank conflicts.
  static constexpr int kStride = kBytes / 16 % 2 == 1 ? kBytes : kBytes + 16;
  static_assert(kBytes % 16 == 0 && (kCodes != Codes::kBlocks || (kRank % 128 == 0 && kRope % 32 == 0)));
};

}  // namespace latent::attention::cuda
