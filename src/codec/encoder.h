/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of numbers to codes and scales. One encoder serves any number of rows and calls, so that a
 * caller may stream a matrix tile by tile, or code row after row with each row's error known before
 * the next (decoded). */
#ifndef PL_CODEC_ENCODER_H
#define PL_CODEC_ENCODER_H

#include "base/error.h"
#include "pleach/trellis.h"

typedef struct pl_encoder pl_encoder;

/* For matrices of geometry t, copied. settings NULL: the defaults. *out is NULL on failure. */
pleach_status pl_encoder_open(pl_encoder **out, const pleach_trellis *t,
                              const pleach_trellis_encode_settings *settings, pleach_error *err);
void pl_encoder_close(pl_encoder *e); /* accepts NULL */

/* Codes stored rows first .. first+count-1.
 *   src            [count][cols], those rows alone
 *   codes, scales  the whole matrix's; only what belongs to these rows is written
 *   decoded        [count][cols] what the rows now decode to (decode contract), or NULL;
 *                  may be src
 * The threads of the settings share the blocks of the call, one row's too. Any number of threads
 * may call at once, on rows that do not overlap. The result depends on the row alone.
 * PLEACH_ERR_DATA names the first bad row by its number in the matrix. */
pleach_status pl_encoder_rows(pl_encoder *e, uint64_t first, uint64_t count, uint32_t *codes,
                              uint16_t *scales, float *decoded, const float *src,
                              pleach_error *err);

#endif
