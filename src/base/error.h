/* SPDX-License-Identifier: Apache-2.0
 *
 * Filling in a pleach_error, and the two macros that carry the checks. */
#ifndef PL_BASE_ERROR_H
#define PL_BASE_ERROR_H

#include "compiler.h"
#include "pleach/status.h"

/* Writes the formatted line to err (which may be NULL) and returns code. Control characters in
 * the result are replaced by '?', so that a name from a hostile file cannot forge a second line. */
pleach_status pl_fail(pleach_error *err, pleach_status code, const char *fmt, ...) PL_PRINTF(3, 4);

/* Out of memory, saying what for. */
pleach_status pl_fail_memory(pleach_error *err, const char *what, unsigned long long bytes);

/* A failed system call on a file: errno's text, PLEACH_ERR_NO_SPACE for a full disk. */
pleach_status pl_fail_errno(pleach_error *err, const char *doing, const char *path);

#define PL_FAIL_IF(cond, err, code, ...)                                                           \
    do {                                                                                           \
        if (PL_UNLIKELY(cond)) return pl_fail((err), (code), __VA_ARGS__);                         \
    } while (0)

#define PL_TRY(expr)                                                                               \
    do {                                                                                           \
        pleach_status pl_try_status_ = (expr);                                                     \
        if (PL_UNLIKELY(pl_try_status_ != PLEACH_OK)) return pl_try_status_;                       \
    } while (0)

#endif
