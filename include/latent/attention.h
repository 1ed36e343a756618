/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (MLA) over a paged latent cache, on CPUs and NVIDIA GPUs: the C interface.
 *
 *   describe ──► latent_attention_create        picks a backend, or says why none can serve
 *   limits ────► latent_attention_workspace_size, latent_attention_plan_create
 *   a step ────► latent_attention_plan_step     once a step, before its layers
 *   a layer ───► latent_attention_run           once a layer: writes every row of `out` (and of `lse`)
 *
 * Two forms. The absorbed form is for generated tokens: queries already stand in the latent (width
 * latent_dim),
 *
 *   out = softmax(scale * (q_nope . latent + q_pe . k_pe)) . latent        width latent_dim
 *
 * The multi-head form is for prompts: the latent is projected up by kv_b to keys (nope_dim) and values
 * (v_dim),
 *
 *   out = softmax(scale * (q_nope . k_nope + q_pe . k_pe)) . v             width v_dim
 *
 * A token's cache row is latent_dim numbers followed by rope_dim numbers; page_tokens rows make a page; token
 * i of request s lies in page block_table[s][i / page_tokens], row i % page_tokens. Any page may be named,
 * page 0 too. Query row t of request s (q_starts[s] <= t < q_starts[s + 1]) sits at position kv_lens[s] -
 * q_len + (t - q_starts[s]) and sees the keys up to itself. Rows without keys, and rows from
 * q_starts[num_seqs] on (padding), become 0 with lse -infinity. Nothing past a request's kv_len is read, be
 * it in the last page or in the block table: it may hold anything. lse is the natural logarithm, fp32.
 *
 * Memory. The description says where operands live: host memory, or device memory of the current CUDA device.
 * The caller owns all of it; strides count elements, and the innermost axis always has stride 1. On a device,
 * rows of q, cache and out start at multiples of 16 bytes. The library allocates only in *_create.
 *
 * Streams. On a device latent_attention_run only enqueues work on `stream` (a cudaStream_t; NULL is the
 * default stream) and never waits. On the host it returns when the work is done, and `stream` is ignored.
 *
 * Captured graphs. latent_attention_prepare_capture before the capture; then latent_attention_run may be
 * captured. The kernels read q_starts and kv_lens from device memory, so a replay with other lengths needs
 * only new contents there and latent_attention_prepare_replay; it may have no more requests, rows or query
 * tokens per request than were planned. Requests that are not there get kv_len 0. The plan and the workspace
 * must outlive the graph.
 *
 * Threads. A latent_attention may be used by any number of threads. A plan is used by one thread and one
 * stream at a time: its kernels share counters. Launches that may overlap need a plan and a workspace each.
 *
 * Errors. Every function that can fail returns a latent_status; latent_attention_last_error() then gives one
 * sentence that names the value, for this thread. No C++ exception leaves the library. What lives in device
 * memory (lengths, page ids) cannot be checked and is trusted; in host memory it is checked. An error of CUDA
 * itself ends the process with its place and words.
 *
 * Stability. Enumerators keep their values. Structs begin with struct_size, which the caller sets to sizeof;
 * later versions only append fields, whose zero means what was before. LATENT_ATTENTION_ABI_VERSION changes
 * only if that promise is broken; compare it with latent_attention_abi_version().
 */
#ifndef LATENT_ATTENTION_H_
#define LATENT_ATTENTION_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LATENT_API __attribute__((visibility("default")))
#else
#define LATENT_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LATENT_ATTENTION_ABI_VERSION 1

typedef enum latent_status {
  LATENT_OK = 0,
  LATENT_INVALID_ARGUMENT = 1, /* a value is wrong; the message names it */
  LATENT_UNSUPPORTED = 2,      /* no backend can serve it here; the message says why not */
  LATENT_EXHAUSTED = 3,        /* no memory left */
  LATENT_INTERNAL = 4          /* a bug of ours */
} latent_status;

/* 0 is no value of the following three, so that a forgotten field is noticed. */
typedef enum latent_dtype {
  LATENT_F32 = 1,
  LATENT_F16 = 2,
  LATENT_BF16 = 3,
  LATENT_F8_E4M3 = 4, /* kv_b on a CPU only; a cache: all columns times one scale, cache_scale */
  LATENT_U8 = 5 /* a cache of bytes only. A row: the latent as e4m3; a float for each 128 columns of it, their
                   scale; the rope key as bf16, exact. 512 and 64 columns are 656 bytes */
} latent_dtype;

typedef enum latent_memory { LATENT_HOST = 1, LATENT_DEVICE = 2 } latent_memory;

typedef enum latent_attention_form { LATENT_ABSORBED = 1, LATENT_MULTI_HEAD = 2 } latent_attention_form;

/* What a backend is chosen for. */
typedef struct latent_attention_desc {
  size_t struct_size;
  int32_t form;        /* latent_attention_form */
  int32_t memory;      /* latent_memory: where every operand of latent_attention_run lives */
  int32_t num_heads;   /* query heads, any number; never padded by the caller */
  int32_t latent_dim;  /* kv_lora_rank: 512, 256, ... */
  int32_t rope_dim;    /* 64, 32, 0; even */
  int32_t nope_dim;    /* multi-head form only, else 0 */
  int32_t v_dim;       /* multi-head form only, else 0 */
  int32_t page_tokens; /* tokens a page */
  int32_t q_dtype;     /* latent_dtype of q_nope and q_pe */
  int32_t cache_dtype; /* latent_dtype of the cache; on a device that of q_dtype, F8_E4M3 or U8 */
  int32_t out_dtype;   /* latent_dtype of out: q_dtype, which 0 means, too, or on a host f32 */
  int32_t kv_b_dtype;  /* multi-head form only, else 0 */
} latent_attention_desc;

/* The largest step that will come. Workspaces and plans are sized by it and never grow. */
typedef struct latent_attention_limits {
  size_t struct_size;
  int32_t max_tokens;    /* query rows of a step, padding included */
  int32_t max_seqs;      /* requests of a step */
  int32_t max_kv_len;    /* tokens of one request in the cache */
  int32_t num_threads;   /* host memory only; 0: every core */
  int32_t deterministic; /* not 0: a request's bits are the same alone and in any batch */
  int32_t reserved;      /* 0 */
} latent_attention_limits;

/* The lengths of a step, in host memory; read during the call only. */
typedef struct latent_attention_step {
  size_t struct_size;
  int32_t num_seqs;
  int32_t max_q_len; /* if q_starts is NULL: query rows of every request; on a device, the most of any */
  const int32_t* q_starts; /* [num_seqs + 1], ascending from 0; may be NULL */
  const int32_t* kv_lens;  /* [num_seqs], this step's tokens included; may be NULL on a device, where the
                              kernels read them themselves */
} latent_attention_step;

/* Operands of one layer. Sizes come from the description; strides count elements. */
typedef struct latent_attention_operands {
  size_t struct_size;
  int32_t num_tokens; /* rows of q_nope, q_pe, out and lse, padding included */
  int32_t num_seqs;
  int32_t num_pages; /* pages of the cache */
  int32_t max_pages; /* columns of the block table */
  float softmax_scale;
  float cache_scale; /* of an F8_E4M3 cache: what it was written with; 0 means 1. Others do not look at it */

  const void* q_nope; /* [num_tokens, num_heads, latent_dim] (absorbed) or [.., nope_dim] */
  int64_t q_nope_token_stride;
  int64_t q_nope_head_stride;
  const void* q_pe; /* [num_tokens, num_heads, rope_dim], rotated; NULL if rope_dim is 0 */
  int64_t q_pe_token_stride;
  int64_t q_pe_head_stride;
  const void* cache; /* [num_pages, page_tokens, latent_dim + rope_dim], or the bytes of U8 */
  int64_t cache_page_stride;
  int64_t cache_token_stride;
  const int32_t* q_starts;    /* [num_seqs + 1] */
  const int32_t* kv_lens;     /* [num_seqs] */
  const int32_t* block_table; /* [num_seqs, max_pages] */
  int64_t block_table_stride;
  void* out; /* [num_tokens, num_heads, latent_dim] (absorbed) or [.., v_dim]; every row is written */
  int64_t out_token_stride;
  int64_t out_head_stride;
  float* lse; /* [num_tokens, num_heads]; may be NULL */
  int64_t lse_token_stride;
  int64_t lse_head_stride;
  const void* kv_b; /* multi-head form: [num_heads * (nope_dim + v_dim), latent_dim], a head's keys first */
  int64_t kv_b_row_stride;
} latent_attention_operands;

typedef struct latent_attention_backend_info {
  size_t struct_size;
  int32_t is_built;  /* 0: not in this library */
  int32_t can_serve; /* 1: it can serve the description here */
  char name[32];
  char reason[216]; /* why not, half a sentence: "needs AVX-512"; empty if it can */
} latent_attention_backend_info;

typedef struct latent_attention latent_attention;           /* a description and its backend */
typedef struct latent_attention_plan latent_attention_plan; /* the division of a step's work */

/* The version of this interface that the library was built with. */
LATENT_API uint32_t latent_attention_abi_version(void);
/* The library's own version, "0.1.0". */
LATENT_API const char* latent_attention_version(void);
/* What the last failing call of this thread had to say; "" before the first. Valid until the next failure. */
LATENT_API const char* latent_attention_last_error(void);

/* Every backend there is, best first, those that were not built last. */
LATENT_API int32_t latent_attention_num_backends(void);
/* Fills `info` for backend `index`. Without a description (NULL) can_serve only says whether it was built. */
LATENT_API latent_status latent_attention_query_backend(int32_t index, const latent_attention_desc* desc,
                                                        latent_attention_backend_info* info);

/* Chooses the best backend that serves the description, or `backend` if it is neither NULL nor "": then a
 * refusal is an error. NULL and "" look at the environment variable LATENT_ATTENTION_BACKEND first. */
LATENT_API latent_status latent_attention_create(const latent_attention_desc* desc, const char* backend,
                                                 latent_attention** attention);
/* After its plans. NULL is ignored. */
LATENT_API void latent_attention_destroy(latent_attention* attention);
LATENT_API const char* latent_attention_backend(const latent_attention* attention);

/* Scratch that latent_attention_run needs for any step within the limits; at an address that is a multiple of
 * 256, in the memory of the operands. Its contents need not be kept between calls. */
LATENT_API latent_status latent_attention_workspace_size(const latent_attention* attention,
                                                         const latent_attention_limits* limits,
                                                         size_t* bytes);

/* Reserves everything that planning a step within the limits needs; on a device that allocates a little. */
LATENT_API latent_status latent_attention_plan_create(const latent_attention* attention,
                                                      const latent_attention_limits* limits,
                                                      latent_attention_plan** plan);
LATENT_API void latent_attention_plan_destroy(latent_attention_plan* plan);

/* Divides a step's work; valid for every layer of it, and for any step of equal lengths. */
LATENT_API latent_status latent_attention_plan_step(latent_attention_plan* plan,
                                                    const latent_attention_step* step);

LATENT_API latent_status latent_attention_run(const latent_attention_plan* plan,
                                              const latent_attention_operands* operands, void* workspace,
                                              size_t workspace_bytes, void* stream);

/* Captured graphs: after latent_attention_plan_step with the largest step that will be replayed, before the
 * capture; and before each replay, with its lengths. */
LATENT_API latent_status latent_attention_prepare_capture(latent_attention_plan* plan);
LATENT_API latent_status latent_attention_prepare_replay(latent_attention_plan* plan,
                                                         const latent_attention_step* step);

#ifdef __cplusplus
}
#endif

#endif /* LATENT_ATTENTION_H_ */
