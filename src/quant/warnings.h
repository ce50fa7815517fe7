/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run has to say about its result, a line each: for the summary and the report. */
#ifndef PL_QUANT_WARNINGS_H
#define PL_QUANT_WARNINGS_H

#include <stddef.h>

#include "base/compiler.h"

typedef struct pl_warnings {
    char (*lines)[256]; /* pl_free */
    size_t n, capacity;
} pl_warnings;

/* A line that memory is too short for is dropped. */
void pl_warn(pl_warnings *w, const char *fmt, ...) PL_PRINTF(2, 3);

#endif
