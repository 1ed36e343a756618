/* SPDX-License-Identifier: Apache-2.0
 *
 * One decode step over a paged latent cache through the C interface, checked against plain loops.
 *
 * Two requests with 100 and 37 tokens in the cache, one new token each, 16 heads, a latent of 512 and a rope
 * key of 64 numbers, bf16. In host memory, or, built with LATENT_EXAMPLE_CUDA where there is a GPU, in device
 * memory. Prints the backend and the largest error; the exit status is 0 if that is within bf16's rounding.
 */
#include <latent/attention.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LATENT_EXAMPLE_CUDA
#include <cuda_runtime_api.h>
#endif

enum {
  HEADS = 16,
  LATENT = 512,
  ROPE = 64,
  WIDTH = LATENT + ROPE,
  PAGE = 64,
  SEQS = 2,
  PAGES = 4,
  COLUMNS = 2
};

static const int32_t kv_lens[SEQS] = {100, 37};
static const int32_t q_starts[SEQS + 1] = {0, 1, 2};
static const int32_t block_table[SEQS * COLUMNS] = {2, 0, 3, -1}; /* the second request needs one page */

static uint16_t query[SEQS * HEADS * WIDTH]; /* q_nope and q_pe side by side */
static uint16_t cache[PAGES * PAGE * WIDTH];
static uint16_t out[SEQS * HEADS * LATENT];
static float lse[SEQS * HEADS];

static uint16_t to_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

static float from_bf16(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Uniform in [-1, 1). */
static float next_number(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / 8388608.0f - 1.0f;
}

static void must(latent_status status) {
  if (status == LATENT_OK) return;
  fprintf(stderr, "status %d: %s\n", (int)status, latent_attention_last_error());
  exit(2);
}

static int has_gpu(void) {
#ifdef LATENT_EXAMPLE_CUDA
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
#else
  return 0;
#endif
}

static void* owned[16];
static int num_owned;

/* Memory where the operands live, until release(); `bytes` of `from` are copied there if it is not NULL. */
static void* allocate(int on_device, const void* from, size_t bytes) {
  void* memory = NULL;
#ifdef LATENT_EXAMPLE_CUDA
  if (on_device) {
    if (cudaMalloc(&memory, bytes) != cudaSuccess) exit(2);
    owned[num_owned++] = memory;
    if (from != NULL && cudaMemcpy(memory, from, bytes, cudaMemcpyHostToDevice) != cudaSuccess) exit(2);
    return memory;
  }
#endif
  (void)on_device;
  memory = calloc(bytes + 256, 1);
  if (memory == NULL) exit(2);
  owned[num_owned++] = memory;
  memory = (void*)(((uintptr_t)memory + 255) / 256 * 256); /* as a workspace must start */
  if (from != NULL) memcpy(memory, from, bytes);
  return memory;
}

static void release(int on_device) {
  while (num_owned > 0) {
#ifdef LATENT_EXAMPLE_CUDA
    if (on_device) {
      cudaFree(owned[--num_owned]);
      continue;
    }
#endif
    (void)on_device;
    free(owned[--num_owned]);
  }
}

static void fetch(int on_device, void* to, const void* from, size_t bytes) {
#ifdef LATENT_EXAMPLE_CUDA
  if (on_device) {
    if (cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) != cudaSuccess) exit(2);
    return;
  }
#endif
  (void)on_device;
  memcpy(to, from, bytes);
}

/* out and lse by the library. */
static void run(int on_device) {
  latent_attention_desc desc = {0};
  latent_attention_limits limits = {0};
  latent_attention_step step = {0};
  latent_attention_operands o = {0};
  latent_attention* attention = NULL;
  latent_attention_plan* plan = NULL;
  size_t workspace_bytes = 0;
  void* workspace;
  const uint16_t* q;

  desc.struct_size = sizeof desc;
  desc.form = LATENT_ABSORBED;
  desc.memory = on_device ? LATENT_DEVICE : LATENT_HOST;
  desc.num_heads = HEADS;
  desc.latent_dim = LATENT;
  desc.rope_dim = ROPE;
  desc.page_tokens = PAGE;
  desc.q_dtype = LATENT_BF16;
  desc.cache_dtype = LATENT_BF16;
  must(latent_attention_create(&desc, NULL, &attention));
  printf("backend %s\n", latent_attention_backend(attention));

  limits.struct_size = sizeof limits; /* the largest step that will ever come */
  limits.max_tokens = SEQS;
  limits.max_seqs = SEQS;
  limits.max_kv_len = COLUMNS * PAGE;
  must(latent_attention_workspace_size(attention, &limits, &workspace_bytes));
  must(latent_attention_plan_create(attention, &limits, &plan));

  step.struct_size = sizeof step; /* once a step */
  step.num_seqs = SEQS;
  step.q_starts = q_starts;
  step.kv_lens = kv_lens;
  must(latent_attention_plan_step(plan, &step));

  q = allocate(on_device, query, sizeof query);
  workspace = allocate(on_device, NULL, workspace_bytes);
  o.struct_size = sizeof o; /* once a layer */
  o.num_tokens = SEQS;
  o.num_seqs = SEQS;
  o.num_pages = PAGES;
  o.max_pages = COLUMNS;
  o.softmax_scale = 1.0f / 24.0f;
  o.q_nope = q;
  o.q_nope_token_stride = HEADS * WIDTH;
  o.q_nope_head_stride = WIDTH;
  o.q_pe = q + LATENT;
  o.q_pe_token_stride = HEADS * WIDTH;
  o.q_pe_head_stride = WIDTH;
  o.cache = allocate(on_device, cache, sizeof cache);
  o.cache_page_stride = PAGE * WIDTH;
  o.cache_token_stride = WIDTH;
  o.q_starts = allocate(on_device, q_starts, sizeof q_starts);
  o.kv_lens = allocate(on_device, kv_lens, sizeof kv_lens);
  o.block_table = allocate(on_device, block_table, sizeof block_table);
  o.block_table_stride = COLUMNS;
  o.out = allocate(on_device, NULL, sizeof out);
  o.out_token_stride = HEADS * LATENT;
  o.out_head_stride = LATENT;
  o.lse = allocate(on_device, NULL, sizeof lse);
  o.lse_token_stride = HEADS;
  o.lse_head_stride = 1;
  must(latent_attention_run(plan, &o, workspace, workspace_bytes, NULL));
  fetch(on_device, out, o.out, sizeof out); /* a copy on the default stream waits for the kernel */
  fetch(on_device, lse, o.lse, sizeof lse);

  latent_attention_plan_destroy(plan);
  latent_attention_destroy(attention);
  release(on_device);
}

static const uint16_t* cache_row(int seq, int token) {
  return cache + (block_table[seq * COLUMNS + token / PAGE] * PAGE + token % PAGE) * WIDTH;
}

/* Squared error of one row, squared norm of what it should be, and the error of its lse. */
static void compare_row(int seq, int head, double* error, double* norm, double* lse_error) {
  static double scores[COLUMNS * PAGE], want[LATENT];
  const uint16_t* q = query + (seq * HEADS + head) * WIDTH;
  double largest = -INFINITY, sum = 0;
  int i, j;
  for (j = 0; j < kv_lens[seq]; ++j) {
    scores[j] = 0;
    for (i = 0; i < WIDTH; ++i) scores[j] += (double)from_bf16(q[i]) * from_bf16(cache_row(seq, j)[i]) / 24.0;
    if (scores[j] > largest) largest = scores[j];
  }
  memset(want, 0, sizeof want);
  for (j = 0; j < kv_lens[seq]; ++j) {
    const double weight = exp(scores[j] - largest);
    sum += weight;
    for (i = 0; i < LATENT; ++i) want[i] += weight * from_bf16(cache_row(seq, j)[i]);
  }
  for (i = 0; i < LATENT; ++i) {
    const double difference = from_bf16(out[(seq * HEADS + head) * LATENT + i]) - want[i] / sum;
    *error += difference * difference;
    *norm += want[i] / sum * (want[i] / sum);
  }
  *lse_error = fmax(*lse_error, fabs(lse[seq * HEADS + head] - (largest + log(sum))));
}

int main(void) {
  double error = 0, norm = 0, lse_error = 0;
  size_t i;
  int seq, head;
  if (latent_attention_abi_version() != LATENT_ATTENTION_ABI_VERSION) return 2;
  for (i = 0; i < sizeof query / sizeof *query; ++i) query[i] = to_bf16(next_number());
  for (i = 0; i < sizeof cache / sizeof *cache; ++i) cache[i] = to_bf16(next_number());
  memset(out, 0xFF, sizeof out); /* NaN: every row must be written */
  run(has_gpu());
  for (seq = 0; seq < SEQS; ++seq)
    for (head = 0; head < HEADS; ++head) compare_row(seq, head, &error, &norm, &lse_error);
  printf("relative error %.2e, of lse %.2e\n", sqrt(error / norm), lse_error);
  /* bf16 rounds the output by up to 2^-9 of it, and the weights that meet the values by as much. */
  return sqrt(error / norm) < 4e-3 && lse_error < 1e-4 ? 0 : 1;
}
