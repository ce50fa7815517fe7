/* SPDX-License-Identifier: Apache-2.0 */
#include "refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int status;
    const char *type, *code;
} kinds[] = {
    {400, "invalid_request_error", "invalid_value"},
    {401, "invalid_request_error", "invalid_api_key"},
    {404, "invalid_request_error", "not_found"},
    {405, "invalid_request_error", "method_not_allowed"},
    {413, "invalid_request_error", "request_too_large"},
    {429, "rate_limit_error", "rate_limit_exceeded"},
    {500, "server_error", "internal_error"},
    {503, "server_error", "unavailable"},
};

pleach_status pl_refuse(pl_refusal *r, int status, const char *param, const char *fmt, ...)
{
    va_list args;
    *r = (pl_refusal){.status = status};
    if (param) snprintf(r->param, sizeof r->param, "%s", param);
    va_start(args, fmt);
    vsnprintf(r->message, sizeof r->message, fmt, args);
    va_end(args);
    return PLEACH_ERR_ARGUMENT;
}

pleach_status pl_refuse_memory(pl_refusal *r)
{
    return pl_refuse(r, 503, NULL, "out of memory");
}

static int http_status(pleach_status status)
{
    switch (status) {
    case PLEACH_ERR_ARGUMENT:
    case PLEACH_ERR_SHAPE:
    case PLEACH_ERR_UNSUPPORTED:
    case PLEACH_ERR_LIMIT:
    case PLEACH_ERR_FORMAT:
    case PLEACH_ERR_MISSING:
        return 400;
    case PLEACH_ERR_BUSY:
        return 429;
    case PLEACH_ERR_MEMORY:
    case PLEACH_ERR_CANCELLED:
        return 503;
    default:
        return 500;
    }
}

pleach_status pl_refuse_error(pl_refusal *r, const char *param, const pleach_error *err)
{
    int status = http_status(err->code);
    pl_refuse(r, status, status == 400 ? param : NULL, "%s", err->message);
    if (err->code == PLEACH_ERR_LIMIT) r->code = "context_length_exceeded";
    return err->code;
}

/* Cut in the middle of a character, or made from bytes of a file, a message may be no UTF-8. */
static json_t *message_json(const char *message)
{
    json_t *text = json_string(message);
    for (size_t size = strlen(message); !text && size > 0; size--)
        text = json_stringn(message, size - 1);
    return text;
}

json_t *pl_refusal_json(const pl_refusal *r)
{
    size_t i = 0;
    while (i + 1 < PL_COUNT(kinds) && kinds[i].status != r->status) i++;
    return json_pack("{s:{s:o, s:s, s:s?, s:s}}", "error", "message", message_json(r->message),
                     "type", kinds[i].type, "param", r->param[0] ? r->param : NULL, "code",
                     r->code ? r->code : kinds[i].code);
}
