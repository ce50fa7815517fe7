/* SPDX-License-Identifier: Apache-2.0
 *
 * Any numbers as keys and values of the packed cache: blocks of exactly the promised sizes, the
 * same codes alone and in a page, a group of finite keys decodes to finite numbers within its
 * reach, any other to NaN. Then the same bytes as packed tokens of any layout, which decode to
 * something. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/memory.h"
#include "codec/turboquant.h"

enum { PAGE = 3, HEADER = 4 };

static void *exact(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) abort();
    memset(p, 0xa5, bytes);
    return p;
}

static const pl_kernels *kernels(void)
{
    static pl_kernels k;
    unsigned cpu;
    if (!k.rotate) {
        if (pl_cpu_level(NULL, &cpu)) abort();
        pl_kernels_init(&k, cpu);
    }
    return &k;
}

/* Decoded keys are what their group allows: near enough for the coarsest code, or NaN. */
static void check_keys(const pl_turboquant *t, const float *x, const float *y)
{
    for (size_t g = 0; g < t->dim; g += 32) {
        size_t end = PL_MIN(g + 32, t->dim);
        double low = x[g], high = x[g];
        bool finite = true;
        for (size_t i = g; i < end; i++) {
            finite &= isfinite(x[i]);
            low = fmin(low, x[i]);
            high = fmax(high, x[i]);
        }
        double size = fmax(-low, high), levels = t->key_bits == 8 ? 254 : (1u << t->key_bits) - 1;
        double step = (high - low) / levels, bound = 0.51 * step + 0x1p-10 * size + 0x1p-24;
        for (size_t i = g; i < end; i++) {
            if (!finite && !isnan(y[i])) abort();
            if (finite && !isfinite(y[i])) abort();
            if (finite && step <= 65504 && size <= 2e9 && !(fabs((double)y[i] - x[i]) <= bound))
                abort();
        }
    }
}

static void round_trip(const pl_turboquant *t, const float *x)
{
    const pl_kernels *k = kernels();
    size_t kb = pl_turboquant_key_bytes(t), vb = pl_turboquant_value_bytes(t);
    uint8_t *keys = exact(PAGE * kb), *values = exact(PAGE * vb);
    uint8_t *key = exact(kb), *value = exact(vb);
    float *y = exact(4 * t->dim), *again = exact(4 * t->dim);
    pl_turboquant_view many[2] = {pl_turboquant_key_page(t, keys, PAGE, 1),
                                  pl_turboquant_value_page(t, values, PAGE, 1)};
    pl_turboquant_view one[2] = {pl_turboquant_key_page(t, key, 1, 0),
                                 pl_turboquant_value_page(t, value, 1, 0)};
    for (int i = 0; i < 2; i++) {
        const pl_turboquant_view *v = i ? one : many;
        const pl_turboquant_plain dst = {i ? again : y, t->dim, false};
        pl_turboquant_encode_keys(t, &v[0], x, t->dim, 1);
        pl_turboquant_encode_values(t, k, &v[1], x, t->dim, 1);
        pl_turboquant_decode_keys(t, &v[0], &dst, 1);
    }
    if (memcmp(y, again, 4 * t->dim)) abort();
    check_keys(t, x, y);
    pl_turboquant_decode_values(t, k, &many[1], &(pl_turboquant_plain){y, t->dim, false}, 1, false);
    pl_turboquant_decode_values(t, k, &one[1], &(pl_turboquant_plain){again, t->dim, false}, 1,
                                false);
    if (memcmp(y, again, 4 * t->dim)) abort();
    free(keys);
    free(values);
    free(key);
    free(value);
    free(y);
    free(again);
}

/* The bytes of `data` over and over as codes, scales and zeros. */
static void decode_any(const pl_turboquant *t, const uint8_t *data, size_t size, uint8_t how)
{
    pl_turboquant_view v = {.number = how % 3, .group = how & 4 ? 32 : 64, .scale_step = 1};
    size_t groups = pl_turboquant_groups(t->dim, v.group);
    size_t scale_bytes = groups * (v.number == PL_TURBOQUANT_F32 ? 4 : 2);
    size_t code_bytes = pl_turboquant_code_bytes(t->dim, PL_MAX(t->key_bits, t->value_bits));
    uint8_t *parts[3] = {exact(code_bytes), exact(scale_bytes), exact(scale_bytes)};
    for (size_t part = 0, at = 0; part < 3; part++)
        for (size_t i = 0; i < (part ? scale_bytes : code_bytes); i++)
            parts[part][i] = size ? data[at++ % size] : 0;
    v.codes = parts[0];
    v.scales = parts[1];
    v.zeros = parts[2];
    bool bf16 = how & 8;
    pl_turboquant_plain keys = {exact(t->dim * (bf16 ? 2 : 4)), t->dim, bf16};
    pl_turboquant_plain values = {exact(t->dim * (bf16 ? 2 : 4)), t->dim, bf16};
    pl_turboquant_decode(t, kernels(), &v, &keys, &v, &values, 1, how & 16);
    free(keys.data);
    free(values.data);
    for (int i = 0; i < 3; i++) free(parts[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
    static const uint32_t keys[] = {2, 4, 5, 8}, values[] = {2, 3, 4, 5, 8};
    if (size < HEADER) return 0;
    pl_turboquant t = {dims[data[0] % 8], keys[data[1] % 4], values[data[2] % 5]};
    uint8_t how = data[3];
    if (pl_turboquant_check(&t, NULL)) abort();
    data += HEADER;
    size -= HEADER;
    float x[PL_TURBOQUANT_MAX_DIM] = {0};
    for (size_t i = 0; i < t.dim && size; i++)
        for (size_t j = 0; j < sizeof x[i]; j++)
            ((uint8_t *)&x[i])[j] = data[(sizeof x[i] * i + j) % size];
    round_trip(&t, x);
    decode_any(&t, data, size, how);
    return 0;
}
