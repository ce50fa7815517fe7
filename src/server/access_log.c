/* SPDX-License-Identifier: Apache-2.0 */
#include "access_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"

/* "2026-01-31T12:00:00.123Z" */
static void time_text(char text[32])
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t n = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(text + n, 32 - n, ".%03ldZ", now.tv_nsec / 1000000);
}

/* Paths come from outside: nothing of them may end a line or move a cursor. */
static void harmless(char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text == 0x7f || *text == '"') *text = '?';
}

/* The request's body as one JSON string; NULL: not asked for. */
static char *content_text(const pl_exchange *x)
{
    if (!x->server->settings.log_content || !x->body.size) return NULL;
    json_t *text = pl_json_bytes(x->body.data, x->body.size);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY | JSON_ENSURE_ASCII) : NULL;
    json_decref(text);
    return quoted;
}

static void count(const pl_exchange *x)
{
    pl_status_count *counts = x->server->statuses;
    for (size_t i = 0; i < PL_METRIC_STATUSES; i++)
        if (counts[i].status == x->status) atomic_fetch_add(&counts[i].n, 1);
}

void pl_log_exchange(const pl_exchange *x)
{
    char when[32], path[100], *content;
    double ms = 1e3 * (pl_seconds() - x->began);
    count(x);
    if (!x->server->settings.log) return;
    time_text(when);
    snprintf(path, sizeof path, "%s", x->path);
    harmless(path);
    content = content_text(x);
    const char *form =
        x->server->settings.log_json
            ? "{\"time\":\"%s\",\"id\":\"%s\",\"method\":\"%.10s\",\"path\":\"%s\",\"status\":%d,"
              "\"prompt_tokens\":%zu,\"cached_tokens\":%zu,\"new_tokens\":%zu,\"ms\":%.1f%s%s}\n"
            : "%s %s %.10s %s %d prompt=%zu cached=%zu new=%zu %.1f ms%s%s\n";
    const char *label = x->server->settings.log_json ? ",\"content\":" : " ";
    fprintf(stderr, form, when, x->id[0] ? x->id : "-", x->method, path, x->status,
            x->prompt_tokens, x->cached_tokens, x->new_tokens, ms, content ? label : "",
            content ? content : "");
    free(content);
}
