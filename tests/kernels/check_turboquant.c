/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's codec over the level's rotation: the same bits as over the portable one, and how
 * long a token of one head takes. The codec itself is checked by the unit tests. */
#include "check.h"

#include <string.h>

#include "codec/turboquant.h"

enum { TOKENS = 16 };

static void check_values(check *t, const pl_turboquant *q, const pl_kernels *c,
                         const pl_kernels *isa)
{
    size_t bytes = TOKENS * pl_turboquant_value_bytes(q), numbers = TOKENS * q->dim;
    for (int round = 0; check_round(t, round, 20); round++) {
        check_release(t);
        float *x = check_buffer(t, 4 * numbers, 4);
        uint8_t *want = check_buffer(t, bytes, 2), *got = check_buffer(t, bytes, 2);
        float *want_x = check_buffer(t, 4 * numbers, 4), *got_x = check_buffer(t, 4 * numbers, 4);
        check_fill_f32(t, x, numbers);
        pl_turboquant_view v = pl_turboquant_value_page(q, want, TOKENS, 0);
        pl_turboquant_encode_values(q, c, &v, x, q->dim, TOKENS);
        pl_turboquant_decode_values(q, c, &v, &(pl_turboquant_plain){want_x, q->dim, false}, TOKENS,
                                    false);
        v = pl_turboquant_value_page(q, got, TOKENS, 0);
        pl_turboquant_encode_values(q, isa, &v, x, q->dim, TOKENS);
        pl_turboquant_decode_values(q, isa, &v, &(pl_turboquant_plain){got_x, q->dim, false},
                                    TOKENS, false);
        check_same(t, got, want, bytes);
        check_same(t, got_x, want_x, 4 * numbers);
    }
}

static void time_codec(check *t, const pl_turboquant *q, const pl_kernels *isa)
{
    static float x[TOKENS * PL_TURBOQUANT_MAX_DIM], y[TOKENS * PL_TURBOQUANT_MAX_DIM];
    static uint8_t page[TOKENS * 1024];
    const pl_turboquant_plain dst = {y, q->dim, false};
    for (size_t i = 0; i < TOKENS * q->dim; i++) x[i] = (float)check_normal(t);
    pl_turboquant_view v = pl_turboquant_key_page(q, page, TOKENS, 0);
    check_bench(t, TOKENS * 1e-6, "M/s keys in")
        pl_turboquant_encode_keys(q, &v, x, q->dim, TOKENS);
    check_bench(t, TOKENS * 1e-6, "M/s keys out") pl_turboquant_decode_keys(q, &v, &dst, TOKENS);
    v = pl_turboquant_value_page(q, page, TOKENS, 0);
    check_bench(t, TOKENS * 1e-6, "M/s values in")
        pl_turboquant_encode_values(q, isa, &v, x, q->dim, TOKENS);
    check_bench(t, TOKENS * 1e-6, "M/s values out")
        pl_turboquant_decode_values(q, isa, &v, &dst, TOKENS, false);
}

void check_turboquant(check *t, const pl_kernels *c, const pl_kernels *isa)
{
    static const pl_turboquant types[] = {{64, 8, 3},  {128, 8, 3}, {80, 8, 4},  {128, 4, 2},
                                          {192, 5, 5}, {112, 2, 3}, {256, 8, 8}, {512, 8, 4}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const pl_turboquant *q = &types[i];
        if (!check_begin(t, isa->rotate != c->rotate, "turboquant_k%uv%u_d%u", q->key_bits,
                         q->value_bits, q->dim))
            continue;
        check_values(t, q, c, isa);
        time_codec(t, q, isa);
        check_end(t);
    }
}
