/* SPDX-License-Identifier: Apache-2.0
 *
 * A second decoder of the Pleach format, written from docs/format.md alone: slow, plain, sharing no
 * code with the library. The tests hold the two against each other. Section numbers are that page's. */
#ifndef REFERENCE_DECODER_H
#define REFERENCE_DECODER_H

#include <stddef.h>
#include <stdint.h>

typedef enum ref_contract { REF_DECODE, REF_EXPAND } ref_contract;

/* A coded matrix in stored rows (sections 2 to 4). */
typedef struct ref_trellis {
    unsigned k, L, T, interleaved;
    uint64_t rows, cols; /* cols: the coded width P */
} ref_trellis;

/* Number c of stored row r. A bf16 result (expand) is widened to f32. */
float ref_number(const ref_trellis *t, const uint32_t *words, const uint16_t *scales, uint64_t r,
                 uint64_t c, ref_contract contract);

/* A module's matrix. */
typedef struct ref_matrix {
    uint64_t out, in;
    float *w; /* [out][in], freed by the caller */
} ref_matrix;

/* Reads a module of a packed folder. `whole`: W of section 5; otherwise W', without rotations and
 * output scale. Returns 0, or -1 with a line in error[0 .. size). */
int ref_read_module(const char *folder, const char *module, ref_contract contract, int whole,
                    ref_matrix *m, char *error, size_t size);

#endif
