// SPDX-License-Identifier: Apache-2.0
#include "model/weight_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <optional>

#include "base/math.h"
#include "base/parallel.h"
#include "tensor/convert.h"

namespace latent::model {
namespace {

constexpr int64_t kChunkBytes = 4 << 20;    // what a thread takes at a time
constexpr int64_t kRunElements = 16 << 10;  // copied, then checked while still in cache

// Rows [begin, end) of one job.
struct Chunk {
  size_t job;
  Range rows;
};

std::vector<Chunk> make_chunks(const std::vector<CopyJob>& jobs) {
  std::vector<Chunk> chunks;
  for (size_t j = 0; j < jobs.size(); ++j) {
    const int64_t row_bytes = jobs[j].cols * static_cast<int64_t>(dtype_bytes(jobs[j].dest.dtype()));
    const int64_t rows = std::max<int64_t>(1, kChunkBytes / std::max<int64_t>(1, row_bytes));
    for (int64_t begin = 0; begin < jobs[j].rows; begin += rows)
      chunks.push_back({j, {begin, std::min(begin + rows, jobs[j].rows)}});
  }
  return chunks;
}

// Converts `count` elements from unaligned bytes; false if a result is not finite.
bool copy_run(const std::byte* from, DType from_type, std::byte* to, DType to_type, int64_t count,
              int64_t* bad) {
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(count) * dtype_bytes(to_type));
  } else {
    alignas(8) std::byte aligned[kRunElements * 4];
    std::memcpy(aligned, from, static_cast<size_t>(count) * dtype_bytes(from_type));
    convert_elements(aligned, from_type, to, to_type, count);
  }
  const std::optional<int64_t> found = find_non_finite(to, to_type, count);
  if (found) *bad = *found;
  return !found;
}

std::string element_name(const std::vector<int64_t>& dims, int64_t index) {
  std::string text;
  for (size_t i = dims.size(); i-- > 0;) {
    text = fmt::format("{}{}{}", index % dims[i], text.empty() ? "" : ", ", text);
    index /= dims[i];
  }
  return text;
}

Error non_finite(const CopyJob& job, int64_t index) {
  return make_error(ErrorCode::kNonFinite,
                    "{}: tensor '{}' is not finite at [{}] (stored as {}, loaded as {})",
                    job.file->path().string(), job.tensor->name, element_name(job.tensor->dims, index),
                    job.tensor->dtype_name, to_string(job.dest.dtype()));
}

Status copy_chunk(const CopyJob& job, Range rows) {
  const DType from_type = *job.tensor->dtype, to_type = job.dest.dtype();
  const auto from_bytes = static_cast<int64_t>(dtype_bytes(from_type)),
             to_bytes = static_cast<int64_t>(dtype_bytes(to_type));
  // Rows that follow each other on both sides are one run.
  const bool joined = job.source_stride == job.cols && job.dest.stride(0) == job.cols;
  const int64_t num_runs = joined ? 1 : rows.size(), run = joined ? rows.size() * job.cols : job.cols;
  for (int64_t r = 0; r < num_runs; ++r) {
    const int64_t first = job.source_offset + (rows.begin + r) * job.source_stride;
    const std::byte* from = job.tensor->bytes.data() + first * from_bytes;
    std::byte* to =
        static_cast<std::byte*>(job.dest.raw()) + (rows.begin + r) * job.dest.stride(0) * to_bytes;
    for (int64_t done = 0; done < run; done += kRunElements) {
      int64_t bad = 0;
      const int64_t count = std::min(kRunElements, run - done);
      if (!copy_run(from + done * from_bytes, from_type, to + done * to_bytes, to_type, count, &bad))
        return non_finite(job, first + done + bad);
    }
  }
  const int64_t begin = job.source_offset + rows.begin * job.source_stride;
  const int64_t end = job.source_offset + (rows.end - 1) * job.source_stride + job.cols;
  job.file->drop(job.tensor->bytes.subspan(static_cast<size_t>(begin * from_bytes),
                                           static_cast<size_t>((end - begin) * from_bytes)));
  return {};
}

}  // namespace

CopyJob make_copy_job(const WeightPart& part, const io::Checkpoint::Entry& source, const TensorView& dest) {
  const int64_t cols = part.source_dims.back();
  const int64_t rows = part.source_dims.size() > 1 ? part.source_dims[part.source_dims.size() - 2] : 1;
  const int64_t matrix = part.source_index > 0 ? part.source_index * rows * cols : 0;
  TensorView view = part.dest_index >= 0 ? dest.at(part.dest_index) : dest;
  if (view.rank() == 1) view = view.reshape({1, view.dim(0)});
  return {.tensor = source.tensor,
          .file = source.file,
          .source_offset = matrix + part.rows.begin * cols + part.cols.begin,
          .source_stride = cols,
          .rows = part.rows.size(),
          .cols = part.cols.size(),
          .dest = view};
}

Result<bool> run_copy_jobs(const std::vector<CopyJob>& jobs, int num_threads,
                           const std::function<bool(int64_t)>& progress) {
  const std::vector<Chunk> chunks = make_chunks(jobs);
  std::atomic<size_t> next{0};
  std::atomic<int64_t> done_bytes{0};
  std::mutex mutex;
  size_t first_bad = chunks.size();  // the earliest bad chunk, so that the message does not depend on timing
  Status status;
  bool whole = true;
  const auto work = [&](int thread, int) {
    for (size_t i = next++; i < chunks.size(); i = next++) {
      const CopyJob& job = jobs[chunks[i].job];
      Status copied = copy_chunk(job, chunks[i].rows);
      done_bytes += chunks[i].rows.size() * job.cols * static_cast<int64_t>(dtype_bytes(job.dest.dtype()));
      if (thread == 0 && !progress(done_bytes)) {
        whole = false;
        next = chunks.size();
      }
      if (copied) continue;
      const std::lock_guard lock(mutex);
      next = chunks.size();
      if (i < first_bad) {
        first_bad = i;
        status = std::move(copied);
      }
    }
  };
  parallel_team(chunks.size() > 1 ? num_threads : 1, work);
  if (!status) return status.error();
  return whole;
}

}  // namespace latent::model
