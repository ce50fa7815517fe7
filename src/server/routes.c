/* SPDX-License-Identifier: Apache-2.0
 *
 * Which path is answered by what. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "exchange.h"
#include "page.h"

typedef struct route {
    const char *method, *path;
    pl_route_fn *answer;
    bool open; /* needs no key */
} route;

static const route routes[] = {
    {"POST", "/v1/chat/completions", pl_route_chat, false},
    {"POST", "/v1/completions", pl_route_completions, false},
    {"POST", "/v1/embeddings", pl_route_embeddings, false},
    {"GET", "/v1/models", pl_route_models, false},
    {"POST", "/tokenize", pl_route_tokenize, false},
    {"POST", "/detokenize", pl_route_detokenize, false},
    {"POST", "/apply-template", pl_route_apply_template, false},
    {"GET", "/props", pl_route_props, false},
    {"GET", "/metrics", pl_route_metrics, false},
    {"GET", "/health", pl_route_health, true},
};

static const route page_route = {"GET", NULL, pl_route_page, true}; /* for each of its files */

static bool same_method(const char *asked, const char *has)
{
    return strcmp(asked, has) == 0 || (strcmp(asked, "HEAD") == 0 && strcmp(has, "GET") == 0);
}

/* *path_exists: with another method. */
static const route *find_route(const char *method, const char *path, bool *path_exists)
{
    *path_exists = false;
    for (size_t i = 0; i < PL_COUNT(routes); i++) {
        if (strcmp(routes[i].path, path) != 0) continue;
        *path_exists = true;
        if (same_method(method, routes[i].method)) return &routes[i];
    }
    if (*path_exists || !pl_page_find(path)) return NULL;
    *path_exists = true;
    return same_method(method, page_route.method) ? &page_route : NULL;
}

static pleach_status admit(const pl_exchange *x, const char *authorization, uint64_t body_size,
                           pl_refusal *r)
{
    const pl_server *s = x->server;
    bool exists;
    const route *found = find_route(x->method, x->path, &exists);
    PL_REFUSE_IF(!found && exists, r, 405, NULL, "%.20s is not a method of %.80s", x->method,
                 x->path);
    PL_REFUSE_IF(!found, r, 404, NULL, "there is no %.80s here", x->path);
    PL_REFUSE_IF(!found->open && !pl_keys_admit(&s->keys, authorization), r, 401, NULL,
                 "expected the header \"Authorization: Bearer KEY\" with a key of this server");
    PL_REFUSE_IF(body_size > s->settings.max_body, r, 413, NULL,
                 "the body has %" PRIu64 " bytes; at most %" PRIu64 " are taken", body_size,
                 s->settings.max_body);
    PL_REFUSE_IF(atomic_load(&s->stopping) && !found->open, r, 503, NULL, "the server is stopping");
    return PLEACH_OK;
}

pleach_status pl_admit(pl_exchange *x, const char *authorization, uint64_t body_size)
{
    pl_refusal refusal;
    pleach_status status = admit(x, authorization, body_size, &refusal);
    if (status != PLEACH_OK) pl_reply_refusal(x, &refusal);
    return status;
}

void pl_dispatch(pl_exchange *x)
{
    bool exists;
    pl_refusal refusal = {.status = 500, .message = "out of memory"};
    const route *found = find_route(x->method, x->path, &exists);
    if (!found) pl_refuse(&refusal, 404, NULL, "there is no %.80s here", x->path);
    if (!found || found->answer(x, &refusal) != PLEACH_OK) pl_reply_refusal(x, &refusal);
}
