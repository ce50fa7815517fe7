/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed attention cache's code: golden files to the bit at every CPU level, layouts, groups
 * and types, keys that fp16 scales do not suit, NaN and infinity, and any bytes decoded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/random.h"
#include "codec/turboquant.h"
#include "format/safetensors.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const uint32_t dims[] = {64, 80, 96, 112, 128, 192, 256, 512};
static const uint32_t key_bits[] = {2, 4, 5, 8}, value_bits[] = {2, 3, 4, 5, 8};
static const char *const levels[] = {"c", "avx2", "avx512", "neon"};

static pl_kernels best_kernels(void)
{
    pl_kernels k;
    unsigned cpu;
    assert_int_equal(pl_cpu_level(NULL, &cpu), 0);
    pl_kernels_init(&k, cpu);
    return k;
}

static void *allocate(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return p;
}

/* ---- golden files --------------------------------------------------------------------------- */

typedef struct golden {
    pl_safetensors *file;
    pl_turboquant t;
    size_t n;
} golden;

static uint32_t number(const golden *g, const char *key, uint32_t otherwise)
{
    const char *text = pl_safetensors_metadata(g->file, key);
    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static const void *data(const golden *g, const char *name)
{
    const pl_tensor *tensor = pl_safetensors_find(g->file, name);
    if (!tensor) fail_msg("no tensor %s", name);
    return tensor->data;
}

static golden golden_open(const char *name)
{
    char path[512];
    golden g;
    pleach_error err;
    snprintf(path, sizeof path, "%s/golden/turboquant/%s.safetensors", PLEACH_TEST_DATA, name);
    if (pl_safetensors_open(path, &g.file, &err)) fail_msg("%s", err.message);
    g.t = (pl_turboquant){number(&g, "head_dim", 0), number(&g, "k_bits", 8),
                          number(&g, "v_bits", 8)};
    assert_int_equal(pl_turboquant_check(&g.t, &err), PLEACH_OK);
    const pl_tensor *x = pl_safetensors_find(g.file, pl_safetensors_find(g.file, "k") ? "k" : "x");
    assert_non_null(x);
    g.n = (size_t)x->shape[0];
    return g;
}

static float *floats_of(const golden *g, const char *name)
{
    const uint8_t *bits = data(g, name);
    float *x = allocate(4 * g->n * g->t.dim);
    for (size_t i = 0; i < g->n * g->t.dim; i++) {
        uint16_t h;
        memcpy(&h, bits + 2 * i, sizeof h);
        x[i] = pl_bf16_to_f32(h);
    }
    return x;
}

/* The arrays of the files are token by token: codes [n][D*b/8], scales [n][G]. */
static pl_turboquant_view arrays(const pl_turboquant *t, size_t n, uint32_t bits)
{
    size_t groups = pl_turboquant_groups(t->dim, 32);
    size_t code_bytes = pl_turboquant_code_bytes(t->dim, bits);
    return (pl_turboquant_view){.codes = allocate(n * code_bytes),
                                .code_stride = code_bytes,
                                .scales = allocate(2 * n * groups),
                                .zeros = allocate(2 * n * groups),
                                .scale_stride = groups,
                                .scale_step = 1,
                                .number = PL_TURBOQUANT_FP16,
                                .group = 32};
}

static void arrays_free(pl_turboquant_view *v)
{
    free(v->codes);
    free(v->scales);
    free(v->zeros);
}

static void check_golden(const char *name, const pl_kernels *k)
{
    golden g = golden_open(name);
    const pl_turboquant *t = &g.t;
    size_t scales = 2 * g.n * pl_turboquant_groups(t->dim, 32), numbers = g.n * t->dim;
    float *keys = floats_of(&g, "k"), *values = floats_of(&g, "v");
    pl_turboquant_view kv = arrays(t, g.n, t->key_bits), vv = arrays(t, g.n, t->value_bits);

    pl_turboquant_encode_keys(t, &kv, keys, t->dim, g.n);
    pl_turboquant_encode_values(t, k, &vv, values, t->dim, g.n);
    assert_memory_equal(kv.codes, data(&g, "key_codes"), numbers * t->key_bits / 8);
    assert_memory_equal(kv.scales, data(&g, "key_scales"), scales);
    assert_memory_equal(kv.zeros, data(&g, "key_zeros"), scales);
    assert_memory_equal(vv.codes, data(&g, "value_codes"), numbers * t->value_bits / 8);
    assert_memory_equal(vv.scales, data(&g, "value_scales"), scales);

    uint16_t *key = allocate(2 * numbers), *value = allocate(2 * numbers);
    pl_turboquant_plain to_key = {key, t->dim, true}, to_value = {value, t->dim, true};
    kv.group = vv.group = number(&g, "decoded_group", 32);
    pl_turboquant_decode(t, k, &kv, &to_key, &vv, &to_value, g.n, false);
    assert_memory_equal(key, data(&g, "key_decoded"), 2 * numbers);
    assert_memory_equal(value, data(&g, "value_decoded"), 2 * numbers);
    pl_turboquant_decode(t, k, &kv, &to_key, &vv, &to_value, g.n, true);
    assert_memory_equal(key, data(&g, "key_decoded"), 2 * numbers);
    assert_memory_equal(value, data(&g, "value_rotated"), 2 * numbers);

    free(key);
    free(value);
    arrays_free(&kv);
    arrays_free(&vv);
    free(keys);
    free(values);
    pl_safetensors_close(g.file);
}

static void test_goldens(void **state)
{
    (void)state;
    static const char *const names[] = {
        "turboquant_d64_k8v3",  "turboquant_d64_k5v5",  "turboquant_d80_k8v3",
        "turboquant_d96_k8v3",  "turboquant_d112_k8v4", "turboquant_d128_k8v3",
        "turboquant_d128_k4v4", "turboquant_d128_k4v2", "turboquant_d192_k8v3",
        "turboquant_d256_k8v3", "turboquant_d256_k2v8", "turboquant_d512_k8v4",
    };
    for (size_t l = 0; l < COUNT(levels); l++) {
        pl_kernels k;
        unsigned cpu;
        if (pl_cpu_level(levels[l], &cpu)) continue;
        pl_kernels_init(&k, cpu);
        for (size_t i = 0; i < COUNT(names); i++) check_golden(names[i], &k);
    }
}

/* ---- keys ----------------------------------------------------------------------------------- */

static double levels_of(uint32_t bits)
{
    return bits == 8 ? 254 : (1u << bits) - 1;
}

static float key_code(const uint8_t *codes, uint32_t bits, size_t i)
{
    uint32_t c = pl_turboquant_code(codes, bits, i);
    return bits == 8 ? (float)(int8_t)c : (float)c;
}

/* The original's decoder, from one token's arrays of fp16 scales and zeros. */
static float original_key(const uint8_t *codes, const uint16_t *scales, const uint16_t *zeros,
                          uint32_t bits, size_t i)
{
    return (key_code(codes, bits, i) + pl_fp16_to_f32(zeros[i / 32])) *
           pl_fp16_to_f32(scales[i / 32]);
}

/* The original's scale and zero serve a group: a normal scale, a zero that fp16 holds. */
static bool is_plain(uint16_t scale, float zero)
{
    uint32_t exponent = scale >> 10 & 31;
    return exponent && exponent < 31 && isfinite(zero) &&
           pl_fp16_to_f32(pl_f32_to_fp16(zero)) == zero;
}

/* The original's zero of a group, whose scale is *scale. */
static float original_zero(float low, float high, uint32_t bits, float *scale)
{
    *scale = (high - low) / (float)levels_of(bits);
    float step = *scale + 1e-8f;
    return rintf(bits == 8 ? (high + low) / (2 * step) : low / step);
}

/* Group g of a token decodes to within its bound, by the original's decoder; its zero is a finite
 * integer. Where the original serves, the rounding of its scale adds to half a step. */
static void check_bound(const pl_turboquant *t, const pl_turboquant_view *v, size_t token,
                        const float *x, size_t g)
{
    const uint8_t *codes = v->codes + token * v->code_stride;
    const uint16_t *scales = (const uint16_t *)v->scales + token * v->scale_stride;
    const uint16_t *zeros = (const uint16_t *)v->zeros + token * v->scale_stride;
    size_t end = 32 * g + 32 < t->dim ? 32 * g + 32 : t->dim;
    float low = x[32 * g], high = low, zero = pl_fp16_to_f32(zeros[g]), scale;
    for (size_t i = 32 * g; i < end; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
    }
    double step = ((double)high - low) / levels_of(t->key_bits), size = fmax(-low, high);
    double bound = fmax(0x1p-11 * size, step / 2) + 0x1p-25;
    float original = original_zero(low, high, t->key_bits, &scale);
    if (is_plain(pl_f32_to_fp16(scale), original))
        bound = 0x1p-11 * size + step / 2 + 1e-8 * (size / step + 1);
    if (step > 65504 || size > 2e9) bound = INFINITY; /* saturates */
    assert_true(isfinite(zero) && zero == rintf(zero));
    for (size_t i = 32 * g; i < end; i++) {
        double error = fabs((double)original_key(codes, scales, zeros, t->key_bits, i) - x[i]);
        if (!(error <= bound) || isinf(error))
            fail_msg("k%u: %.9g is off by %g, more than %g (range %g to %g, scale %g, zero %g)",
                     t->key_bits, x[i], error, bound, low, high, pl_fp16_to_f32(scales[g]), zero);
    }
}

/* The codes of one group, in arrays. */
static void compare_group(const pl_turboquant *t, const uint8_t *got, const uint8_t *want,
                          uint32_t bits, size_t token, size_t group)
{
    size_t at = token * pl_turboquant_code_bytes(t->dim, bits) + 4 * bits * group;
    size_t size = (group + 1) * 32 <= t->dim ? 4 * bits : 2 * bits;
    assert_memory_equal(got + at, want + at, size);
}

static void compare_keys(const golden *g, uint32_t bits, const float *x, size_t *plain)
{
    char name[16];
    pl_turboquant t = {g->t.dim, bits, 8};
    size_t groups = pl_turboquant_groups(t.dim, 32);
    pl_turboquant_view v = arrays(&t, g->n, bits);
    pl_turboquant_encode_keys(&t, &v, x, t.dim, g->n);
    snprintf(name, sizeof name, "k%u_codes", bits);
    const uint8_t *codes = data(g, name);
    snprintf(name, sizeof name, "k%u_scales", bits);
    const uint8_t *scales = data(g, name);
    snprintf(name, sizeof name, "k%u_zeros", bits);
    const uint8_t *zeros = data(g, name);
    for (size_t i = 0; i < g->n * groups; i++) {
        size_t token = i / groups, group = i % groups;
        uint16_t scale, got_zero = ((uint16_t *)v.zeros)[i];
        float zero;
        memcpy(&scale, scales + 2 * i, sizeof scale);
        memcpy(&zero, zeros + 4 * i, sizeof zero);
        if (!is_plain(scale, zero)) {
            check_bound(&t, &v, token, x + token * t.dim, group);
            continue;
        }
        compare_group(&t, v.codes, codes, bits, token, group);
        assert_int_equal(((uint16_t *)v.scales)[i], scale);
        assert_int_equal(got_zero, pl_f32_to_fp16(zero));
        ++*plain;
    }
    arrays_free(&v);
}

static void compare_values(const golden *g, uint32_t bits, const pl_kernels *k, const float *x)
{
    char name[16];
    pl_turboquant t = {g->t.dim, 8, bits};
    size_t groups = pl_turboquant_groups(t.dim, 32);
    pl_turboquant_view v = arrays(&t, g->n, bits);
    pl_turboquant_encode_values(&t, k, &v, x, t.dim, g->n);
    snprintf(name, sizeof name, "v%u_codes", bits);
    const uint8_t *codes = data(g, name);
    snprintf(name, sizeof name, "v%u_scales", bits);
    const uint8_t *scales = data(g, name);
    for (size_t i = 0; i < g->n * groups; i++) {
        uint16_t scale, got = ((uint16_t *)v.scales)[i];
        memcpy(&scale, scales + 2 * i, sizeof scale);
        if (scale == 0x7c00) { /* beyond fp16: ours stops at its greatest */
            assert_int_equal(got, 0x7bff);
            continue;
        }
        assert_int_equal(got, scale);
        compare_group(&t, v.codes, codes, bits, i / groups, i % groups);
    }
    arrays_free(&v);
}

/* Groups of every size and distance from zero: codes of the plain formulas where these serve, the
 * bound elsewhere. */
static void test_random_goldens(void **state)
{
    (void)state;
    static const char *const names[] = {"random_d80", "random_d128"};
    pl_kernels k = best_kernels();
    for (size_t i = 0; i < COUNT(names); i++) {
        golden g = golden_open(names[i]);
        float *x = allocate(4 * g.n * g.t.dim);
        memcpy(x, data(&g, "x"), 4 * g.n * g.t.dim);
        size_t plain = 0, all = COUNT(key_bits) * g.n * pl_turboquant_groups(g.t.dim, 32);
        for (size_t b = 0; b < COUNT(key_bits); b++) compare_keys(&g, key_bits[b], x, &plain);
        assert_in_range(plain, all / 4, all * 9 / 10); /* both kinds are met */
        for (size_t b = 0; b < COUNT(value_bits); b++) compare_values(&g, value_bits[b], &k, x);
        free(x);
        pl_safetensors_close(g.file);
    }
}

static float noise(uint64_t *seed)
{
    return (float)(2 * pl_random_unit(seed) - 1);
}

/* Numbers of one group: the faults of the original, and what is near them. */
static float hostile(size_t kind, size_t i, uint64_t *seed)
{
    static const float constants[] = {0.0f,  -0.0f,   100.0f,  -7.0f,  1e-8f,    5e-8f,
                                      6e-5f, 6.1e-5f, 1.0f,    -1e-3f, 65504.0f, -7e4f,
                                      1e9f,  -1.9e9f, FLT_MIN, 1e-45f, -1e-40f};
    static const float offsets[] = {100, -1e3f, 2049, -5e4f, 7e5f, -1e8f};
    static const float spreads[] = {1e-7f, 1e-5f, 1.5e-2f, 0.1f, 1, 30};
    if (kind < COUNT(constants)) return constants[kind];
    kind -= COUNT(constants);
    if (kind < COUNT(offsets) * COUNT(spreads))
        return offsets[kind % COUNT(offsets)] + spreads[kind / COUNT(offsets)] * noise(seed);
    kind -= COUNT(offsets) * COUNT(spreads);
    switch (kind) {
    case 0:
        return i == 5 ? 6e4f : noise(seed); /* an outlier */
    case 1:
        return i == 31 ? 6e4f : 0;
    case 2:
        return i % 2 ? 1e-8f : -1e-8f;
    case 3:
        return 1e-6f * noise(seed);
    case 4:
        return 7e-3f * noise(seed); /* an 8-bit scale among the subnormal ones */
    case 5:
        return 9e4f * noise(seed); /* a 2-bit scale near fp16's greatest */
    case 6:
        return 1e-42f * noise(seed);
    case 7:
        return i == 15 ? -2e9f : -1.99e9f;
    case 8:
        return i % 3 ? 1.0f : 1.0f + FLT_EPSILON;
    default:
        return 0x1p-24f * (float)(i % 11);
    }
}

enum { HOSTILE = 17 + 36 + 10 };

/* Each kind in each group of a token: that group within its bound and finite, the others as if
 * alone. */
static void test_hostile_keys(void **state)
{
    (void)state;
    uint64_t seed = 6;
    for (size_t d = 0; d < COUNT(dims); d++)
        for (size_t b = 0; b < COUNT(key_bits); b++) {
            pl_turboquant t = {dims[d], key_bits[b], 3};
            size_t groups = pl_turboquant_groups(t.dim, 32);
            pl_turboquant_view v = arrays(&t, 2, t.key_bits);
            for (size_t kind = 0; kind < HOSTILE; kind++) {
                float x[2][PL_TURBOQUANT_MAX_DIM];
                size_t g = kind % groups, end = 32 * g + 32 < t.dim ? 32 * g + 32 : t.dim;
                for (size_t i = 0; i < t.dim; i++) x[0][i] = x[1][i] = noise(&seed);
                for (size_t i = 32 * g; i < end; i++) x[1][i] = hostile(kind, i % 32, &seed);
                pl_turboquant_encode_keys(&t, &v, x[0], PL_TURBOQUANT_MAX_DIM, 2);
                check_bound(&t, &v, 1, x[1], g);
                const uint8_t *clean = v.codes, *other = v.codes + v.code_stride;
                size_t at = 4 * t.key_bits * g, after = end * t.key_bits / 8;
                assert_memory_equal(clean, other, at);
                assert_memory_equal(clean + after, other + after, v.code_stride - after);
            }
            arrays_free(&v);
        }
}

/* Beyond what fp16 scales reach, numbers saturate: finite, of the right sign, the greatest at the
 * top. */
static void test_saturation(void **state)
{
    (void)state;
    pl_kernels k = best_kernels();
    for (size_t b = 0; b < COUNT(key_bits); b++) {
        pl_turboquant t = {64, key_bits[b], 3};
        pl_turboquant_view v = arrays(&t, 1, t.key_bits);
        float x[64], y[64];
        for (size_t i = 0; i < 64; i++) x[i] = i < 32 ? (i % 2 ? FLT_MAX : -FLT_MAX) : 3e38f;
        pl_turboquant_encode_keys(&t, &v, x, 64, 1);
        pl_turboquant_decode_keys(&t, &v, &(pl_turboquant_plain){y, 64, false}, 1);
        for (size_t i = 0; i < 64; i++) assert_true(isfinite(y[i]) && y[i] * x[i] > 0);
        assert_true(y[32] > 2e9f);
        arrays_free(&v);
    }
    for (size_t b = 0; b < COUNT(value_bits); b++) {
        pl_turboquant t = {64, 8, value_bits[b]};
        pl_turboquant_view v = arrays(&t, 1, t.value_bits);
        float x[64], y[64];
        for (size_t i = 0; i < 64; i++) x[i] = i % 2 ? 1e30f : -1e25f;
        pl_turboquant_encode_values(&t, &k, &v, x, 64, 1);
        pl_turboquant_decode_values(&t, &k, &v, &(pl_turboquant_plain){y, 64, false}, 1, false);
        for (size_t i = 0; i < 64; i++) assert_true(isfinite(y[i]));
        assert_int_equal(*(uint16_t *)v.scales, 0x7bff);
        arrays_free(&v);
    }
}

/* A value's numbers that are all equal, zero or tiny decode to finite numbers. */
static void test_tiny_values(void **state)
{
    (void)state;
    static const float numbers[] = {0.0f, -0.0f, 1e-45f, 1e-12f, 1e-8f, -7.0f, 100.0f, 6e4f};
    pl_kernels k = best_kernels();
    for (size_t b = 0; b < COUNT(value_bits); b++)
        for (size_t d = 0; d < COUNT(dims); d++)
            for (size_t c = 0; c < COUNT(numbers); c++) {
                pl_turboquant t = {dims[d], 8, value_bits[b]};
                pl_turboquant_view v = arrays(&t, 1, t.value_bits);
                float x[PL_TURBOQUANT_MAX_DIM], y[PL_TURBOQUANT_MAX_DIM];
                for (size_t i = 0; i < t.dim; i++) x[i] = numbers[c];
                pl_turboquant_encode_values(&t, &k, &v, x, t.dim, 1);
                pl_turboquant_decode_values(&t, &k, &v, &(pl_turboquant_plain){y, t.dim, false}, 1,
                                            false);
                for (size_t i = 0; i < t.dim; i++) {
                    assert_true(isfinite(y[i]));
                    if (fabsf(x[i]) < 1e-9f) assert_true(y[i] == 0);
                }
                arrays_free(&v);
            }
}

/* NaN or infinity makes its own group, or rotation block, NaN and nothing else. */
static void test_not_finite(void **state)
{
    (void)state;
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    pl_kernels k = best_kernels();
    uint64_t seed = 7;
    for (size_t d = 0; d < COUNT(dims); d++)
        for (size_t round = 0; round < 60; round++) {
            pl_turboquant t = {dims[d], key_bits[round % 4], value_bits[round % 5]};
            pl_turboquant_view kv = arrays(&t, 2, t.key_bits), vv = arrays(&t, 2, t.value_bits);
            float x[2][PL_TURBOQUANT_MAX_DIM], y[2][PL_TURBOQUANT_MAX_DIM];
            pl_turboquant_plain out = {y, PL_TURBOQUANT_MAX_DIM, false};
            for (size_t i = 0; i < t.dim; i++) x[0][i] = x[1][i] = noise(&seed);
            size_t at = pl_random_next(&seed) % t.dim;
            x[1][at] = bad[round % 4];

            pl_turboquant_encode_keys(&t, &kv, x[0], PL_TURBOQUANT_MAX_DIM, 2);
            pl_turboquant_decode_keys(&t, &kv, &out, 2);
            for (size_t i = 0; i < t.dim; i++)
                if (i / 32 == at / 32)
                    assert_true(isnan(y[1][i]));
                else
                    assert_memory_equal(&y[1][i], &y[0][i], 4);

            pl_turboquant_encode_values(&t, &k, &vv, x[0], PL_TURBOQUANT_MAX_DIM, 2);
            pl_turboquant_decode_values(&t, &k, &vv, &out, 2, false);
            size_t begin = 0, block = t.dim;
            for (;; begin += block) { /* the power of two that `at` lies in */
                for (block = 512; block > t.dim - begin;) block /= 2;
                if (at < begin + block) break;
            }
            for (size_t i = 0; i < t.dim; i++)
                if (i >= begin && i < begin + block)
                    assert_true(isnan(y[1][i]));
                else
                    assert_memory_equal(&y[1][i], &y[0][i], 4);
            arrays_free(&kv);
            arrays_free(&vv);
        }
}

/* ---- layouts -------------------------------------------------------------------------------- */

static void test_shapes(void **state)
{
    (void)state;
    pleach_error err;
    for (uint32_t dim = 0; dim < 600; dim++)
        for (uint32_t kb = 0; kb < 10; kb++)
            for (uint32_t vb = 0; vb < 10; vb++) {
                bool legal = kb < 9 && vb < 9 && ((1u << kb) & 0x134) && ((1u << vb) & 0x13c);
                bool known = false;
                for (size_t i = 0; i < COUNT(dims); i++) known |= dims[i] == dim;
                pl_turboquant t = {dim, kb, vb};
                assert_int_equal(pl_turboquant_check(&t, &err),
                                 legal && known ? PLEACH_OK : PLEACH_ERR_SHAPE);
            }
    pl_turboquant t = {72, 8, 3};
    assert_int_equal(pl_turboquant_check(&t, &err), PLEACH_ERR_SHAPE);
    assert_non_null(strstr(err.message, "72"));
    for (size_t i = 0; i < COUNT(dims); i++) {
        t.dim = dims[i];
        if (t.dim % 32 == 0) {
            assert_true(pl_turboquant_bits(&t) == 6.25);
            assert_int_equal(8 * pl_turboquant_key_bytes(&t), 9 * t.dim);
            assert_int_equal(16 * pl_turboquant_value_bytes(&t), 7 * t.dim);
        }
    }
    t.dim = 80;
    assert_int_equal(pl_turboquant_key_bytes(&t), 80 + 3 * 4);
    assert_int_equal(pl_turboquant_value_bytes(&t), 30 + 3 * 2);
}

/* The decoders' formulas, number by number, scales already f32: [group]. */
static void decode_plainly(const pl_turboquant *t, const uint8_t *codes, const float *scales,
                           const float *zeros, size_t group, float *x)
{
    for (size_t i = 0; i < t->dim; i++)
        if (zeros)
            x[i] = (key_code(codes, t->key_bits, i) + zeros[i / group]) * scales[i / group];
        else
            x[i] = pl_turboquant_centroids(
                       t->value_bits)[pl_turboquant_code(codes, t->value_bits, i)] *
                   scales[i / group];
}

static void store_number(void *numbers, pl_turboquant_number type, size_t i, float *x)
{
    if (type == PL_TURBOQUANT_F32)
        ((float *)numbers)[i] = *x;
    else if (type == PL_TURBOQUANT_FP16) {
        uint16_t h = pl_f32_to_fp16(*x);
        ((uint16_t *)numbers)[i] = h;
        *x = pl_fp16_to_f32(h);
    } else {
        uint16_t h = pl_f32_to_bf16(*x);
        ((uint16_t *)numbers)[i] = h;
        *x = pl_bf16_to_f32(h);
    }
}

/* Random packed tokens in memory of random strides, each number type and group: `plain` gets what
 * they decode to by formula. */
static pl_turboquant_view random_view(const pl_turboquant *t, bool keys, size_t n, float *plain,
                                      uint64_t *seed)
{
    size_t bytes = pl_turboquant_code_bytes(t->dim, keys ? t->key_bits : t->value_bits);
    pl_turboquant_view v = {.group = pl_random_next(seed) % 2 ? 32 : 64,
                            .number = pl_random_next(seed) % 3,
                            .code_stride = bytes + pl_random_next(seed) % 9};
    size_t groups = pl_turboquant_groups(t->dim, v.group);
    if (pl_random_next(seed) % 2) { /* groups inner or tokens inner, with gaps */
        v.scale_step = 1 + pl_random_next(seed) % 3;
        v.scale_stride = groups * v.scale_step + pl_random_next(seed) % 3;
    } else {
        v.scale_stride = 1 + pl_random_next(seed) % 3;
        v.scale_step = n * v.scale_stride + pl_random_next(seed) % 3;
    }
    size_t count = (n - 1) * v.scale_stride + (groups - 1) * v.scale_step + 1;
    size_t size = v.number == PL_TURBOQUANT_F32 ? 4 : 2;
    v.codes = allocate((n - 1) * v.code_stride + bytes);
    v.scales = allocate(count * size);
    v.zeros = keys ? allocate(count * size) : NULL;
    for (size_t token = 0; token < n; token++) {
        float scales[16], zeros[16];
        uint8_t *codes = v.codes + token * v.code_stride;
        for (size_t i = 0; i < bytes; i++) codes[i] = (uint8_t)pl_random_next(seed);
        for (size_t g = 0; g < groups; g++) {
            size_t at = token * v.scale_stride + g * v.scale_step;
            scales[g] = noise(seed);
            zeros[g] = 300 * noise(seed);
            store_number(v.scales, v.number, at, &scales[g]);
            if (keys) store_number(v.zeros, v.number, at, &zeros[g]);
        }
        decode_plainly(t, codes, scales, keys ? zeros : NULL, v.group, plain + token * t->dim);
    }
    return v;
}

/* n rows of dim numbers with a stride, in f32 or bf16, against `plain`; what lies between the rows
 * must still be 0xa5. */
static void check_rows(const uint8_t *rows, bool bf16, size_t stride, const float *plain,
                       uint32_t dim, size_t n)
{
    size_t size = bf16 ? 2 : 4;
    for (size_t i = 0; i < n * stride; i++) {
        const uint8_t *p = rows + i * size;
        uint32_t got = 0, want = 0xa5a5a5a5;
        memcpy(&got, p, size);
        if (i % stride < dim) {
            float x = plain[i / stride * dim + i % stride];
            want = bf16 ? pl_f32_to_bf16(x) : pl_f32_bits(x);
        }
        assert_int_equal(got, bf16 ? want & 0xffff : want);
    }
}

static void test_strides_and_types(void **state)
{
    (void)state;
    uint64_t seed = 8;
    pl_kernels k = best_kernels();
    for (int round = 0; round < 400; round++) {
        pl_turboquant t = {dims[pl_random_next(&seed) % 8], key_bits[pl_random_next(&seed) % 4],
                           value_bits[pl_random_next(&seed) % 5]};
        size_t n = 1 + pl_random_next(&seed) % 6;
        bool rotated = pl_random_next(&seed) % 2;
        float *key = allocate(4 * n * t.dim), *value = allocate(4 * n * t.dim);
        pl_turboquant_view kv = random_view(&t, true, n, key, &seed);
        pl_turboquant_view vv = random_view(&t, false, n, value, &seed);
        for (size_t i = 0; !rotated && i < n; i++)
            pl_turboquant_unrotate(&k, value + i * t.dim, t.dim);
        pl_turboquant_plain kd = {.stride = t.dim + pl_random_next(&seed) % 5,
                                  .bf16 = pl_random_next(&seed) % 2},
                            vd = {.stride = t.dim + pl_random_next(&seed) % 5,
                                  .bf16 = pl_random_next(&seed) % 2};
        kd.data = allocate(4 * n * kd.stride);
        vd.data = allocate(4 * n * vd.stride);
        memset(kd.data, 0xa5, 4 * n * kd.stride);
        memset(vd.data, 0xa5, 4 * n * vd.stride);
        pl_turboquant_decode(&t, &k, &kv, &kd, &vv, &vd, n, rotated);
        check_rows(kd.data, kd.bf16, kd.stride, key, t.dim, n);
        check_rows(vd.data, vd.bf16, vd.stride, value, t.dim, n);
        arrays_free(&kv);
        arrays_free(&vv);
        free(kd.data);
        free(vd.data);
        free(key);
        free(value);
    }
}

/* Pages, records and arrays hold the same bits; tokens appended one by one fill a page exactly and
 * touch nothing else. */
static void test_pages(void **state)
{
    (void)state;
    enum { P = 7 };
    uint64_t seed = 9;
    pl_kernels k = best_kernels();
    for (size_t d = 0; d < COUNT(dims); d++)
        for (size_t b = 0; b < 20; b++) {
            pl_turboquant t = {dims[d], key_bits[b % 4], value_bits[b % 5]};
            size_t groups = pl_turboquant_groups(t.dim, 32);
            size_t kb = pl_turboquant_key_bytes(&t), vb = pl_turboquant_value_bytes(&t);
            float *x = allocate(4 * P * t.dim);
            for (size_t i = 0; i < P * t.dim; i++) x[i] = 5 * noise(&seed);
            uint8_t *key = allocate(P * kb), *value = allocate(P * vb), record[4096];
            memset(key, 0xff, P * kb);
            memset(value, 0xff, P * vb);
            for (size_t token = P; token-- > 0;) {
                pl_turboquant_view kv = pl_turboquant_key_page(&t, key, P, token);
                pl_turboquant_view vv = pl_turboquant_value_page(&t, value, P, token);
                pl_turboquant_encode_keys(&t, &kv, x + token * t.dim, t.dim, 1);
                pl_turboquant_encode_values(&t, &k, &vv, x + token * t.dim, t.dim, 1);
            }
            pl_turboquant_view kv = arrays(&t, P, t.key_bits), vv = arrays(&t, P, t.value_bits);
            pl_turboquant_encode_keys(&t, &kv, x, t.dim, P);
            pl_turboquant_encode_values(&t, &k, &vv, x, t.dim, P);
            size_t kc = P * kv.code_stride, vc = P * vv.code_stride, s = 2 * P * groups;
            assert_memory_equal(key, kv.codes, kc);
            assert_memory_equal(value, vv.codes, vc);
            for (size_t token = 0; token < P; token++)
                for (size_t g = 0; g < groups; g++) {
                    size_t from = 2 * (token * groups + g), to = 2 * (g * P + token);
                    assert_memory_equal(key + kc + to, (uint8_t *)kv.scales + from, 2);
                    assert_memory_equal(key + kc + s + to, (uint8_t *)kv.zeros + from, 2);
                    assert_memory_equal(value + vc + to, (uint8_t *)vv.scales + from, 2);
                }
            assert_int_equal(kc + 2 * s, P * kb);
            assert_int_equal(vc + s, P * vb);
            pl_turboquant_view r = pl_turboquant_key_page(&t, record, 1, 0);
            pl_turboquant_encode_keys(&t, &r, x, t.dim, 1);
            assert_memory_equal(record, kv.codes, kv.code_stride);
            assert_memory_equal(record + kv.code_stride, kv.scales, 2 * groups);
            assert_memory_equal(record + kv.code_stride + 2 * groups, kv.zeros, 2 * groups);
            arrays_free(&kv);
            arrays_free(&vv);
            free(key);
            free(value);
            free(x);
        }
}

/* Values: the error of Gaussian numbers is that of a Gaussian Lloyd-Max code of so many bits, and
 * rotation and back is the identity. */
static void test_quality(void **state)
{
    (void)state;
    static const double most[] = {0, 0, 0.125, 0.036, 0.0105, 0.0033, 0, 0, 0.0003};
    uint64_t seed = 10;
    pl_kernels k = best_kernels();
    for (size_t b = 0; b < COUNT(value_bits); b++)
        for (size_t d = 0; d < COUNT(dims); d++) {
            pl_turboquant t = {dims[d], 8, value_bits[b]};
            double error = 0, size = 0;
            for (int round = 0; round < 60; round++) {
                float x[PL_TURBOQUANT_MAX_DIM], y[PL_TURBOQUANT_MAX_DIM];
                uint8_t record[1024];
                pl_turboquant_view v = pl_turboquant_value_page(&t, record, 1, 0);
                for (size_t i = 0; i < t.dim; i++) {
                    x[i] = noise(&seed) * noise(&seed) * 3;
                    y[i] = x[i];
                }
                pl_turboquant_rotate(&k, y, t.dim);
                pl_turboquant_unrotate(&k, y, t.dim);
                for (size_t i = 0; i < t.dim; i++) assert_true(fabsf(y[i] - x[i]) < 3e-6f);
                pl_turboquant_encode_values(&t, &k, &v, x, t.dim, 1);
                pl_turboquant_decode_values(&t, &k, &v, &(pl_turboquant_plain){y, t.dim, false}, 1,
                                            false);
                for (size_t i = 0; i < t.dim; i++) {
                    error += (double)(y[i] - x[i]) * (y[i] - x[i]);
                    size += (double)x[i] * x[i];
                }
            }
            assert_true(error / size < most[t.value_bits]);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),      cmocka_unit_test(test_random_goldens),
        cmocka_unit_test(test_hostile_keys), cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_tiny_values),  cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_strides_and_types),
        cmocka_unit_test(test_pages),        cmocka_unit_test(test_quality),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
