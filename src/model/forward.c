/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass: pre-norm layers of a part that mixes positions and a part that feeds forward,
 * f32 activations throughout. The parts are in files of their own (forward.h). */
#include "forward.h"

#include <math.h>
#include <string.h>

#include "rope.h"

static void norm_row(void *forward, size_t i, int thread)
{
    const pl_forward *p = forward;
    pl_workspace *w = p->w;
    size_t C = w->t->config->hidden_size, at = (p->from + i) * C;
    (void)thread;
    const pl_kernels *k = &p->c->kernels;
    float eps = w->t->config->rms_norm_eps, *update = w->update + at;
    if (p->update && p->post_gain) k->rms_norm(update, update, p->post_gain, C, eps);
    if (p->update) k->axpy_f32(w->x + at, 1, update, C);
    k->rms_norm(w->norm + at, w->x + at, p->gain, C, eps);
}

/* norm = RMSNorm(x) for rows [from, n), after x += update if there is one, by way of a norm of its
 * own if it has one. */
static void add_and_norm(pl_forward *p, const float *gain, bool update, const float *post_gain)
{
    p->gain = gain;
    p->update = update;
    p->post_gain = post_gain;
    pl_for_rows(p, p->w->t->config->hidden_size, norm_row);
}

static void embed_row(void *forward, size_t m, int thread)
{
    const pl_forward *p = forward;
    pl_workspace *w = p->w;
    const pl_transformer *t = w->t;
    size_t C = t->config->hidden_size;
    (void)thread;
    pl_transformer_embed(t, (uint64_t)p->ids[m], w->x + m * C);
    for (uint32_t i = 0; i < t->n_ropes; i++) {
        const pl_rope *r = &t->ropes[i];
        pl_rope_table(r->frequencies, r->half, pl_row_position(p, m), r->scale,
                      w->cos[i] + m * r->half, w->sin[i] + m * r->half);
    }
}

static void cap_row(void *forward, size_t i, int thread)
{
    const pl_forward *p = forward;
    size_t V = p->w->t->config->vocab_size;
    float cap = p->w->t->config->final_soft_cap, *row = p->logits + i * V;
    (void)thread;
    for (size_t j = 0; j < V; j++) row[j] = cap * tanhf(row[j] / cap);
}

/* Everything but the caches' lengths; logits and hidden of rows [first, n). */
static void run_layers(pl_forward *p, size_t first, float *logits, float *hidden)
{
    pl_workspace *w = p->w;
    const pl_transformer *t = w->t;
    size_t C = t->config->hidden_size;
    const float *fed_norm = NULL;
    pl_for_rows(p, C, embed_row);
    for (p->layer = 0; p->layer < t->config->n_layers; p->layer++) {
        const pl_layer *l = &t->layers[p->layer];
        add_and_norm(p, l->input_norm, p->layer > 0, fed_norm);
        /* Nobody asks the last layer for more than the rows that get logits. */
        if (p->layer + 1 == t->config->n_layers) p->from = first;
        if (l->delta) pl_forward_delta(p, l->delta);
        else pl_forward_attention(p, &l->attention);
        if (p->from == p->n) break;
        add_and_norm(p, l->post_norm, true, l->mixed_norm);
        if (l->experts) pl_forward_experts(p, l->experts);
        else pl_forward_mlp(p, &l->mlp);
        fed_norm = l->fed_norm;
    }
    if (first == p->n) return;
    const pl_linear *head = &t->head;
    add_and_norm(p, t->final_norm, true, fed_norm);
    if (hidden) memcpy(hidden, w->norm + first * C, (p->n - first) * C * sizeof *hidden);
    if (!logits) return;
    pl_linear_apply(p->c, &head, 1, w->norm + first * C, p->n - first, &logits, w->linear);
    p->logits = logits;
    if (t->config->final_soft_cap > 0) pl_for_rows(p, t->config->vocab_size, cap_row);
}

pleach_status pl_transformer_forward(const pl_transformer *t, const pl_compute *c, pl_workspace *w,
                                     pl_cache *cache, const int32_t *ids, size_t n, size_t first,
                                     float *logits, float *hidden, pleach_error *err)
{
    (void)t;
    if (n == 0) return PLEACH_OK;
    pl_forward p = {.w = w, .c = c, .caches = &cache, .ids = ids, .n = n};
    PL_TRY(pl_forward_reserve(w, c, false, pl_cache_length(cache) + n, err));
    run_layers(&p, logits || hidden ? PL_MIN(first, n) : n, logits, hidden);
    pl_cache_advance(cache, n);
    return PLEACH_OK;
}

pleach_status pl_transformer_step(const pl_compute *c, pl_workspace *w, pl_cache *const *caches,
                                  const int32_t *ids, size_t n, float *logits, pleach_error *err)
{
    if (n == 0) return PLEACH_OK;
    pl_forward p = {.w = w, .c = c, .caches = caches, .apart = true, .ids = ids, .n = n};
    size_t longest = 0;
    for (size_t m = 0; m < n; m++) longest = PL_MAX(longest, pl_cache_length(caches[m]));
    PL_TRY(pl_forward_reserve(w, c, true, longest + 1, err));
    run_layers(&p, 0, logits, NULL);
    for (size_t m = 0; m < n; m++) pl_cache_advance(caches[m], 1);
    return PLEACH_OK;
}
