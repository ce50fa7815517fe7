/* SPDX-License-Identifier: Apache-2.0
 *
 * What every answer needs, whatever it says. */
#include "exchange.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"
#include "completion.h"

static int append(const char *bytes, size_t size, void *out)
{
    return pl_buffer_append(out, bytes, size, NULL) == PLEACH_OK ? 0 : -1;
}

pleach_status pl_append_json(pl_buffer *out, json_t *value, pl_refusal *r)
{
    int failed =
        !value || json_dump_callback(value, append, out, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(value);
    return failed ? pl_refuse_memory(r) : PLEACH_OK;
}

pleach_status pl_reply_json(pl_exchange *x, json_t *value, pl_refusal *r)
{
    x->out.size = 0;
    PL_TRY(pl_append_json(&x->out, value, r));
    PL_TRY(pl_buffer_append(&x->out, "\n", 1, NULL));
    x->status = 200;
    x->content_type = "application/json";
    return PLEACH_OK;
}

void pl_reply_refusal(pl_exchange *x, const pl_refusal *r)
{
    pl_refusal memory;
    if (pl_reply_json(x, pl_refusal_json(r), &memory) != PLEACH_OK) x->out.size = 0;
    x->status = r->status;
    x->content_type = "application/json";
}

pleach_status pl_with_body(pl_exchange *x, pl_body_fn *answer, pl_refusal *r)
{
    json_t *body;
    PL_TRY(pl_body_parse(x->body.data, x->body.size, &body, r));
    pleach_status status = answer(x, body, r);
    json_decref(body);
    return status;
}

void pl_exchange_free(pl_exchange *x)
{
    pl_completion_close(x->stream);
    pl_free(x->body.data);
    pl_free(x->out.data);
    x->stream = NULL;
    x->body = x->out = (pl_buffer){0};
}

bool pl_exchange_over(void *exchange, pl_refusal *r)
{
    pl_exchange *x = exchange;
    bool cut = atomic_load(&x->server->cut);
    if (cut)
        pl_refuse(r, 503, NULL, "the server is stopping");
    else if (x->gone && x->gone(x->user))
        pl_refuse(r, 503, NULL, "the client went away");
    else
        return false;
    return true;
}

void pl_random_id(const char *prefix, char *id, size_t size)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    unsigned char random[24] = {0};
    size_t n = (size_t)snprintf(id, size, "%s", prefix);
    ssize_t got = getrandom(random, sizeof random, 0);
    (void)got; /* so few bytes never fall short */
    for (size_t i = 0; i < sizeof random && n + 1 < size; i++)
        id[n++] = letters[random[i] % (sizeof letters - 1)];
    id[n] = 0;
}
