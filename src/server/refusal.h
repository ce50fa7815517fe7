/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a request is not answered, in the shape of OpenAI's API:
 *
 *   {"error": {"message": "...", "type": "invalid_request_error", "param": "top_p", "code": "..."}}
 */
#ifndef PL_SERVER_REFUSAL_H
#define PL_SERVER_REFUSAL_H

#include <jansson.h>

#include "base/error.h"

typedef struct pl_refusal {
    int status;       /* of HTTP: 400, 401, ... */
    const char *code; /* of the error object; NULL: the status's own */
    char param[96];   /* the field it is about; "": none */
    char message[512];
} pl_refusal;

/* Fills it in and returns PLEACH_ERR_ARGUMENT. `param` may be NULL. */
pleach_status pl_refuse(pl_refusal *r, int status, const char *param, const char *fmt, ...)
    PL_PRINTF(4, 5);
/* The same from what a call of the library says: a wrong value is 400, a full queue 429, and what
 * the client cannot help 500. */
pleach_status pl_refuse_error(pl_refusal *r, const char *param, const pleach_error *err);
pleach_status pl_refuse_memory(pl_refusal *r);

json_t *pl_refusal_json(const pl_refusal *r); /* NULL: out of memory */

#define PL_REFUSE_IF(cond, ...)                                                                    \
    do {                                                                                           \
        if (PL_UNLIKELY(cond)) return pl_refuse(__VA_ARGS__);                                      \
    } while (0)

#endif
