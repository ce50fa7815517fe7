/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of numbers to codes and scales. One encoder serves any number of rows and calls, so that a
 * caller may stream a matrix tile by tile, or code row after row with each row's error known before
 * the next (decoded). */
#ifndef PL_CODEC_ENCODER_H
#define PL_CODEC_ENCODER_H

#include "base/pool.h"
#include "pleach/trellis.h"

typedef struct pl_encoder pl_encoder;

/* For matrices of geometry t, copied. settings NULL: the defaults; their threads are the pool's,
 * borrowed until closing. *out is NULL on failure. */
pleach_status pl_encoder_open(pl_encoder **out, const pleach_trellis *t,
                              const pleach_trellis_encode_settings *settings, pl_pool *pool,
                              pleach_error *err);
void pl_encoder_close(pl_encoder *e); /* accepts NULL */

/* Codes stored rows first .. first+count-1.
 *   src            [count][cols], those rows alone
 *   codes, scales  the whole matrix's; only what belongs to these rows is written
 *   decoded        [count][cols] what the rows now decode to (decode contract), or NULL;
 *                  may be src
 * The threads of the pool share the blocks of the call, one row's too. Any number of threads
 * may call at once, on rows that do not overlap. The result depends on the row alone.
 * PLEACH_ERR_DATA names the first bad row by its number in the matrix. */
pleach_status pl_encoder_rows(pl_encoder *e, uint64_t first, uint64_t count, uint32_t *codes,
                              uint16_t *scales, float *decoded, const float *src,
                              pleach_error *err);

/* Squared error over variance that k bits leave on Gaussian numbers: measured, T = 256, scale
 * refitted. */
double pl_encoder_gaussian_error(uint32_t k, uint32_t state_bits);

/* ---- parts, for error feedback: the caller chooses scales -------------------------------------- */

/* Sums over numbers w and the code's integers y that were found for them. */
typedef struct pl_block_sums {
    double wy;
    int64_t yy;
} pl_block_sums;

/* One block to be searched at a given scale. */
typedef struct pl_block_job {
    uint64_t row, block;
    const float *src;    /* [T], finite */
    float *values;       /* [T] what the codes stand for, to be multiplied by the scale (decode
                            contract); NULL: not wanted. May be src */
    uint16_t scale;      /* fp16 bits, above zero */
    pl_block_sums sums;  /* result */
} pl_block_job;

/* Searches n blocks, two at a time, and writes their codes. Threads as in pl_encoder_rows; each
 * result depends on its block alone. */
pleach_status pl_encoder_blocks(pl_encoder *e, pl_block_job *jobs, size_t n, uint32_t *codes,
                                pleach_error *err);

/* Root mean square of the code's values: a row's scale begins near RMS(row) over this. */
double pl_encoder_code_rms(const pl_encoder *e);
/* A scale to search at: s rounded to fp16, kept above zero and finite. */
uint16_t pl_encoder_scale(double s);
/* The best for a row of this power and these sums over its blocks: the scale searched at, its
 * least-squares refit, or zero. */
uint16_t pl_encoder_refit(double power, pl_block_sums row, uint16_t scale);
/* The codes of a row whose scale is zero. */
void pl_encoder_clear(const pl_encoder *e, uint32_t *codes, uint64_t row);

#endif
