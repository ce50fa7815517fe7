/* SPDX-License-Identifier: Apache-2.0
 *
 * A loaded model: checkpoint, bound weights, tokenizer and kernel table, opened together. */
#include "engine.h"

#include <stdio.h>
#include <string.h>

#include "base/cpu.h"
#include "base/memory.h"
#include "base/threads.h"
#include "text/chat.h"

static const char *const arith_names[] = {"int16", "int16x2", "f32", "bf16", "int8"};

const char *pleach_arith_name(pleach_arith arith)
{
    return (unsigned)arith < PL_COUNT(arith_names) ? arith_names[arith] : NULL;
}

pleach_status pleach_arith_parse(const char *name, pleach_arith *arith, pleach_error *err)
{
    for (size_t i = 0; name && i < PL_COUNT(arith_names); i++)
        if (strcmp(name, arith_names[i]) == 0) {
            *arith = (pleach_arith)i;
            return PLEACH_OK;
        }
    return pl_fail(err, PLEACH_ERR_ARGUMENT,
                   "unknown arithmetic '%s': int16, int16x2, f32, bf16 or int8", name ? name : "");
}

void pleach_model_settings_defaults(pleach_model_settings *s)
{
    *s = (pleach_model_settings){.arith = PLEACH_ARITH_INT16};
}

/* ---- opening --------------------------------------------------------------------------------- */

static pleach_status refuse_cpu(const char *name, pleach_error *err)
{
    static const char *const levels[] = {"c", "avx2", "avx512", "avx512bf16", "neon", "dotprod"};
    char have[64] = "";
    unsigned flags;
    for (size_t i = 0; i < PL_COUNT(levels); i++)
        if (pl_cpu_level(levels[i], &flags) == 0)
            snprintf(have + strlen(have), sizeof have - strlen(have), "%s%s", i ? ", " : "",
                     levels[i]);
    return pl_fail(err, PLEACH_ERR_ARGUMENT,
                   "CPU level '%s' is unknown or not on this machine, which has: %s", name, have);
}

static pleach_status open_compute(const pleach_model_settings *s, pl_compute *c, pleach_error *err)
{
    unsigned cpu;
    PL_FAIL_IF(s->threads < 0 || s->threads > PL_MAX_THREADS, err, PLEACH_ERR_ARGUMENT,
               "%d threads: expected 1 to %d, or 0 for all cores", s->threads, PL_MAX_THREADS);
    PL_FAIL_IF(!pleach_arith_name(s->arith), err, PLEACH_ERR_ARGUMENT, "unknown arithmetic %d",
               (int)s->arith);
    if (pl_cpu_level(s->cpu, &cpu)) return refuse_cpu(s->cpu, err);
    pl_kernels_init(&c->kernels, cpu);
    c->arith = s->arith;
    return pl_pool_open(s->threads ? s->threads : pl_default_threads(), &c->pool, err);
}

/* A tokenizer if there is one: only its absence is no error. */
static pleach_status open_tokenizer(pleach_model *m, const char *path, pleach_error *err)
{
    const pl_gguf *gguf = pl_checkpoint_gguf(m->checkpoint);
    pleach_status status = gguf ? pl_tokenizer_open_gguf(gguf, &m->tokenizer, err)
                                : pl_tokenizer_open_folder(path, &m->tokenizer, err);
    if (status == PLEACH_ERR_MISSING) return PLEACH_OK;
    if (status != PLEACH_OK) return status;
    m->tokens = pl_calloc(1, sizeof *m->tokens);
    if (!m->tokens) return pl_fail_memory(err, "model", sizeof *m->tokens);
    pthread_mutex_init(&m->tokens->lock, NULL);
    return PLEACH_OK;
}

static void close_tokens(pl_token_cell *c)
{
    if (!c) return;
    pl_token_list_close(c->list);
    pthread_mutex_destroy(&c->lock);
    pl_free(c);
}

static void add_end_token(pleach_model *m, int32_t id)
{
    if (id >= 0 && !pl_model_is_end(m, id)) m->end_tokens[m->n_end_tokens++] = id;
}

static void collect_tokens(pleach_model *m)
{
    const pl_config *g = m->transformer->config;
    m->bos = g->bos;
    if (m->bos < 0 && m->tokenizer) m->bos = pl_tokenizer_bos(m->tokenizer);
    for (uint32_t i = 0; i < g->n_end_tokens; i++) add_end_token(m, g->end_tokens[i]);
    if (m->tokenizer) add_end_token(m, pl_tokenizer_eos(m->tokenizer));
}

static pleach_status open_parts(pleach_model *m, const char *path,
                                const pleach_model_settings *s, pleach_error *err)
{
    PL_TRY(open_compute(s, &m->compute, err));
    PL_TRY(pl_checkpoint_open(path, &m->checkpoint, err));
    PL_TRY(pl_transformer_open(m->checkpoint, &m->transformer, err));
    PL_TRY(pl_backend_open(m->transformer, &m->compute, s->device, s->batch_invariant != 0,
                           &m->backend, err));
    if (!s->weights_only) PL_TRY(open_tokenizer(m, path, err));
    collect_tokens(m);
    for (size_t i = 0; i < pl_checkpoint_tensor_count(m->checkpoint); i++)
        m->weight_bytes += pl_checkpoint_tensor_at(m->checkpoint, i)->n_bytes;
    return PLEACH_OK;
}

pleach_status pleach_model_open(const char *path, const pleach_model_settings *settings,
                                pleach_model **out, pleach_error *err)
{
    pleach_model_settings defaults;
    pleach_model_settings_defaults(&defaults);
    *out = NULL;
    pleach_model *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail_memory(err, "model", sizeof *m);
    pleach_status status = open_parts(m, path, settings ? settings : &defaults, err);
    if (status == PLEACH_OK) *out = m;
    else pleach_model_close(m);
    return status;
}

void pleach_model_close(pleach_model *m)
{
    if (!m) return;
    close_tokens(m->tokens);
    pl_tokenizer_close(m->tokenizer);
    pl_backend_close(m->backend);
    pl_transformer_close(m->transformer);
    pleach_checkpoint_close(m->checkpoint);
    pl_pool_close(m->compute.pool);
    pl_free(m);
}

bool pl_model_is_end(const pleach_model *m, int32_t id)
{
    for (uint32_t i = 0; i < m->n_end_tokens; i++)
        if (m->end_tokens[i] == id) return true;
    return false;
}

pleach_status pl_model_token_list(const pleach_model *m, const pl_token_list **out,
                                  pleach_error *err)
{
    pl_token_cell *c = m->tokens;
    *out = NULL;
    PL_FAIL_IF(!c, err, PLEACH_ERR_MISSING, "a grammar wants a model with a tokenizer");
    pthread_mutex_lock(&c->lock);
    pleach_status status =
        c->list ? PLEACH_OK : pl_token_list_open(m->tokenizer, &c->list, err);
    *out = c->list;
    pthread_mutex_unlock(&c->lock);
    return status;
}

void pleach_model_get_info(const pleach_model *m, pleach_model_info *info)
{
    const pl_config *g = m->transformer->config;
    const char *chat = m->tokenizer ? pl_tokenizer_chat_template(m->tokenizer) : NULL;
    *info = (pleach_model_info){
        .architecture = g->arch_name,
        .cpu = pl_cpu_name(m->compute.kernels.cpu),
        .chat_format = pl_chat_format_name(chat),
        .vocab_size = g->vocab_size,
        .hidden_size = g->hidden_size,
        .layers = g->n_layers,
        .heads = g->n_heads,
        .kv_heads = g->n_kv_heads,
        .head_dim = g->head_dim,
        .context_length = g->context_length,
        .has_tokenizer = m->tokenizer != NULL,
        .threads = pl_pool_threads(m->compute.pool),
        .bos = m->bos,
        .n_end_tokens = m->n_end_tokens,
        .end_tokens = m->end_tokens,
        .weight_bytes = m->weight_bytes,
        .device = m->backend->device,
        .device_name = m->backend->name,
        .device_bytes = m->backend->bytes,
        .workspace_bytes = m->backend->workspace,
    };
}

/* ---- text ------------------------------------------------------------------------------------ */

static pleach_status need_tokenizer(const pleach_model *m, pleach_error *err)
{
    PL_FAIL_IF(!m->tokenizer, err, PLEACH_ERR_MISSING, "%s: the model has no tokenizer",
               pl_checkpoint_path(m->checkpoint));
    return PLEACH_OK;
}

/* Hands a list over, or releases it on failure. */
static pleach_status hand_over(pleach_status status, pl_ids *list, int32_t **ids, size_t *n)
{
    if (status != PLEACH_OK) {
        pl_free(list->ids);
        return status;
    }
    *ids = list->ids;
    *n = list->n;
    return PLEACH_OK;
}

pleach_status pleach_tokenize(const pleach_model *m, const char *text, size_t size, unsigned flags,
                              int32_t **ids, size_t *n, pleach_error *err)
{
    *ids = NULL;
    *n = 0;
    PL_TRY(need_tokenizer(m, err));
    unsigned known = PLEACH_TOKENIZE_BOS | PLEACH_TOKENIZE_SPECIAL;
    PL_FAIL_IF(flags & ~known, err, PLEACH_ERR_ARGUMENT, "unknown tokenize flags 0x%x", flags);
    unsigned encode = (flags & PLEACH_TOKENIZE_BOS ? PL_ENCODE_BOS : 0) |
                      (flags & PLEACH_TOKENIZE_SPECIAL ? PL_ENCODE_SPECIAL : 0);
    pl_ids list = {0};
    return hand_over(pl_tokenizer_encode(m->tokenizer, text, size, encode, &list, err), &list, ids,
                     n);
}

void pleach_ids_free(int32_t *ids) { pl_free(ids); }

pleach_status pleach_detokenize(const pleach_model *m, const int32_t *ids, size_t n, int special,
                                char **text, size_t *size, pleach_error *err)
{
    *text = NULL;
    *size = 0;
    PL_TRY(need_tokenizer(m, err));
    return pl_tokenizer_decode(m->tokenizer, ids, n, special != 0, text, size, err);
}

void pleach_text_free(char *text) { pl_free(text); }

pleach_status pleach_chat_tokenize(const pleach_model *m, const pleach_message *messages,
                                   size_t n_messages, int32_t **ids, size_t *n, pleach_error *err)
{
    *ids = NULL;
    *n = 0;
    PL_TRY(need_tokenizer(m, err));
    pl_ids list = {0};
    return hand_over(pl_chat_encode(m->tokenizer, messages, n_messages, &list, err), &list, ids, n);
}
