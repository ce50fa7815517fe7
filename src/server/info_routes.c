/* SPDX-License-Identifier: Apache-2.0
 *
 * What the server says of itself: /v1/models, /health, /props, /metrics. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "exchange.h"

pleach_status pl_route_models(pl_exchange *x, pl_refusal *r)
{
    const pl_server *s = x->server;
    return pl_reply_json(
        x,
        json_pack("{s:s, s:[{s:s, s:s, s:I, s:s, s:{s:s, s:I, s:I, s:I}}]}", "object", "list",
                  "data", "id", s->settings.alias, "object", "model", "created",
                  (json_int_t)s->started, "owned_by", "pleach", "meta", "architecture",
                  s->info.architecture, "context_length", (json_int_t)s->context, "vocab_size",
                  (json_int_t)s->info.vocab_size, "weight_bytes", (json_int_t)s->info.weight_bytes),
        r);
}

pleach_status pl_route_health(pl_exchange *x, pl_refusal *r)
{
    PL_REFUSE_IF(atomic_load(&x->server->stopping), r, 503, NULL, "the server is stopping");
    return pl_reply_json(x, json_pack("{s:s}", "status", "ok"), r);
}

pleach_status pl_route_props(pl_exchange *x, pl_refusal *r)
{
    const pl_server *s = x->server;
    pleach_cache_info cache;
    pl_server_cache_info(s, &cache);
    const char *template = pl_tokenizer_chat_template(s->tokenizer);
    return pl_reply_json(x,
                         json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:i, s:s, s:f, s:I, s:s?, s:s?}",
                                   "model", s->settings.alias, "architecture", s->info.architecture,
                                   "context_length", (json_int_t)s->context, "parallel",
                                   (json_int_t)s->settings.batch.parallel, "queue",
                                   (json_int_t)s->settings.batch.queue, "device", s->info.device,
                                   "threads", s->info.threads, "kv", cache.types, "kv_bits",
                                   cache.bits, "kv_token_bytes", (json_int_t)cache.token_bytes,
                                   "chat_format", s->info.chat_format, "chat_template", template),
                         r);
}

/* ---- metrics, in Prometheus' text format 0.0.4 ----------------------------------------------- */

static pleach_status print(pl_buffer *out, const char *fmt, ...) PL_PRINTF(2, 3);

static pleach_status print(pl_buffer *out, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return pl_buffer_append(out, text, (size_t)n, NULL);
}

typedef struct metric {
    const char *name, *type, *help;
    double value;
} metric;

static pleach_status print_statuses(const pl_server *s, pl_buffer *out)
{
    PL_TRY(print(out, "# HELP pleach_http_requests_total Answers by their status.\n"
                      "# TYPE pleach_http_requests_total counter\n"));
    for (size_t i = 0; i < PL_METRIC_STATUSES; i++)
        if (s->statuses[i].status)
            PL_TRY(print(out, "pleach_http_requests_total{status=\"%d\"} %llu\n",
                         s->statuses[i].status, atomic_load(&s->statuses[i].n)));
    return PLEACH_OK;
}

static pleach_status print_metrics(pl_server *s, pl_buffer *out)
{
    pleach_batch_info b;
    pleach_batch_get_info(s->batch, &b);
    const metric metrics[] = {
        {"requests_total", "counter", "Requests that have ended.", (double)b.requests},
        {"prompt_tokens_total", "counter", "Tokens of prompts.", (double)b.prompt_tokens},
        {"cached_tokens_total", "counter", "Those of them that were kept from before.",
         (double)b.cached_tokens},
        {"new_tokens_total", "counter", "Tokens generated.", (double)b.new_tokens},
        {"steps_total", "counter", "Passes that gave tokens.", (double)b.steps},
        {"prompt_seconds_total", "counter", "Time spent in prompts.", b.prompt_seconds},
        {"step_seconds_total", "counter", "Time spent in steps.", b.step_seconds},
        {"waiting_requests", "gauge", "Requests that wait.", (double)b.waiting},
        {"running_answers", "gauge", "Answers being computed.", (double)b.running},
        {"cache_bytes", "gauge", "Cache held by running answers.", (double)b.cache_bytes},
        {"kept_bytes", "gauge", "Cache kept for later requests.", (double)b.kept_bytes},
        {"kept_sequences", "gauge", "Sequences kept for later requests.", (double)b.kept},
        {"connections", "gauge", "Open connections.",
         (double)pl_connections_count(&s->connections)},
    };
    for (size_t i = 0; i < PL_COUNT(metrics); i++) {
        const metric *m = &metrics[i];
        PL_TRY(print(out, "# HELP pleach_%s %s\n# TYPE pleach_%s %s\npleach_%s %.17g\n", m->name,
                     m->help, m->name, m->type, m->name, m->value));
    }
    return print_statuses(s, out);
}

pleach_status pl_route_metrics(pl_exchange *x, pl_refusal *r)
{
    if (print_metrics(x->server, &x->out) != PLEACH_OK) return pl_refuse_memory(r);
    x->status = 200;
    x->content_type = "text/plain; version=0.0.4";
    return PLEACH_OK;
}
