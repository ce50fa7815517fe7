/* SPDX-License-Identifier: Apache-2.0
 *
 * Coding with error feedback. With H the statistics of the inputs, H + damping = U U^T and E = W - Q,
 *
 *   tr(E (H + damping) E^T) = sum over j of U_jj^2 |t_j - Q_j|^2,
 *   t_j = W_j + sum over i before j of E_i U_ij / U_jj,
 *
 * so each input feature j is a plain problem of least squares once those before it are coded
 * (GPTQ, arXiv 2210.17323; LDLQ, arXiv 2307.13304). All in the coded basis. */
#ifndef PL_QUANT_LDLQ_H
#define PL_QUANT_LDLQ_H

#include "code_module.h"
#include "codec/encoder.h"
#include "hessian.h"

typedef struct pl_ldlq {
    const pl_plan_item *item;
    const pl_coder *coder;
    pl_encoder *encoder;
    const pl_mix *statistics; /* of the inputs, and the basis they are coded in */
    const pl_basis *basis;
    pl_hessian *input;        /* factored: sorted and by ones for axis 0, by blocks of T for 1 */
    const pl_hessian *output; /* factored in blocks of T: two-sided, axis 0; NULL: one-sided */
    float *matrix;            /* [rows][cols] of W as pl_load_rotated leaves it; becomes E */
    float *work;              /* [rows][cols] */
    uint32_t *codes;
    uint16_t *scales;
    size_t batch;             /* features between two updates of all later ones */
} pl_ldlq;

/* Axis 0. *peak: feedback would have lifted the peak of what is coded, in units of its scale, more
 * than fourfold; then nothing of use is left, matrix included. */
pleach_status pl_ldlq_features(const pl_ldlq *l, bool *peak, pleach_error *err);

/* Axis 1: the same for blocks of T inputs, coded in all rows before the next, then the sweeps of the
 * coder's settings: each block again, given the errors of all others, kept where the loss falls; the
 * rows' scales are refitted for least loss. H is loaded into input->spare. */
pleach_status pl_ldlq_blocks(const pl_ldlq *l, bool *peak, pleach_error *err);
/* Bytes that it takes for itself. */
uint64_t pl_ldlq_blocks_memory(const pleach_trellis *t, uint64_t in);

/* What both share. */
#define PL_LDLQ_PEAK_LIMIT 4
double pl_row_power(const float *x, size_t n);
float pl_row_largest(const float *x, size_t n);
/* Largest over RMS; 0 for zeros. */
double pl_row_crest(const float *x, size_t n);
/* The scale to search at, over RMS(row): c / RMS(code). */
double pl_ldlq_start(const pl_ldlq *l);

#endif
