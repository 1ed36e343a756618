// SPDX-License-Identifier: Apache-2.0
#include "runtime/batch.h"

#include "base/check.h"
#include "base/math.h"

namespace latent::runtime {

Batch::Batch(const exec::StepLimits& limits, int page_tokens) : limits_(limits), page_tokens_(page_tokens) {
  const auto tokens = static_cast<size_t>(limits.max_tokens), seqs = static_cast<size_t>(limits.max_seqs);
  for (std::vector<int32_t>* rows : {&token_ids_, &positions_, &slots_}) rows->reserve(tokens);
  q_starts_.reserve(seqs + 1);
  kv_lens_.reserve(seqs);
  block_table_.reserve(seqs * static_cast<size_t>(limits.max_pages));
  output_rows_.reserve(static_cast<size_t>(limits.max_outputs));
  clear();
}

void Batch::clear() {
  for (std::vector<int32_t>* array :
       {&token_ids_, &positions_, &slots_, &q_starts_, &kv_lens_, &block_table_, &output_rows_})
    array->clear();
  q_starts_.push_back(0);
}

void Batch::add_row(int32_t token, int32_t position, int32_t slot) {
  token_ids_.push_back(token);
  positions_.push_back(position);
  slots_.push_back(slot);
}

void Batch::end_seq(int kv_len, std::span<const int32_t> pages) {
  CHECK(num_tokens() <= limits_.max_tokens, "a step of {} tokens; at most {}", num_tokens(),
        limits_.max_tokens);
  CHECK(num_seqs() < limits_.max_seqs, "a step of more than {} requests", limits_.max_seqs);
  CHECK(num_outputs() <= limits_.max_outputs, "a step of {} outputs; at most {}", num_outputs(),
        limits_.max_outputs);
  q_starts_.push_back(num_tokens());
  kv_lens_.push_back(kv_len);
  block_table_.insert(block_table_.end(), pages.begin(), pages.end());
  block_table_.resize(static_cast<size_t>(num_seqs()) * static_cast<size_t>(limits_.max_pages),
                      ops::kNullPage);
}

void Batch::add(const BatchRows& rows) {
  const int num_pages = ceil_div(rows.end, page_tokens_);
  CHECK(0 <= rows.begin && rows.begin < rows.end && rows.end <= static_cast<int>(rows.tokens.size()),
        "rows {} to {} of {} tokens", rows.begin, rows.end, rows.tokens.size());
  CHECK(num_pages <= static_cast<int>(rows.pages.size()) && num_pages <= limits_.max_pages,
        "{} tokens need {} pages; {} are held, {} fit a step", rows.end, num_pages, rows.pages.size(),
        limits_.max_pages);
  CHECK(rows.num_outputs <= rows.end - rows.begin, "{} outputs of {} rows", rows.num_outputs,
        rows.end - rows.begin);
  for (int position = rows.begin; position < rows.end; ++position) {
    const int32_t page = rows.pages[static_cast<size_t>(position / page_tokens_)];
    if (position >= rows.end - rows.num_outputs) output_rows_.push_back(num_tokens());
    add_row(rows.tokens[static_cast<size_t>(position)], position,
            page * page_tokens_ + position % page_tokens_);
  }
  end_seq(rows.end, rows.pages.first(static_cast<size_t>(num_pages)));
}

void Batch::add_padding(int num_seqs) {
  for (int i = 0; i < num_seqs; ++i) {
    add_row(0, 0, ops::kSkipSlot);
    end_seq(0, {});
  }
}

exec::StepInputs Batch::inputs() const {
  return {.token_ids = token_ids_,
          .positions = positions_,
          .slots = slots_,
          .q_starts = q_starts_,
          .kv_lens = kv_lens_,
          .block_table = block_table_,
          .block_table_width = limits_.max_pages,
          .output_rows = output_rows_};
}

}  // namespace latent::runtime
