/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that codes trellis modules in the processor's place. What it is asked for is what
 * encode_rows (code_trellis.c) and ldlq.h define; it chooses by the same rules with other roundings,
 * so codes may differ where two are nearly as good. Calls may come from several threads. */
#ifndef PL_QUANT_CODING_DEVICE_H
#define PL_QUANT_CODING_DEVICE_H

#include "ldlq.h"

/* Rows first .. first + n - 1 of a matrix in stored rows, to be coded without feedback. */
typedef struct pl_device_rows {
    const pleach_trellis *t;   /* not interleaved */
    uint64_t width;            /* coded numbers before padding */
    double code_rms;           /* pl_encoder_code_rms */
    float *matrix;             /* [rows][cols] */
    bool errors;               /* matrix becomes W - Q, padding zero; else it is left */
    const float *weight;       /* [cols] of an error's column in `squares`, or NULL for ones */
    uint32_t *codes;           /* of the whole matrix */
    uint16_t *scales;          /* [rows] */
    double *squares;           /* [rows] weighted squared errors */
} pl_device_rows;

typedef struct pl_coding_device pl_coding_device;
struct pl_coding_device {
    struct pl_products *products; /* to be lent to pools (base/matrix.h) */
    void (*close)(pl_coding_device *d);
    /* Makes copies from and to this memory fast; it is given back before it is freed. May do
     * nothing. */
    void (*lend)(pl_coding_device *d, void *p, size_t bytes);
    void (*give_back)(pl_coding_device *d, void *p);
    /* As pl_encoder_rows, messages too. */
    pleach_status (*rows)(pl_coding_device *d, const pl_device_rows *r, uint64_t first, uint64_t n,
                          pleach_error *err);
    /* As pl_ldlq_features, one-sided. */
    pleach_status (*features)(pl_coding_device *d, const pl_ldlq *l, bool *peak, pleach_error *err);
    /* For pl_ldlq_blocks: searches block b of all rows whose scale is not zero. x [rows][ld] becomes
     * the codes' values; other rows are left as they are. */
    pleach_status (*block)(pl_coding_device *d, const pl_ldlq *l, size_t b, float *x, size_t ld,
                           pleach_error *err);
};

/* NULL and "cpu" are no device: *out is NULL. Refused where this build or machine has none of that
 * name. */
pleach_status pl_coding_device_open(const char *name, pl_coding_device **out, pleach_error *err);
void pl_coding_device_close(pl_coding_device *d); /* accepts NULL */

#endif
