/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing list of lines. */
#include "warnings.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"

void pl_warn(pl_warnings *w, const char *fmt, ...)
{
    va_list args;
    if (pl_grow((void **)&w->lines, &w->capacity, w->n + 1, sizeof *w->lines) != 0) return;
    va_start(args, fmt);
    vsnprintf(w->lines[w->n++], sizeof *w->lines, fmt, args);
    va_end(args);
}
