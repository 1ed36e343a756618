// SPDX-License-Identifier: Apache-2.0
// Moves a weight's parts from mapped files into its own memory: converted, checked finite, the file's pages
// let go behind, on several threads.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "model/weight_map.h"
#include "tensor/tensor_view.h"

namespace latent::model {

// One rectangle of a source tensor and where it goes. Rows are contiguous on both sides.
struct CopyJob {
  const io::FileTensor* tensor = nullptr;
  const io::SafetensorsFile* file = nullptr;
  int64_t source_offset = 0;  // elements before the first one read
  int64_t source_stride = 0;  // elements from row to row
  int64_t rows = 0;
  int64_t cols = 0;
  TensorView dest;  // [rows, cols]; a float type
};

// The job that fills `part` of `dest` (the whole weight). The shapes have been checked.
CopyJob make_copy_job(const WeightPart& part, const io::Checkpoint::Entry& source, const TensorView& dest);

// Runs the jobs; kNonFinite names file, tensor and element of the first bad value. `progress`, called on the
// calling thread every few MiB, is given the bytes written so far; when it answers false the jobs end early,
// and so does this: false.
Result<bool> run_copy_jobs(const std::vector<CopyJob>& jobs, int num_threads,
                           const std::function<bool(int64_t)>& progress);

}  // namespace latent::model
