/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of a tape: what a chunk leaves behind on its way through a block. */
#include "base/memory.h"
#include "block.h"
#include "model/rope.h"

enum { ARRAYS = 25 + 3 + 3 * PL_MAX_ROPES };

/* Where each array hangs and how many numbers it holds. */
typedef struct tape_array {
    float **at;
    uint64_t size;
} tape_array;

static size_t list_arrays(pl_tape *tape, const pl_config *g, uint64_t n, bool backward,
                          tape_array arrays[ARRAYS])
{
    const uint64_t C = g->hidden_size, I = g->intermediate_size;
    const uint64_t D = g->head_dim, Q = g->n_heads * D, K = g->n_kv_heads * D;
    const uint64_t raw = g->qk_norm, back = backward;
    float **d = tape->gradient;
    const uint64_t post = g->post_norms;
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
        {&tape->gate, n * I},
        {&tape->up, n * I},
        {&tape->act, n * I},
        {&tape->probabilities, g->n_heads * n * n},
        {&tape->mixed_raw, post * n * C},
        {&tape->fed_raw, post * n * C},
        {&tape->dh, post * back * n * C},
        {&tape->scratch, back * n * PL_MAX(PL_MAX(C, I), Q)},
        {&d[PL_BLOCK_Q], back * n * Q},
        {&d[PL_BLOCK_K], back * n * K},
        {&d[PL_BLOCK_V], back * n * K},
        {&d[PL_BLOCK_O], back * n * C},
        {&d[PL_BLOCK_GATE], back * n * I},
        {&d[PL_BLOCK_UP], back * n * I},
        {&d[PL_BLOCK_DOWN], back * n * C},
    };
    size_t used = 0;
    for (size_t i = 0; i < PL_COUNT(all); i++)
        if (all[i].size) arrays[used++] = all[i];
    const pl_rope_config *ropes[PL_MAX_ROPES] = {&g->rope, &g->rope_local};
    for (size_t i = 0; i < PL_MAX_ROPES && ropes[i]->dims; i++) {
        uint64_t half = ropes[i]->dims / 2;
        arrays[used++] = (tape_array){&tape->cos[i], n * half};
        arrays[used++] = (tape_array){&tape->sin[i], n * half};
        if (backward) arrays[used++] = (tape_array){&tape->minus_sin[i], n * half};
    }
    return used;
}

uint64_t pl_tape_memory(const pl_config *config, size_t capacity, bool backward)
{
    pl_tape tape;
    tape_array arrays[ARRAYS];
    size_t n = list_arrays(&tape, config, capacity, backward, arrays);
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += arrays[i].size;
    return sum * sizeof(float);
}

static void fill_rope(pl_tape *tape, const pl_rope *r, size_t i)
{
    float *cos = tape->cos[i], *sin = tape->sin[i], *minus_sin = tape->minus_sin[i];
    for (size_t m = 0; m < tape->capacity; m++)
        pl_rope_table(r->frequencies, r->half, m, r->scale, cos + m * r->half, sin + m * r->half);
    for (size_t j = 0; minus_sin && j < tape->capacity * r->half; j++) minus_sin[j] = -sin[j];
}

pleach_status pl_tape_open(pl_tape *tape, const pl_transformer *t, size_t capacity, bool backward,
                           pleach_error *err)
{
    tape_array arrays[ARRAYS];
    *tape = (pl_tape){.capacity = capacity};
    size_t n = list_arrays(tape, t->config, capacity, backward, arrays);
    for (size_t i = 0; i < n; i++) {
        *arrays[i].at = pl_alloc(arrays[i].size, sizeof(float));
        if (*arrays[i].at) continue;
        pl_tape_close(tape);
        return pl_fail_memory(err, "a chunk's activations",
                              pl_tape_memory(t->config, capacity, backward));
    }
    for (uint32_t i = 0; i < t->n_ropes; i++) fill_rope(tape, &t->ropes[i], i);
    return PLEACH_OK;
}

void pl_tape_close(pl_tape *tape)
{
    float *arrays[] = {tape->x,     tape->normed1, tape->h,     tape->normed2,   tape->q,
                       tape->k,     tape->v,       tape->q_raw, tape->k_raw,     tape->mixed,
                       tape->gate,  tape->up,      tape->act,   tape->mixed_raw, tape->fed_raw,
                       tape->dh,    tape->scratch, tape->probabilities};
    for (size_t i = 0; i < PL_COUNT(arrays); i++) pl_free(arrays[i]);
    for (size_t i = 0; i < PL_BLOCK_LINEARS; i++) pl_free(tape->gradient[i]);
    for (size_t i = 0; i < PL_MAX_ROPES; i++) {
        pl_free(tape->cos[i]);
        pl_free(tape->sin[i]);
        pl_free(tape->minus_sin[i]);
    }
    *tape = (pl_tape){0};
}

const float *pl_tape_input(const pl_tape *tape, int linear)
{
    switch (linear) {
    case PL_BLOCK_O: return tape->mixed;
    case PL_BLOCK_GATE:
    case PL_BLOCK_UP: return tape->normed2;
    case PL_BLOCK_DOWN: return tape->act;
    default: return tape->normed1;
    }
}
