/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's linear layers alone, as one token meets them: what its generation would be if all the
 * rest took no time. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench.h"
#include "console.h"
#include "model/forward.h"
#include "runtime/engine.h"

typedef struct linears {
    const pleach_model *model;
    float *x, *y[3]; /* [widest] each */
    void *scratch;
    size_t turn; /* token after token meets other experts */
} linears;

static size_t widest(const pl_transformer *t)
{
    size_t most = PL_MAX(PL_MAX(t->head.w.out, t->head.w.in), t->config->n_experts);
    for (uint32_t i = 0; i < t->config->n_layers; i++)
        for (size_t j = 0; j < pl_config_layer_modules(t->config, i); j++) {
            pl_module m;
            pl_config_layer_module(t->config, i, j, &m);
            most = PL_MAX(most, PL_MAX(m.out, m.in));
        }
    return most;
}

/* The most that any application of a token needs. */
static size_t scratch_bytes(const pl_compute *c, const pl_transformer *t)
{
    const pl_linear *head = &t->head;
    size_t most = pl_linear_scratch(c, &head, 1, 1);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *l = &t->layers[i];
        size_t mixes = l->delta ? pl_forward_delta_scratch(l->delta, c, 1)
                                : pl_forward_attention_scratch(&l->attention, c, 1);
        size_t feeds = l->experts ? pl_forward_experts_scratch(l->experts, c, 1)
                                  : pl_forward_mlp_scratch(&l->mlp, c, 1);
        most = PL_MAX(most, PL_MAX(mixes, feeds));
    }
    return most;
}

static void apply(const linears *l, const pl_linear *const *list, size_t n)
{
    pl_linear_apply(&l->model->compute, list, n, l->x, 1, l->y, l->scratch);
}

static void apply_mlp(const linears *l, const pl_mlp_part *m)
{
    const pl_compute *c = &l->model->compute;
    const pl_linear *down = &m->down;
    pl_linear_gated(c, &m->gate, &m->up, c->kernels.silu_mul, l->x, 1, l->y[0], l->y[1],
                    l->scratch);
    apply(l, &down, 1);
}

static void apply_experts(const linears *l, const pl_experts_part *x)
{
    const pl_linear *router = &x->router;
    apply(l, &router, 1);
    for (uint32_t i = 0; i < x->used; i++)
        apply_mlp(l, &x->experts[(l->turn * x->used + i) % x->n]);
    if (x->has_shared) apply_mlp(l, &x->shared);
}

static void apply_layer(const linears *l, const pl_layer *layer)
{
    const pl_attention_part *a = &layer->attention;
    const pl_delta_part *d = layer->delta;
    if (d) {
        const pl_linear *in[] = {&d->qkv, &d->z}, *out = &d->out;
        apply(l, in, 2);
        apply(l, &out, 1);
    } else {
        const pl_linear *qkv[] = {&a->q, &a->k, &a->v}, *o = &a->o;
        apply(l, qkv, 3);
        apply(l, &o, 1);
    }
    if (layer->experts) apply_experts(l, layer->experts);
    else apply_mlp(l, &layer->mlp);
}

static void apply_all(linears *l)
{
    const pl_transformer *t = l->model->transformer;
    const pl_linear *head = &t->head;
    for (uint32_t i = 0; i < t->config->n_layers; i++) apply_layer(l, &t->layers[i]);
    apply(l, &head, 1);
    l->turn++;
}

pleach_status measure_linears(const pleach_model *m, size_t tokens, size_t repeats, rate *out,
                              pleach_error *err)
{
    double seconds[MOST_REPEATS];
    uint64_t random = 1;
    size_t width = widest(m->transformer), bytes = scratch_bytes(&m->compute, m->transformer);
    float *numbers = pl_alloc(4 * width, sizeof *numbers);
    linears l = {.model = m, .scratch = pl_alloc(bytes, 1)};
    pleach_status status = PLEACH_OK;
    if (!numbers || !l.scratch) {
        status = pl_fail_memory(err, "linear layers", bytes + 4 * width * sizeof *numbers);
        goto out;
    }
    l.x = numbers;
    for (size_t i = 0; i < 3; i++) l.y[i] = numbers + (i + 1) * width;
    for (size_t i = 0; i < width; i++)
        l.x[i] = (float)(pl_random_unit(&random) + pl_random_unit(&random) - 1);
    for (size_t r = 0; r < repeats; r++) {
        if (interrupted()) {
            status = pl_fail(err, PLEACH_ERR_CANCELLED, "interrupted");
            goto out;
        }
        progress_line("linear layers alone, run %zu of %zu", r + 1, repeats);
        double start = pl_seconds();
        for (size_t i = 0; i < tokens; i++) apply_all(&l);
        seconds[r] = pl_seconds() - start;
    }
    *out = rate_of(seconds, repeats, (double)tokens);
out:
    pl_free(numbers);
    pl_free(l.scratch);
    return status;
}
