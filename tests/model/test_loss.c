/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss behind the last block: values, gradients, and labels drawn from the model. */
#include "support.h"

#include "calibrate/loss.h"
#include "runtime/engine.h"

enum { N = 37 };

typedef struct setting {
    pleach_model *m;
    pl_loss loss;
    size_t C, vocab;
    float *x;      /* [N][C] hidden states */
    float *logits; /* [N][vocab] */
} setting;

static float *numbers(size_t n, uint64_t seed, float size)
{
    float *x = pl_alloc(n, sizeof *x);
    for (size_t i = 0; i < n; i++) x[i] = ((float)(pl_mix64(seed + i) >> 40) * 0x1p-23f - 1) * size;
    return x;
}

static setting open_setting(int threads, size_t slab, bool whole)
{
    setting s = {.m = open_model(CHECKPOINTS "mistral-swa", NULL, PLEACH_ARITH_F32, threads)};
    const pl_transformer *t = s.m->transformer;
    s.C = t->config->hidden_size;
    s.vocab = t->config->vocab_size;
    must(pl_loss_open(&s.loss, t, &s.m->compute, slab, whole, &err));
    s.x = numbers(N * s.C, 3, 2);
    s.logits = pl_alloc(N * s.vocab, sizeof *s.logits);
    pl_loss_logits(&s.loss, s.x, N, s.logits);
    return s;
}

static void close_setting(setting *s)
{
    pl_loss_close(&s->loss);
    pl_free(s->x);
    pl_free(s->logits);
    pleach_model_close(s->m);
}

/* log_probabilities[v] of logits z, in double. */
static void log_softmax(const float *z, size_t n, double *log_probabilities)
{
    double most = (double)z[0], sum = 0;
    for (size_t v = 0; v < n; v++) most = fmax(most, (double)z[v]);
    for (size_t v = 0; v < n; v++) sum += exp((double)z[v] - most);
    for (size_t v = 0; v < n; v++) log_probabilities[v] = (double)z[v] - most - log(sum);
}

/* The loss of the target at hidden states x, in double from the logits on. */
static double plain_loss(const setting *s, const float *x, const pl_target *target)
{
    float *logits = pl_alloc(N * s->vocab, sizeof *logits);
    double *p = pl_alloc(s->vocab, sizeof *p), sum = 0;
    pl_loss_logits(&s->loss, x, N, logits);
    for (size_t m = 0; m < N; m++) {
        log_softmax(logits + m * s->vocab, s->vocab, p);
        if (target->labels) sum -= p[target->labels[m]];
        for (size_t v = 0; target->teacher && v < s->vocab; v++) {
            double t = (double)target->teacher[m * s->vocab + v];
            if (t > -INFINITY) sum += exp(t) * (t - p[v]);
        }
    }
    pl_free(logits);
    pl_free(p);
    return sum;
}

/* Value, and derivatives along random directions by central differences of fourth order. */
static void check_target(const setting *s, const pl_target *target)
{
    size_t n = N * s->C;
    const float e = 0.02f, steps[4] = {e, -e, 2 * e, -2 * e};
    float *dx = pl_alloc(n, sizeof *dx), *moved = pl_alloc(n, sizeof *moved);
    double loss = pl_loss_gradient(&s->loss, s->x, N, target, dx);
    double plain = plain_loss(s, s->x, target), f[4], length = 0;
    if (!(fabs(loss - plain) < 1e-5 * plain)) fail_msg("loss %g, expected %g", loss, plain);
    for (size_t i = 0; i < n; i++) length += (double)dx[i] * (double)dx[i];
    for (uint64_t round = 0; round < 3; round++) {
        float *d = numbers(n, 50 + round, 1);
        for (int k = 0; k < 4; k++) {
            for (size_t i = 0; i < n; i++) moved[i] = s->x[i] + steps[k] * d[i];
            f[k] = plain_loss(s, moved, target);
        }
        double want = (8 * (f[0] - f[1]) - (f[2] - f[3])) / (12 * (double)e), got = 0;
        for (size_t i = 0; i < n; i++) got += (double)dx[i] * (double)d[i];
        if (!(fabs(got - want) < 1e-4 * sqrt(length)))
            fail_msg("%g along a direction, expected %g; length %g", got, want, sqrt(length));
        pl_free(d);
    }
    pl_free(dx);
    pl_free(moved);
}

static void labels_and_teachers(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        setting s = open_setting(2, whole ? 64 : 16, whole);
        int32_t labels[N];
        for (size_t m = 0; m < N; m++) labels[m] = (int32_t)(pl_mix64(m) % s.vocab);
        check_target(&s, &(pl_target){.labels = labels});
        float *teacher = numbers(N * s.vocab, 9, 4);
        double *p = pl_alloc(s.vocab, sizeof *p);
        for (size_t m = 0; m < N; m++) {
            float *row = teacher + m * s.vocab;
            row[m] = -INFINITY;
            row[m + 1] = -200;
            log_softmax(row, s.vocab, p);
            for (size_t v = 0; v < s.vocab; v++) row[v] = (float)p[v];
        }
        check_target(&s, &(pl_target){.teacher = teacher});
        pl_free(teacher);
        pl_free(p);
        close_setting(&s);
    }
}

static void its_own_teacher_teaches_nothing(void **state)
{
    (void)state;
    setting s = open_setting(2, 64, true);
    float *teacher = pl_alloc(N * s.vocab, sizeof *teacher), *dx = pl_alloc(N * s.C, sizeof *dx);
    double *p = pl_alloc(s.vocab, sizeof *p);
    for (size_t m = 0; m < N; m++) {
        log_softmax(s.logits + m * s.vocab, s.vocab, p);
        for (size_t v = 0; v < s.vocab; v++) teacher[m * s.vocab + v] = (float)p[v];
    }
    double loss = pl_loss_gradient(&s.loss, s.x, N, &(pl_target){.teacher = teacher}, dx);
    assert_true(fabs(loss) < 1e-5 * N);
    for (size_t i = 0; i < N * s.C; i++) assert_true(fabs((double)dx[i]) < 1e-5);
    pl_free(teacher);
    pl_free(dx);
    pl_free(p);
    close_setting(&s);
}

/* ---- drawn labels --------------------------------------------------------------------------- */

/* After a call of no more than a slab: the label of token m. Its gradient alone is negative. */
static size_t drawn(const setting *s, size_t m)
{
    const float *row = s->loss.logits + m * s->vocab;
    size_t label = 0, negative = 0;
    for (size_t v = 0; v < s->vocab; v++)
        if (row[v] < 0) {
            label = v;
            negative++;
        }
    assert_int_equal(negative, 1);
    return label;
}

/* Chi square over the vocabulary; rare labels count as one. */
static void labels_are_drawn_as_likely(void **state)
{
    (void)state;
    enum { DRAWS = 400 };
    setting s = open_setting(2, 64, true);
    float *dx = pl_alloc(N * s.C, sizeof *dx);
    double *p = pl_alloc(s.vocab, sizeof *p), *expected = pl_calloc(s.vocab, sizeof *expected);
    double *seen = pl_calloc(s.vocab, sizeof *seen);
    for (size_t m = 0; m < N; m++) {
        log_softmax(s.logits + m * s.vocab, s.vocab, p);
        for (size_t v = 0; v < s.vocab; v++) expected[v] += DRAWS * exp(p[v]);
    }
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        pl_loss_gradient(&s.loss, s.x, N, &(pl_target){.seed = seed}, dx);
        for (size_t m = 0; m < N; m++) seen[drawn(&s, m)]++;
    }
    double chi = 0, rare = 0, rare_seen = 0, cells = 0;
    for (size_t v = 0; v < s.vocab; v++) {
        if (expected[v] < 8) {
            rare += expected[v];
            rare_seen += seen[v];
            continue;
        }
        chi += (seen[v] - expected[v]) * (seen[v] - expected[v]) / expected[v];
        cells++;
    }
    if (rare > 8) chi += (rare_seen - rare) * (rare_seen - rare) / rare;
    /* Variance at most 2 cells: draws of several tokens together vary less. */
    if (!(chi < cells + 5 * sqrt(2 * cells))) fail_msg("chi square %g of %g", chi, cells);
    pl_free(dx);
    pl_free(p);
    pl_free(expected);
    pl_free(seen);
    close_setting(&s);
}

/* Chunks, slabs and threads do not change a token's label. */
static void labels_belong_to_tokens(void **state)
{
    (void)state;
    setting a = open_setting(1, 64, true), b = open_setting(3, 64, false);
    float *whole = pl_alloc(N * a.C, sizeof *whole), *part = pl_alloc(N * a.C, sizeof *part);
    size_t labels[N], moved = 0;
    double loss = pl_loss_gradient(&a.loss, a.x, N, &(pl_target){.seed = 7, .first = 100}, whole);
    for (size_t m = 0; m < N; m++) labels[m] = drawn(&a, m);
    double again = pl_loss_gradient(&b.loss, a.x, N, &(pl_target){.seed = 7, .first = 100}, part);
    assert_true(loss == again);
    assert_memory_equal(whole, part, N * a.C * sizeof *whole);
    pl_loss_gradient(&b.loss, a.x + 20 * a.C, N - 20, &(pl_target){.seed = 7, .first = 120}, part);
    for (size_t m = 20; m < N; m++) assert_int_equal(drawn(&b, m - 20), labels[m]);
    pl_loss_gradient(&b.loss, a.x, N, &(pl_target){.seed = 8, .first = 100}, part);
    for (size_t m = 0; m < N; m++) moved += drawn(&b, m) != labels[m];
    assert_true(moved > 0);
    pl_free(whole);
    pl_free(part);
    close_setting(&a);
    close_setting(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_and_teachers),
        cmocka_unit_test(its_own_teacher_teaches_nothing),
        cmocka_unit_test(labels_are_drawn_as_likely),
        cmocka_unit_test(labels_belong_to_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
