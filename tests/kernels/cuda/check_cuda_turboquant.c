/* SPDX-License-Identifier: Apache-2.0
 *
 * TurboQuant's code on the device: the bits of the portable codec, of numbers of every size and
 * distance from zero, with zeros of both signs, NaN and infinity among them. */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/half.h"
#include "check_cuda.h"
#include "cuda/turboquant.h"

enum { TOKENS = 96, PAGE = 128, FIRST = 17, MOST_DIM = PL_TURBOQUANT_MAX_DIM };

/* One group in eight of each kind of trouble. */
static void fill(check *t, float *x, size_t n)
{
    for (size_t i = 0; i < n; i += 16) {
        float size = ldexpf(1, (int)check_below(t, 60) - 40);
        float far = check_below(t, 2) ? ldexpf((float)check_normal(t), (int)check_below(t, 50) - 30) : 0;
        uint32_t kind = check_below(t, 8);
        for (size_t j = i; j < PL_MIN(i + 16, n); j++) {
            x[j] = far + size * (float)check_normal(t);
            if (kind == 0) x[j] = check_below(t, 2) ? -0.0f : check_below(t, 2) ? 0.0f : fabsf(x[j]);
            if (kind == 1) x[j] = far;
            if (kind == 2) x[j] = (float)check_normal(t);
            if (kind == 3 && check_below(t, 200) == 0)
                x[j] = check_below(t, 2) ? NAN : check_below(t, 2) ? INFINITY : -INFINITY;
        }
    }
}

static void check_encode(check *t, pl_cuda *d, const pl_turboquant *q, const pl_kernels *c,
                         bool values)
{
    size_t bytes = PAGE * (values ? pl_turboquant_value_bytes(q) : pl_turboquant_key_bytes(q));
    size_t stride = q->dim + check_below(t, 9), numbers = TOKENS * stride;
    float *x = check_buffer(t, 4 * numbers, 4);
    uint8_t *want = check_buffer(t, bytes, 2), *got = check_buffer(t, bytes, 2);
    fill(t, x, numbers);
    uint8_t *page = check_cuda_copy(t, d, want, bytes);
    const float *device_x = check_cuda_copy(t, d, x, 4 * numbers);
    if (values) {
        pl_turboquant_view v = pl_turboquant_value_page(q, want, PAGE, FIRST);
        pl_turboquant_encode_values(q, c, &v, x, stride, TOKENS);
        v = pl_turboquant_value_page(q, page, PAGE, FIRST);
        pl_cuda_turboquant_encode_values(d, q, &v, device_x, stride, TOKENS);
    } else {
        pl_turboquant_view v = pl_turboquant_key_page(q, want, PAGE, FIRST);
        pl_turboquant_encode_keys(q, &v, x, stride, TOKENS);
        v = pl_turboquant_key_page(q, page, PAGE, FIRST);
        pl_cuda_turboquant_encode_keys(d, q, &v, device_x, stride, TOKENS);
    }
    if (check_cuda_fetch(t, d, got, page, bytes)) check_same(t, got, want, bytes);
}

/* Any codes, scales and zeros, in views of any type and strides: x is what holds them. */
typedef struct any_view {
    pl_turboquant_view host, device;
    pl_turboquant_plain want, got;
    size_t out_bytes;
} any_view;

static any_view make_view(check *t, pl_cuda *d, const pl_turboquant *q, bool values)
{
    static const size_t sizes[] = {2, 2, 4};
    any_view a;
    uint32_t bits = values ? q->value_bits : q->key_bits, group = check_below(t, 2) ? 32 : 64;
    size_t G = pl_turboquant_groups(q->dim, group), size, scale_bytes;
    pl_turboquant_view v = {.code_stride = pl_turboquant_code_bytes(q->dim, bits) + check_below(t, 3),
                            .number = (pl_turboquant_number)check_below(t, 3),
                            .group = group};
    v.scale_stride = check_below(t, 2) ? 1 : G + check_below(t, 3);
    v.scale_step = v.scale_stride == 1 ? TOKENS : 1;
    size = sizes[v.number];
    scale_bytes = size * (TOKENS * G + 3 * TOKENS);
    v.codes = check_buffer(t, TOKENS * v.code_stride, 1);
    v.scales = check_buffer(t, scale_bytes, size);
    v.zeros = values ? NULL : check_buffer(t, scale_bytes, size);
    check_fill(t, v.codes, TOKENS * v.code_stride);
    a.host = a.device = v;
    a.device.codes = check_cuda_copy(t, d, v.codes, TOKENS * v.code_stride);
    a.device.scales = check_cuda_copy(t, d, v.scales, scale_bytes);
    if (!values) a.device.zeros = check_cuda_copy(t, d, v.zeros, scale_bytes);
    a.want = (pl_turboquant_plain){.stride = q->dim + check_below(t, 5), .bf16 = check_below(t, 2)};
    a.got = a.want;
    a.out_bytes = TOKENS * a.want.stride * (a.want.bf16 ? 2 : 4);
    a.want.data = check_buffer(t, a.out_bytes, 4);
    a.got.data = check_cuda_copy(t, d, a.want.data, a.out_bytes);
    return a;
}

static float number_of(const pl_turboquant_plain *p, const void *data, size_t i)
{
    return p->bf16 ? pl_bf16_to_f32(((const uint16_t *)data)[i]) : ((const float *)data)[i];
}

static void check_view(check *t, pl_cuda *d, const any_view *a, const pl_turboquant *q,
                       const char *what)
{
    void *got = check_buffer(t, a->out_bytes, 4);
    if (!check_cuda_fetch(t, d, got, a->got.data, a->out_bytes)) return;
    for (size_t i = 0; check_good(t) && i < TOKENS * a->want.stride; i++) {
        float x = number_of(&a->want, got, i), y = number_of(&a->want, a->want.data, i);
        if (pl_f32_bits(x) != pl_f32_bits(y) && !(isnan(x) && isnan(y)))
            check_fail(t, "%s: token %zu number %zu is %.9g, expected %.9g", what,
                       i / a->want.stride, i % a->want.stride, x, y);
    }
    (void)q;
}

static void check_decode(check *t, pl_cuda *d, const pl_turboquant *q, const pl_kernels *c)
{
    any_view k = make_view(t, d, q, false), v = make_view(t, d, q, true);
    bool rotated = check_below(t, 2);
    pl_turboquant_decode(q, c, &k.host, &k.want, &v.host, &v.want, TOKENS, rotated);
    pl_cuda_turboquant_decode(d, q, &k.device, &k.got, &v.device, &v.got, TOKENS, rotated);
    check_view(t, d, &k, q, "keys");
    check_view(t, d, &v, q, rotated ? "rotated values" : "values");
}

typedef struct timed {
    pl_cuda *d;
    pl_turboquant q;
    pl_turboquant_view k, v;
    const float *x;
    size_t n;
} timed;

static void queue_encode(void *user, int i)
{
    const timed *u = user;
    (void)i;
    pl_cuda_turboquant_encode_keys(u->d, &u->q, &u->k, u->x, u->q.dim, u->n);
    pl_cuda_turboquant_encode_values(u->d, &u->q, &u->v, u->x, u->q.dim, u->n);
}

static void time_encode(check *t, pl_cuda *d, const pl_turboquant *q)
{
    enum { N = 65536 };
    timed u = {.d = d, .q = *q, .n = N};
    if (!check_benching(t)) return;
    check_cuda_release(t, d);
    float *x = check_buffer(t, (size_t)N * q->dim * 4, 4);
    for (size_t i = 0; i < (size_t)N * q->dim; i++) x[i] = (float)(check_below(t, 2001) * 1e-3 - 1);
    u.x = check_cuda_copy(t, d, x, (size_t)N * q->dim * 4);
    u.k = pl_turboquant_key_page(q, check_cuda_buffer(t, d, N * pl_turboquant_key_bytes(q)), N, 0);
    u.v = pl_turboquant_value_page(q, check_cuda_buffer(t, d, N * pl_turboquant_value_bytes(q)), N, 0);
    check_cuda_bench(t, d, queue_encode, &u, 8, N * 1e-6, "M tokens/s in");
}

void check_cuda_turboquant(check *t, const pl_kernels *c, pl_cuda *d)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
    static const uint8_t types[][2] = {{8, 3}, {5, 5}, {4, 2}, {2, 8}, {8, 4}};
    for (size_t i = 0; i < PL_COUNT(dims) * PL_COUNT(types); i++) {
        const uint8_t *type = types[i % PL_COUNT(types)];
        const pl_turboquant q = {dims[i / PL_COUNT(types)], type[0], type[1]};
        if (!check_begin(t, true, "turboquant_k%uv%u_d%u", q.key_bits, q.value_bits, q.dim)) continue;
        for (int round = 0; check_round(t, round, 8); round++) {
            check_release(t);
            check_cuda_release(t, d);
            check_encode(t, d, &q, c, false);
            check_encode(t, d, &q, c, true);
            check_decode(t, d, &q, c);
        }
        if (q.dim == 128) time_encode(t, d, &q);
        check_cuda_release(t, d);
        check_end(t);
    }
}
