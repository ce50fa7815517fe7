/* SPDX-License-Identifier: Apache-2.0
 *
 * What surrounds the search when rows are coded: scales by codec/encoder.c's rules, with and without
 * error feedback. Sums are f64 in a fixed order of their own, so that a scale may now and then be
 * the fp16 number next to the processor's. All memory is the device's. */
#ifndef PL_CUDA_ENCODE_H
#define PL_CUDA_ENCODE_H

#include "viterbi.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A row's sum of squares and RMS(row) / RMS(code). */
typedef struct pl_cuda_row_size {
    double power, ratio;
} pl_cuda_row_size;

/* scales[r]: what row r should be searched at; 0 for zeros and for rows that are not finite or too
 * large, which info shows. code_rms as pl_encoder_code_rms. */
void pl_cuda_measure_rows(const pl_cuda *d, uint32_t k, double code_rms, const float *src,
                          size_t rows, size_t cols, uint16_t *scales, pl_cuda_row_size *info);

/* After the search of whole rows s (values NULL, sums given): scales, which s->scales may be, are
 * those searched at or a least-squares refit; rows better left out get 0 and codes of all ones.
 * src becomes the error W - Q, with zeros from `width` on, and squares[r] the sum of its squares,
 * each times weight (of its column) squared; weight may be NULL. */
void pl_cuda_finish_rows(const pl_cuda *d, const pl_cuda_viterbi *s, size_t width, float *src,
                         const pl_cuda_row_size *info, uint16_t *scales, const float *weight,
                         double *squares);

/* ---- error feedback, axis 0 (quant/ldlq.c) ------------------------------------------------------ */

/* The state of coding feature after feature. */
typedef struct pl_cuda_features {
    uint32_t k, L, T;
    size_t n, width, cols;   /* features, numbers in each, the same with padding */
    const float *unit;       /* [n][n], in coding order */
    float *matrix, *work;    /* [n][cols], by stored row and in coding order */
    float *values;           /* [cols] scratch */
    pl_cuda_block_sums *sums;/* [cols / T] scratch */
    void *partials;          /* pl_cuda_features_partials(cols) bytes, zeroed once */
    double start, highest;   /* scale over RMS; peak over RMS that is let pass */
    uint32_t *codes;
    uint16_t *scales;        /* [n] by stored row */
    int *bad;                /* set where feedback went too far, else left; zeroed before */
} pl_cuda_features;

size_t pl_cuda_features_partials(size_t cols);
/* work = matrix in coding order; crests[j] largest over RMS of its row j, 0 for zeros. */
void pl_cuda_features_begin(const pl_cuda *d, const pl_cuda_features *f, const uint32_t *order,
                            double *crests);
/* Feature j, stored row `row`: adds the errors of features first .. j - 1, searches at `scratch`,
 * refits the scale and leaves the error in work and matrix. */
void pl_cuda_features_code(const pl_cuda *d, const pl_cuda_features *f, size_t first, size_t j,
                           size_t row, void *scratch);

#ifdef __cplusplus
}
#endif
#endif
