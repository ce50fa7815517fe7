/* SPDX-License-Identifier: Apache-2.0 */
#include "server.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "http.h"
#include "state.h"

void pl_server_defaults(pl_server_settings *s)
{
    *s = (pl_server_settings){
        .host = "127.0.0.1",
        .port = 8080,
        .alias = "pleach",
        .max_body = 16 << 20,
        .connections = 512,
        .timeout = 60,
        .stop_seconds = 3,
    };
    pleach_batch_settings_defaults(&s->batch);
}

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status own_text(const char **text, pleach_error *err)
{
    if (!*text) return PLEACH_OK;
    char *copy = strdup(*text);
    *text = copy;
    return copy ? PLEACH_OK : pl_fail_memory(err, "settings", 0);
}

static pleach_status own_settings(pl_server_settings *s, pleach_error *err)
{
    const char **texts[] = {&s->host, &s->alias, &s->cors};
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; i < PL_COUNT(texts); i++) {
        if (status == PLEACH_OK)
            status = own_text(texts[i], err);
        else
            *texts[i] = NULL;
    }
    return status;
}

static void count_statuses(pl_server *s)
{
    static const int statuses[PL_METRIC_STATUSES] = {200, 400, 401, 404, 413, 429, 500, 503};
    for (size_t i = 0; i < PL_METRIC_STATUSES; i++) s->statuses[i].status = statuses[i];
}

static size_t longest_piece(const pl_tokenizer *t)
{
    size_t longest = 1;
    for (size_t id = 0; id < pl_tokenizer_size(t); id++) {
        size_t size;
        pl_tokenizer_piece(t, (int32_t)id, &size);
        longest = PL_MAX(longest, size);
    }
    return longest;
}

static pleach_status prepare(pl_server *s, const pleach_model *m, pleach_error *err)
{
    pleach_batch_info info;
    s->model = m;
    s->tokenizer = m->tokenizer;
    s->started = (int64_t)time(NULL);
    pl_connections_init(&s->connections);
    count_statuses(s);
    PL_TRY(own_settings(&s->settings, err));
    PL_FAIL_IF(!m->tokenizer, err, PLEACH_ERR_MISSING, "the model has no tokenizer");
    if (s->settings.key_file) PL_TRY(pl_keys_read(s->settings.key_file, &s->keys, err));
    pleach_model_get_info(m, &s->info);
    PL_TRY(pleach_batch_open(m, &s->settings.batch, &s->batch, err));
    pleach_batch_get_info(s->batch, &info);
    s->context = info.context;
    s->longest_piece = longest_piece(s->tokenizer);
    return PLEACH_OK;
}

pleach_status pl_server_prepare(const pleach_model *m, const pl_server_settings *settings,
                                pl_server **out, pleach_error *err)
{
    *out = NULL;
    pl_server *s = pl_calloc(1, sizeof *s);
    if (!s) return pl_fail_memory(err, "server", sizeof *s);
    s->settings = *settings;
    pleach_status status = prepare(s, m, err);
    if (status == PLEACH_OK)
        *out = s;
    else
        pl_server_release(s);
    return status;
}

void pl_server_release(pl_server *s)
{
    pleach_batch_close(s->batch);
    pl_keys_free(&s->keys);
    pl_connections_destroy(&s->connections);
    free((char *)s->settings.host);
    free((char *)s->settings.alias);
    free((char *)s->settings.cors);
    pl_free(s);
}

pleach_status pl_server_open(const pleach_model *m, const pl_server_settings *settings,
                             pl_server **out, pleach_error *err)
{
    PL_TRY(pl_server_prepare(m, settings, out, err));
    pleach_status status = pl_http_start(*out, err);
    if (status == PLEACH_OK) return PLEACH_OK;
    pl_server_release(*out);
    *out = NULL;
    return status;
}

int pl_server_port(const pl_server *s)
{
    return s->settings.port;
}

void pl_server_cache_info(const pl_server *s, pleach_cache_info *info)
{
    pleach_batch_cache_info(s->batch, info);
}

void pl_server_tick(pl_server *s)
{
    pl_connections_shut_late(&s->connections);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void wait_for_answers(const pl_server *s, double seconds)
{
    static const struct timespec moment = {.tv_nsec = 10000000};
    for (double end = pl_seconds() + seconds; atomic_load(&s->active) && pl_seconds() < end;)
        nanosleep(&moment, NULL);
}

void pl_server_close(pl_server *s)
{
    if (!s) return;
    atomic_store(&s->stopping, true);
    pl_http_stop_listening(s);
    wait_for_answers(s, s->settings.stop_seconds);
    atomic_store(&s->cut, true);
    wait_for_answers(s, 1); /* time to say so */
    pl_http_stop(s);
    pl_server_release(s);
}
