/* SPDX-License-Identifier: Apache-2.0
 *
 * Refining: gradients of scales against differences, a KL that falls on text held out, the same bits
 * for every thread count, and a result that can be read. */
#include "quantised_model.h"

#include "base/half.h"
#include "pools.h"
#include "quant/refine.h"
#include "quant/scales.h"
#include "runtime/engine.h"

static pleach_model *quantised(const char *name, uint32_t bits, int axis, pleach_rotate rotate)
{
    char source[512], packed[512];
    pleach_quantize_settings s;
    pleach_quantize_settings_defaults(&s);
    s.bits = bits;
    s.axis = axis;
    s.rotate = rotate;
    s.threads = 2;
    s.force = 1;
    snprintf(source, sizeof source, CHECKPOINTS "%s", name);
    snprintf(packed, sizeof packed, "%s/packed", work.path);
    must(pleach_quantize(source, packed, &s, NULL, &err));
    return open_model(packed, NULL, PLEACH_ARITH_F32, 2);
}

static double uniform(uint64_t *random)
{
    return 2 * pl_random_unit(random) - 1;
}

/* sum r y of block 1 with its multipliers. */
static double projected(const pleach_model *m, const pl_scales *s, pl_tape *tape, const float *x,
                        const float *r, size_t n)
{
    size_t C = m->transformer->config->hidden_size;
    float *y = pl_alloc(n * C, sizeof *y);
    pl_block b;
    must(pl_block_open(&b, m->transformer, &m->compute, 1, &err));
    pl_scales_apply(s, &b, 1);
    pl_block_forward(&b, tape, x, n, y);
    double sum = 0;
    for (size_t i = 0; i < n * C; i++) sum += (double)r[i] * y[i];
    pl_block_close(&b);
    pl_free(y);
    return sum;
}

static void block_gradient(const pleach_model *m, pl_scales *s, pl_tape *tape, const float *x,
                           const float *r, size_t n)
{
    pl_block b;
    must(pl_block_open(&b, m->transformer, &m->compute, 1, &err));
    pl_scales_apply(s, &b, 1);
    pl_block_forward(&b, tape, x, n, NULL);
    pl_block_backward(&b, tape, r, NULL);
    for (int i = 0; i < PL_BLOCK_LINEARS; i++) {
        const float *g = tape->gradient[i], *in = pl_tape_input(tape, i);
        float *dW = pl_calloc(b.out[i] * b.in[i], sizeof *dW);
        for (size_t t = 0; t < n; t++)
            for (size_t o = 0; o < b.out[i]; o++)
                for (size_t j = 0; j < b.in[i]; j++)
                    dW[o * b.in[i] + j] += g[t * b.out[i] + o] * in[t * b.in[i] + j];
        must(pl_scales_add_gradient(s, &b, 1, i, dW, &err));
        pl_free(dW);
    }
    pl_block_close(&b);
}

static void check_gradient(pleach_model *m, size_t expected)
{
    enum { N = 24 };
    const pl_transformer *t = m->transformer;
    size_t C = t->config->hidden_size;
    uint64_t random = 7;
    float *x = pl_alloc(N * C, sizeof *x), *r = pl_alloc(N * C, sizeof *r);
    for (size_t i = 0; i < N * C; i++) {
        x[i] = (float)uniform(&random);
        r[i] = (float)uniform(&random);
    }
    pl_scales s;
    pl_tape tape;
    must(pl_scales_open(&s, t, PL_SCALES_OUTPUT | PL_SCALES_INPUT, &err));
    assert_int_equal(s.n, expected * t->config->n_layers);
    must(pl_tape_open(&tape, t, N, true, &err));
    for (size_t i = 0; i < s.n; i++) s.value[i] = (float)(1 + 0.2 * uniform(&random));
    block_gradient(m, &s, &tape, x, r, N);

    float *base = pl_alloc(s.n, sizeof *base), *way = pl_alloc(s.n, sizeof *way);
    memcpy(base, s.value, s.n * sizeof *base);
    for (int trial = 0; trial < 4; trial++) {
        const double h = 2e-3;
        double slope = 0, ends[2];
        for (size_t i = 0; i < s.n; i++) {
            way[i] = (float)uniform(&random);
            slope += (double)way[i] * s.gradient[i];
        }
        for (int side = 0; side < 2; side++) {
            for (size_t i = 0; i < s.n; i++)
                s.value[i] = base[i] + (float)(side ? h : -h) * way[i];
            ends[side] = projected(m, &s, &tape, x, r, N);
        }
        double difference = (ends[1] - ends[0]) / (2 * h);
        if (!(fabs(slope - difference) < 0.01 * fabs(slope) + 0.02))
            fail_msg("gradient %g, by differences %g", slope, difference);
    }
    pl_free(base);
    pl_free(way);
    pl_tape_close(&tape);
    pl_scales_close(&s);
    pl_free(x);
    pl_free(r);
}

static size_t widths(const pleach_model *m, bool outputs, bool inputs)
{
    pl_block b;
    size_t n = 0;
    must(pl_block_open(&b, m->transformer, &m->compute, 0, &err));
    for (int i = 0; i < PL_BLOCK_LINEARS; i++)
        n += (outputs ? b.out[i] : 0) + (inputs ? b.in[i] : 0);
    pl_block_close(&b);
    return n;
}

static void test_gradient(void **state)
{
    (void)state;
    const struct {
        int axis;
        pleach_rotate rotate;
        bool outputs, inputs;
    } cases[] = {
        {0, PLEACH_ROTATE_INPUT_SCALE, true, true},
        {0, PLEACH_ROTATE_BOTH, false, true},
        {0, PLEACH_ROTATE_NONE, false, true},
        {1, PLEACH_ROTATE_INPUT, true, false},
        {1, PLEACH_ROTATE_BOTH, false, false},
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        pleach_model *m = quantised("qwen3-qknorm", 3, cases[i].axis, cases[i].rotate);
        check_gradient(m, widths(m, cases[i].outputs, cases[i].inputs));
        pleach_model_close(m);
    }
}

/* The packed model with every output scale off by up to a fifth: `source` is what it should be. */
static pleach_model *spoilt(void)
{
    char from[512], to[512], command[1100];
    snprintf(from, sizeof from, "%s/packed", work.path);
    snprintf(to, sizeof to, "%s/spoilt", work.path);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
    snprintf(to, sizeof to, "%s/spoilt/model.safetensors", work.path);
    char *data;
    size_t size;
    pl_safetensors *file;
    uint64_t random = 11;
    must(pl_read_file(to, (size_t)1 << 30, &data, &size, &err));
    must(pl_safetensors_open_memory(to, data, size, &file, &err));
    for (size_t i = 0; i < pl_safetensors_count(file); i++) {
        const pl_tensor *t = pl_safetensors_tensor(file, i);
        if (!strstr(t->name, ".output_scale")) continue;
        char *at = data + ((const char *)t->data - data);
        for (size_t j = 0; j < t->n_bytes; j += 2) {
            uint16_t half;
            memcpy(&half, at + j, 2);
            half = pl_f32_to_fp16(pl_fp16_to_f32(half) * (float)(1 + 0.2 * uniform(&random)));
            memcpy(at + j, &half, 2);
        }
    }
    pl_safetensors_close(file);
    must(pl_write_file(to, data, size, &err));
    pl_free(data);
    snprintf(to, sizeof to, "%s/spoilt", work.path);
    return open_model(to, NULL, PLEACH_ARITH_F32, 2);
}

static char *refined(const pleach_model *source, const pleach_model *coded, int threads, int epochs,
                     const char *name, pl_refine_result *result)
{
    enum { N = 40 * 32 };
    static int32_t ids[N];
    size_t vocab = source->transformer->config->vocab_size;
    for (size_t i = 0; i < N; i++) ids[i] = (int32_t)(pl_mix64(i + 1) % vocab);
    pl_refine_settings s = {.epochs = epochs, .which = PL_SCALES_OUTPUT | PL_SCALES_INPUT,
                            .rate = 5e-3, .chunk = 32, .batch = 4, .held_out = 5, .seed = 1};
    pl_compute c = coded->compute;
    c.pool = pool_of(threads);
    char *path = pl_path_join(work.path, name);
    must(pl_refine(source->transformer, coded->transformer, &c, ids, N, &s, path, result, &err));
    return path;
}

static void test_refine(void **state)
{
    (void)state;
    pleach_model *source = quantised("llama-tied", 3, 0, PLEACH_ROTATE_INPUT_SCALE);
    pleach_model *coded = spoilt();
    pl_refine_result one, three, none;
    char *a = refined(source, coded, 1, 6, "a.safetensors", &one);
    char *b = refined(source, coded, 3, 6, "b.safetensors", &three);
    print_message("KL on held-out text %.4f, then %.4f\n", one.before, one.after);
    assert_true(one.kept > 0 && one.after < 0.5 * one.before);
    assert_true(one.after == three.after && one.before == three.before);
    assert_int_equal(one.tokens, 32 * 32);

    char *data[2];
    size_t size[2];
    must(pl_read_file(a, (size_t)1 << 30, &data[0], &size[0], &err));
    must(pl_read_file(b, (size_t)1 << 30, &data[1], &size[1], &err));
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(data[0], data[1], size[0]);
    pl_free(data[0]);
    pl_free(data[1]);

    /* Nothing to gain: the scales stay. */
    char *c = refined(source, coded, 2, 0, "c.safetensors", &none);
    assert_int_equal(none.kept, 0);
    assert_true(none.before == one.before && none.after == none.before);
    pl_safetensors *file;
    must(pl_safetensors_open(c, &file, &err));
    for (size_t i = 0; i < pl_safetensors_count(file); i++) {
        const pl_tensor *t = pl_safetensors_tensor(file, i);
        if (strcmp(t->name, PL_SCALES_NOTE) == 0) continue;
        const pl_tensor *old = pl_checkpoint_find(coded->checkpoint, t->name);
        assert_true(old && old->type == PL_F16 && old->n_bytes == t->n_bytes);
        assert_memory_equal(old->data, t->data, t->n_bytes);
    }
    pl_safetensors_close(file);
    pl_free(a);
    pl_free(b);
    pl_free(c);
    pleach_model_close(coded);
    pleach_model_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradient),
        cmocka_unit_test(test_refine),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
