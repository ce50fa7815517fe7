/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention cache's pages on the device, and causal grouped-query attention over them: what
 * src/kv/cache.h and model/attention.h do for one session, for all rows of a layer at once.
 *
 * A row is one token of one sequence. Rows, page tables and pages are in device memory and are read
 * when the work runs, so that a captured graph is replayed as sequences grow: M, `length` and the
 * addresses are its only constants. Rows and page tables are not written by kernels: they are read
 * while the kernel before may still run.
 *
 * A page is PL_CACHE_PAGE positions of one layer, [head][keys, values], of as many bytes as the
 * host's. Types that a fast kernel serves have the bits of a head permuted (pl_cuda_kv_from_host and
 * pl_cuda_kv_to_host); f32, bf16 and other codes lie as on the host. Pages are 256-byte aligned. */
#ifndef PL_CUDA_ATTENTION_H
#define PL_CUDA_ATTENTION_H

#include "rotate.h"

#ifdef __cplusplus
extern "C" {
#endif

#include "kv/cache.h"

/* Prepares kernels and tables; pl_cuda_open calls it. */
pleach_status pl_cuda_attention_open(pl_cuda *d, pleach_error *err);

enum { PL_CUDA_ATTENTION_MOST_DIM = 512 };

/* PLEACH_ERR_SHAPE for what the kernels do not serve: a head of more than 512 numbers, a packed
 * type of another head size than the code's, heads that key heads do not divide. */
pleach_status pl_cuda_attention_check(pl_kv type, uint32_t n_heads, uint32_t n_kv_heads,
                                      uint32_t head_dim, pleach_error *err);

/* ---- pages ----------------------------------------------------------------------------------- */

size_t pl_cuda_kv_page_bytes(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim);
/* One page, on the host, from the host's order to the device's and back. dst overlaps no src. */
void pl_cuda_kv_from_host(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim, void *dst,
                          const void *src);
void pl_cuda_kv_to_host(pl_kv type, uint32_t n_kv_heads, uint32_t head_dim, void *dst,
                        const void *src);

/* ---- rows ------------------------------------------------------------------------------------ */

typedef struct pl_cuda_row {
    uint32_t sequence, position;
} pl_cuda_row;
/* As a position: a row that is not there. It is neither put nor attended, its output is untouched. */
#define PL_CUDA_NO_ROW UINT32_MAX

/* One layer's cache of all sequences. */
typedef struct pl_cuda_kv {
    pl_kv type;
    uint32_t n_kv_heads, head_dim;
    uint32_t window; /* a query at i sees key j <= i when i - j < window; 0: all */
    uint32_t recent; /* of a packed type: pages in a block of recent tokens, 0: none; a query sees
                        its own block in bf16 and codes before, as pl_cache_recent_from has it */
    /* Device [sequences][pages_stride]: the page of positions 64 p .. is pages[s*pages_stride + p];
     * those that no row sees may be anything. recent_pages: bf16 pages, alike; unused without. */
    void *const *pages, *const *recent_pages;
    size_t pages_stride;
} pl_cuda_kv;

/* Rotary positions. Each head of queries and keys, in place: where there is a norm's gain
 * [head_dim], x = rms_norm(x); then pairs (i, i + half), i < half, are turned by row m's cos and
 * sin. */
typedef struct pl_cuda_rope {
    float *q, *k; /* [M][heads][head_dim], [M][n_kv_heads][head_dim] */
    uint32_t heads; /* of q, at least one */
    size_t half;
    const float *q_norm, *k_norm; /* or NULL */
    float eps;
    const float *cos, *sin; /* [M][half] */
} pl_cuda_rope;

/* Stores k, v [M][stride] (numbers: n_kv_heads * head_dim of them) at each row's position, in the
 * layer's type and, with `recent`, in bf16 as well, after what `rope` does where it is not NULL:
 * then k is rope->k. No two rows are the same token. Exact: the bytes of pl_cache_put. */
void pl_cuda_kv_put(const pl_cuda *d, const pl_cuda_kv *c, const pl_cuda_row *rows, size_t M,
                    const float *k, size_t k_stride, const float *v, size_t v_stride,
                    const pl_cuda_rope *rope);

/* Rows alone: each row is cut into spans of positions that work side by side; for a row or a few of
 * each sequence. Few: the same, faster where there are one or two rows in all. Tiles: neighbouring rows of one sequence share what is read, 64 / (n_heads /
 * n_kv_heads) rows at a time; for prompts. Any rows are right in both. A row's bits depend on its
 * sequence's numbers, its position and the class, never on other rows. */
typedef enum pl_cuda_attention_class {
    PL_CUDA_ATTENTION_ROWS,
    PL_CUDA_ATTENTION_TILES,
    PL_CUDA_ATTENTION_FEW
} pl_cuda_attention_class;

typedef struct pl_cuda_attention {
    pl_cuda_kv cache;        /* holds keys and values up to each row's own position */
    const pl_cuda_row *rows; /* device [M]; rows of a sequence in ascending order, side by side */
    size_t M;
    size_t length; /* no row's position is as great, now or when a captured graph is replayed */
    uint32_t n_heads;
    pl_cuda_attention_class how;
    const float *q; /* device [M][q_stride]: [n_heads][head_dim] */
    size_t q_stride;
    float *out; /* device [M][out_stride] */
    size_t out_stride;
    /* `out` is rotated by it, exactly, for the layer that reads it; block 0: not. With one,
     * out_stride is n_heads * head_dim. */
    pl_cuda_rotation rotation;
    /* Every row has a sequence of its own, and what lies before its position was stored before the
     * kernel that ran last began: it may be read while that one still runs, if launches overlap. */
    bool apart;
} pl_cuda_attention;

/* Device bytes of scratch for calls of up to M rows and `length`, any class, 256-byte aligned.
 * They are zeroed once before their first use and serve nothing else but attention. */
size_t pl_cuda_attention_scratch(const pl_cuda *d, pl_kv type, uint32_t n_heads,
                                 uint32_t n_kv_heads, uint32_t head_dim, size_t M, size_t length);

/* out = softmax(q k^T / sqrt(head_dim)) v for each row. Bounded: against exact attention on the
 * decoded cache the error is below 6e-4 of the row's RMS for packed types, 2e-5 for f32 and bf16,
 * where scores are of usual size; where they reach tens, 2e-3 and 3e-4.
 * A number that is not finite reaches rows that see it and no others. */
void pl_cuda_attention_run(const pl_cuda *d, const pl_cuda_attention *a, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
