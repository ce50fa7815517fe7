/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop strings in a text that comes byte by byte. */
#ifndef PL_ANSWER_STOP_H
#define PL_ANSWER_STOP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

typedef struct pl_stops {
    struct pl_stop_string {
        const char *text; /* borrowed */
        size_t size;
        size_t at;    /* bytes of it that the text ends with */
        size_t *back; /* [size + 1]: where a mismatch leads */
    } * list;
    size_t n;
} pl_stops;

/* Empty strings are left out. */
pleach_status pl_stops_open(const char *const *texts, size_t n, pl_stops *out, pleach_error *err);
void pl_stops_close(pl_stops *s); /* accepts a zeroed one */

/* Bytes of the longest stop string that ends with this byte; 0: none does. */
size_t pl_stops_take(pl_stops *s, char byte);
/* Bytes at the text's end that may be the beginning of one. */
size_t pl_stops_waiting(const pl_stops *s);

/* text is one of them. */
bool pl_stops_has(const pl_stops *s, const char *text, size_t size);

#endif
