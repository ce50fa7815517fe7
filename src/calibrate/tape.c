/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a tape: what a chunk leaves behind on its way through a block. */
#include "base/memory.h"
#include "block.h"
#include "model/rope.h"

enum { ARRAYS = 40 + 3 * PL_MAX_ROPES };

/* Where each array hangs and how many numbers it holds. */
typedef struct tape_array {
    float **at;
    uint64_t size;
} tape_array;

/* Numbers of all feed-forward widths of n tokens: of the dense part, or of the experts they see. */
static uint64_t feed_width(const pl_config *g, uint64_t n)
{
    uint64_t experts = (uint64_t)g->n_experts_used * g->expert_size + g->shared_expert_size;
    return n * PL_MAX((uint64_t)g->intermediate_size, experts);
}

/* The widest of them for one token. */
static uint64_t widest_part(const pl_config *g)
{
    return PL_MAX(g->intermediate_size, PL_MAX(g->expert_size, g->shared_expert_size));
}

static size_t list_ropes(pl_tape *tape, const pl_config *g, uint64_t n, bool backward,
                         tape_array *arrays)
{
    const pl_rope_config *ropes[PL_MAX_ROPES] = {&g->rope, &g->rope_local};
    size_t used = 0;
    for (size_t i = 0; i < PL_MAX_ROPES && ropes[i]->dims; i++) {
        uint64_t half = ropes[i]->dims / 2;
        arrays[used++] = (tape_array){&tape->cos[i], n * half};
        arrays[used++] = (tape_array){&tape->sin[i], n * half};
        if (backward) arrays[used++] = (tape_array){&tape->minus_sin[i], n * half};
    }
    return used;
}

static size_t list_arrays(pl_tape *tape, const pl_config *g, uint64_t n, bool backward,
                          tape_array arrays[ARRAYS])
{
    const uint64_t C = g->hidden_size, I = feed_width(g, n), D = g->head_dim;
    const uint64_t Q = g->n_heads * D, K = g->n_kv_heads * D;
    const uint64_t raw = g->qk_norm, back = backward, post = g->post_norms;
    const uint64_t shared = g->shared_expert_size != 0, mixture = g->n_experts != 0;
    const uint64_t slots = n * g->n_experts_used * mixture, rows = slots + n * shared;
    const tape_array all[] = {
        {&tape->x, n * C},
        {&tape->normed1, n * C},
        {&tape->h, n * C},
        {&tape->normed2, n * C},
        {&tape->q, n * Q},
        {&tape->k, n * K},
        {&tape->v, n * K},
        {&tape->q_raw, raw * n * Q},
        {&tape->k_raw, raw * n * K},
        {&tape->mixed, n * Q},
        {&tape->gate, I},
        {&tape->up, I},
        {&tape->act, I},
        {&tape->probabilities, g->n_heads * n * n},
        {&tape->mixed_raw, post * n * C},
        {&tape->fed_raw, post * n * C},
        {&tape->dh, post * back * n * C},
        {&tape->scratch, back * n * PL_MAX(PL_MAX(C, widest_part(g)), Q)},
        {&tape->d_q, back * n * Q},
        {&tape->d_k, back * n * K},
        {&tape->d_v, back * n * K},
        {&tape->d_o, back * n * C},
        {&tape->d_gate, back * I},
        {&tape->d_up, back * I},
        {&tape->d_down, back * n * C},
        {&tape->routed, slots * C},
        {&tape->expert_y, rows * C},
        {&tape->expert_d_y, back * rows * C},
        {&tape->expert_d_x, back * rows * C},
        {&tape->d_scores, back * n * g->n_experts},
        {&tape->shared_score, n * shared},
        {&tape->d_shared, back * n * shared},
    };
    size_t used = 0;
    for (size_t i = 0; i < PL_COUNT(all); i++)
        if (all[i].size) arrays[used++] = all[i];
    return used + list_ropes(tape, g, n, backward, arrays + used);
}

/* The most linear layers that a layer has. */
static size_t most_linears(const pl_config *g)
{
    size_t most = 0;
    for (uint32_t i = 0; i < g->n_layers; i++) most = PL_MAX(most, pl_config_layer_modules(g, i));
    return most;
}

uint64_t pl_tape_memory(const pl_config *config, size_t capacity, bool backward)
{
    pl_tape tape;
    tape_array arrays[ARRAYS];
    size_t n = list_arrays(&tape, config, capacity, backward, arrays);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += arrays[i].size;
    if (config->n_experts)
        sum += capacity * config->n_experts_used +
               pl_routes_memory(capacity, config->n_experts, config->n_experts_used) /
                   sizeof(float);
    return sum * sizeof(float);
}

static void fill_rope(pl_tape *tape, const pl_rope *r, size_t i)
{
    float *cos = tape->cos[i], *sin = tape->sin[i], *minus_sin = tape->minus_sin[i];
    for (size_t m = 0; m < tape->capacity; m++)
        pl_rope_table(r->frequencies, r->half, m, r->scale, cos + m * r->half, sin + m * r->half);
    for (size_t j = 0; minus_sin && j < tape->capacity * r->half; j++) minus_sin[j] = -sin[j];
}

/* What is no array of numbers for each token. */
static pleach_status open_lists(pl_tape *tape, const pl_config *g, pleach_error *err)
{
    size_t n = most_linears(g), used = g->n_experts_used;
    tape->input = pl_calloc(n, sizeof *tape->input);
    tape->gradient = pl_calloc(n, sizeof *tape->gradient);
    tape->rows = pl_calloc(n, sizeof *tape->rows);
    tape->mlps = pl_calloc(n / 3, sizeof *tape->mlps);
    tape->place = pl_alloc(tape->capacity, (used ? used : 1) * sizeof *tape->place);
    if (!tape->input || !tape->gradient || !tape->rows || !tape->mlps || !tape->place)
        return pl_fail_memory(err, "a chunk's activations", n * 4 * sizeof *tape->input);
    if (!g->n_experts) return PLEACH_OK;
    return pl_routes_open(&tape->routes, tape->capacity, g->n_experts, g->n_experts_used, err);
}

pleach_status pl_tape_open(pl_tape *tape, const pl_transformer *t, size_t capacity, bool backward,
                           pleach_error *err)
{
    tape_array arrays[ARRAYS];
    *tape = (pl_tape){.capacity = capacity, .config = t->config};
    size_t n = list_arrays(tape, t->config, capacity, backward, arrays);
    pleach_status status = open_lists(tape, t->config, err);
    for (size_t i = 0; status == PLEACH_OK && i < n; i++) {
        *arrays[i].at = pl_alloc(arrays[i].size, sizeof(float));
        if (!*arrays[i].at)
            status = pl_fail_memory(err, "a chunk's activations",
                                    pl_tape_memory(t->config, capacity, backward));
    }
    for (uint32_t i = 0; status == PLEACH_OK && i < t->n_ropes; i++)
        fill_rope(tape, &t->ropes[i], i);
    if (status != PLEACH_OK) pl_tape_close(tape);
    return status;
}

void pl_tape_close(pl_tape *tape)
{
    tape_array arrays[ARRAYS];
    size_t n = tape->config ? list_arrays(tape, tape->config, 1, true, arrays) : 0;
    for (size_t i = 0; i < n; i++) pl_free(*arrays[i].at);
    pl_routes_close(&tape->routes);
    pl_free(tape->input);
    pl_free(tape->gradient);
    pl_free(tape->rows);
    pl_free(tape->mlps);
    pl_free(tape->place);
    *tape = (pl_tape){0};
}
