/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's linear layers alone, as one token meets them: what its generation would be if all the
 * rest took no time. */
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
} linears;

static size_t widest(const pl_transformer *t)
{
    const pl_config *g = t->config;
    size_t heads = (size_t)g->n_heads * g->head_dim;
    size_t inside = PL_MAX(PL_MAX(heads, (size_t)g->hidden_size), (size_t)g->intermediate_size);
    return PL_MAX(inside, (size_t)t->head.w.out);
}

/* The most that any application of a token needs. */
static size_t scratch_bytes(const pl_compute *c, const pl_transformer *t)
{
    const pl_linear *head = &t->head;
    size_t most = pl_linear_scratch(c, &head, 1, 1);
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *l = &t->layers[i];
        most = PL_MAX(most, pl_forward_attention_scratch(&l->attention, c, 1));
        most = PL_MAX(most, pl_forward_mlp_scratch(&l->mlp, c, 1));
    }
    return most;
}

static void apply_all(const linears *l)
{
    const pl_compute *c = &l->model->compute;
    const pl_transformer *t = l->model->transformer;
    const pl_linear *head = &t->head;
    for (uint32_t i = 0; i < t->config->n_layers; i++) {
        const pl_layer *layer = &t->layers[i];
        const pl_attention_part *a = &layer->attention;
        const pl_mlp_part *mlp = &layer->mlp;
        const pl_linear *qkv[] = {&a->q, &a->k, &a->v};
        const pl_linear *o = &a->o, *down = &mlp->down;
        pl_linear_apply(c, qkv, 3, l->x, 1, l->y, l->scratch);
        pl_linear_apply(c, &o, 1, l->x, 1, l->y, l->scratch);
        pl_linear_gated(c, &mlp->gate, &mlp->up, c->kernels.silu_mul, l->x, 1, l->y[0], l->y[1], l->scratch);
        pl_linear_apply(c, &down, 1, l->x, 1, l->y, l->scratch);
    }
    pl_linear_apply(c, &head, 1, l->x, 1, l->y, l->scratch);
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
        double start = seconds_now();
        for (size_t i = 0; i < tokens; i++) apply_all(&l);
        seconds[r] = seconds_now() - start;
    }
    *out = rate_of(seconds, repeats, (double)tokens);
out:
    pl_free(numbers);
    pl_free(l.scratch);
    return status;
}
