/* SPDX-License-Identifier: Apache-2.0
 *
 * Error feedback on single matrices: against the recipe written out in plain loops, against theory,
 * on statistics that are hard to factor, and for every number of threads. */
#include "quantize_fixture.h"

#include <math.h>

#include "base/cpu.h"
#include "base/half.h"
#include "pools.h"
#include "quant/code_module.h"
#include "quant/hessian.h"
#include "quant/ldlq.h"
#include "quant/rotate_matrix.h"

static const pl_kernels *kernels(void)
{
    static pl_kernels k;
    unsigned cpu;
    assert_int_equal(pl_cpu_level(NULL, &cpu), 0);
    pl_kernels_init(&k, cpu);
    return &k;
}

/* One matrix with statistics, made into a plan item. */
typedef struct problem {
    size_t out, in;
    float *w;                       /* [out][in] */
    double *h, *g;                  /* [in][in], [out][out] */
    float *packed_h, *packed_g;
    pl_map map;
    pl_tensor source;
    pl_plan_item item;
    pl_module_statistics stats;
} problem;

/* Symmetric, with eigenvalues that fall by a factor of `spread`, in a random basis. */
static double *correlated(size_t n, double spread, uint64_t *seed)
{
    double *h = calloc(n * n, sizeof *h), *x = malloc(n * sizeof *x);
    for (size_t k = 0; k < n; k++) {
        double value = pow(spread, -(double)k / (double)n);
        for (size_t i = 0; i < n; i++) x[i] = normal(seed) / sqrt((double)n);
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < n; j++) h[i * n + j] += value * x[i] * x[j];
    }
    free(x);
    return h;
}

static float *pack(const double *h, size_t n)
{
    float *packed = malloc(pl_triangle_size(n) * sizeof *packed), *to = packed;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i; j < n; j++) *to++ = (float)h[i * n + j];
    return packed;
}

static void fill_item(problem *p, uint32_t k, uint32_t axis, pleach_rotate rotate)
{
    pl_plan_item *item = &p->item;
    *item = (pl_plan_item){.module = {.name = "m", .kind = PL_MODULE_LINEAR, .out = p->out,
                                      .in = p->in},
                           .coding = PL_CODING_TRELLIS, .width = axis ? p->in : p->out};
    p->source = (pl_tensor){.name = "m.weight", .type = PL_F32, .n_dims = 2,
                            .shape = {p->out, p->in}, .data = p->map.data,
                            .n_bytes = p->out * p->in * 4};
    item->source = (pl_weight){.out = p->out, .in = p->in, .weight = &p->source};
    item->trellis = (pleach_trellis){.bits = k, .state_bits = 12, .axis = axis,
                                     .rows = axis ? p->out : p->in};
    assert_ok(
        pleach_trellis_choose_block(item->width, &item->trellis.block, &item->trellis.cols, err));
    if (rotate != PLEACH_ROTATE_NONE) item->rotate_in = (pl_rotation){pl_rotation_block(p->in), 7};
    if (rotate == PLEACH_ROTATE_BOTH)
        item->rotate_out = (pl_rotation){pl_rotation_block(p->out), 8};
    item->output_scale = rotate == PLEACH_ROTATE_INPUT_SCALE && axis == 0;
    pl_item_tensors tensors;
    pl_item_tensors_get(item, PL_F16, &tensors);
    for (size_t i = 0; i < tensors.n; i++) item->bytes += tensors.tensor[i].n_bytes;
}

static problem make_problem(size_t out, size_t in, uint64_t seed)
{
    problem p = {.out = out, .in = in, .w = malloc(out * in * sizeof *p.w)};
    for (size_t i = 0; i < out * in; i++)
        p.w[i] = normal(&seed) * .02f * (float)(1 + i / in % 3);
    p.h = correlated(in, 1e4, &seed);
    p.g = correlated(out, 1e4, &seed);
    p.packed_h = pack(p.h, in);
    p.packed_g = pack(p.g, out);
    p.stats = (pl_module_statistics){.in = in, .out = out, .tokens = 1000, .input = p.packed_h};
    assert_ok(pl_write_file(at("matrix"), p.w, out * in * sizeof *p.w, err));
    assert_ok(pl_map_open(&p.map, at("matrix"), err));
    return p;
}

static void drop_problem(problem *p)
{
    pl_map_close(&p->map);
    free(p->w);
    free(p->h);
    free(p->g);
    free(p->packed_h);
    free(p->packed_g);
}

typedef struct result {
    pl_coded coded;
    size_t bytes[3];
    void *data[3];
    float *q; /* [out][in] as a reader decodes it */
} result;

static const pl_feedback_settings DEFAULT = {.inputs = true, .outputs = true, .damping = .01,
                                             .output_damping = 1, .sweeps = 1};

static result run(problem *p, const pl_feedback_settings *settings, int threads)
{
    pl_coder coder = {.kernels = kernels(), .pool = pool_of(threads), .feedback = *settings};
    result r = {.q = malloc(p->out * p->in * sizeof *r.q)};
    assert_ok(pl_coder_open(&coder, &p->item, 1, err));
    assert_ok(pl_code_module(&coder, &p->item, &p->stats, &r.coded, err));
    pl_tensor *t = r.coded.tensors.tensor;
    pl_weight w = {.coding = PL_CODING_TRELLIS, .out = p->out, .in = p->in, .weight = &t[0],
                   .scales = &t[1], .trellis = p->item.trellis, .rotate_in = p->item.rotate_in,
                   .rotate_out = p->item.rotate_out};
    if (p->item.output_scale) w.output_scale = &t[2];
    for (size_t i = 0; i < r.coded.tensors.n; i++) {
        t[i].data = r.coded.data[i];
        r.bytes[i] = t[i].n_bytes;
        r.data[i] = malloc(t[i].n_bytes);
        memcpy(r.data[i], t[i].data, t[i].n_bytes);
    }
    assert_ok(pl_weight_dense_f32(&w, r.q, err));
    pl_coder_close(&coder);
    return r;
}

static void drop_result(result *r)
{
    for (size_t i = 0; i < r->coded.tensors.n; i++) free(r->data[i]);
    free(r->q);
}

static bool same_codes(const result *a, const result *b)
{
    bool same = a->coded.tensors.n == b->coded.tensors.n;
    for (size_t i = 0; same && i < a->coded.tensors.n; i++)
        same = a->bytes[i] == b->bytes[i] && !memcmp(a->data[i], b->data[i], a->bytes[i]);
    return same;
}

/* tr(G X H X^T) of X = W - Q, or of W when q is NULL; G the unit matrix when g is NULL. */
static double loss(const problem *p, const float *q, const double *g)
{
    double sum = 0, *xh = calloc(p->out * p->in, sizeof *xh);
    for (size_t o = 0; o < p->out; o++)
        for (size_t i = 0; i < p->in; i++) {
            double x = p->w[o * p->in + i] - (q ? (double)q[o * p->in + i] : 0);
            for (size_t j = 0; j < p->in; j++) xh[o * p->in + j] += x * p->h[i * p->in + j];
        }
    for (size_t o = 0; o < p->out; o++)
        for (size_t v = 0; v < p->out; v++) {
            double weight = g ? g[o * p->out + v] : o == v;
            if (weight == 0) continue;
            for (size_t j = 0; j < p->in; j++)
                sum += weight * xh[o * p->in + j] *
                       (p->w[v * p->in + j] - (q ? (double)q[v * p->in + j] : 0));
        }
    free(xh);
    return sum;
}

static void assert_close(double got, double want, double share)
{
    if (!(fabs(got - want) <= share * fabs(want)))
        fail_msg("%.9g, expected %.9g within %g", got, want, share);
}

/* ---- the recipe in plain loops --------------------------------------------------------------- */

/* R [n][n]: column c of diag(signs) times Hadamard blocks. */
static double *rotation_matrix(const pl_rotation *r, size_t n)
{
    double *m = calloc(n * n, sizeof *m);
    for (size_t i = 0; i < n; i++) {
        double sign = pl_mix64(r->seed + 0x9e3779b97f4a7c15u * (i + 1)) & 1 ? -1 : 1;
        if (!r->block) m[i * n + i] = 1;
        size_t first = r->block ? i / r->block * r->block : n;
        for (size_t c = first; c < PL_MIN(first + r->block, n); c++)
            m[i * n + c] = sign * (__builtin_popcountll((i & c) % r->block) % 2 ? -1 : 1) /
                           sqrt(r->block);
    }
    return m;
}

/* c [n][m] = op(a) b with a [n][k], or [k][n] when transposed. */
static double *times(const double *a, bool transposed, const double *b, size_t n, size_t k, size_t m)
{
    double *c = calloc(n * m, sizeof *c);
    for (size_t i = 0; i < n; i++)
        for (size_t l = 0; l < k; l++)
            for (size_t j = 0; j < m; j++)
                c[i * m + j] += (transposed ? a[l * n + i] : a[i * k + l]) * b[l * m + j];
    return c;
}

/* U with a = U U^T, from the last column on. */
static void factor_upper(double *a, size_t n)
{
    for (size_t j = n; j-- > 0;) {
        double pivot = sqrt(a[j * n + j]);
        for (size_t i = 0; i <= j; i++) a[i * n + j] /= pivot;
        for (size_t i = 0; i < j; i++)
            for (size_t k = i; k < j; k++) {
                a[i * n + k] -= a[i * n + j] * a[k * n + j];
                a[k * n + i] = a[i * n + k];
            }
        for (size_t i = j + 1; i < n; i++) a[i * n + j] = 0;
    }
}

/* The recipe on features w [in][cols], each given the errors that `coded` [in][cols] made in those
 * before it, so that one choice between near equals does not change all that follows. Returns what
 * each feature becomes. */
static double *recipe(const problem *p, const double *w, const float *coded, const double *hd,
                      const size_t *order)
{
    static const double c[] = {1, 1 / .92, 1 / .88};
    const pleach_trellis *t = &p->item.trellis;
    const size_t n = p->in, cols = t->cols, blocks = cols / t->block;
    double *u = malloc(n * n * sizeof *u), *q = calloc(n * cols, sizeof *q);
    uint32_t *codes = calloc(t->rows * cols * t->bits / 32, sizeof *codes);
    float *x = malloc(cols * sizeof *x), *values = malloc(cols * sizeof *values);
    pl_encoder *e;
    assert_ok(pl_encoder_open(&e, t, NULL, NULL, err));
    for (size_t a = 0; a < n; a++)
        for (size_t b = 0; b < n; b++) u[a * n + b] = hd[order[a] * n + order[b]];
    factor_upper(u, n);
    for (size_t a = 0; a < n; a++) {
        double power = 0, xv = 0, vv = 0;
        for (size_t o = 0; o < cols; o++) {
            double s = w[order[a] * cols + o];
            for (size_t b = 0; b < a; b++)
                s += u[b * n + a] / u[a * n + a] *
                     (w[order[b] * cols + o] - coded[order[b] * cols + o]);
            x[o] = (float)(o < p->item.width ? s : 0);
            power += (double)x[o] * x[o];
        }
        double start = c[t->bits - 2] * sqrt(power / (double)p->item.width) / 1.0041;
        for (size_t b = 0; b < blocks; b++) {
            pl_block_job job = {.row = order[a], .block = b, .src = x + b * t->block,
                                .values = values + b * t->block,
                                .scale = pl_f32_to_fp16((float)start)};
            assert_ok(pl_encoder_blocks(e, &job, 1, codes, err));
        }
        for (size_t o = 0; o < cols; o++) {
            xv += (double)x[o] * values[o];
            vv += (double)values[o] * values[o];
        }
        double scale = pl_fp16_to_f32(pl_f32_to_fp16((float)(xv / vv)));
        for (size_t o = 0; o < p->item.width; o++) q[order[a] * cols + o] = scale * values[o];
        for (size_t o = p->item.width; o < cols; o++) q[order[a] * cols + o] = 0;
    }
    pl_encoder_close(e);
    free(u);
    free(codes);
    free(x);
    free(values);
    return q;
}

static void check_recipe(problem *p, double damping)
{
    const size_t in = p->in, out = p->out, cols = p->item.trellis.cols;
    pl_feedback_settings s = DEFAULT;
    s.damping = damping;
    result r = run(p, &s, 2);
    assert_int_equal(r.coded.feedback.inputs, PL_FEEDBACK_APPLIED);
    double *rin = rotation_matrix(&p->item.rotate_in, in);
    double *rout = rotation_matrix(&p->item.rotate_out, out);
    double *a = malloc(out * sizeof *a), *wt = calloc(in * out, sizeof *wt);
    for (size_t o = 0; o < out; o++) {
        a[o] = p->item.output_scale ? pl_fp16_to_f32(((uint16_t *)r.data[2])[o]) : 1;
        for (size_t i = 0; i < in; i++) wt[i * out + o] = p->w[o * in + i] / a[o];
    }
    double *once = times(rin, true, wt, in, in, out), *w = times(once, false, rout, in, out, out);
    double *hr = times(p->h, false, rin, in, in, in), *h = times(rin, true, hr, in, in, in);
    double mean = 0, *padded = calloc(in * cols, sizeof *padded);
    size_t order[600];
    for (size_t i = 0; i < in; i++) mean += h[i * in + i] / (double)in;
    for (size_t i = 0; i < in; i++) {
        size_t rank = 0;
        for (size_t j = 0; j < in; j++) rank += h[j * in + j] > h[i * in + i];
        order[rank] = i;
        memcpy(padded + i * cols, w + i * out, out * sizeof *w);
    }
    for (size_t i = 0; i < in; i++) h[i * in + i] += damping * mean;
    float *coded = malloc(in * cols * sizeof *coded);
    assert_int_equal(
        pleach_trellis_decode(&p->item.trellis, coded, r.data[0], r.data[1]), PLEACH_OK);
    double *q = recipe(p, padded, coded, h, order);
    size_t differ = 0;
    for (size_t i = 0; i < in; i++) {
        size_t o = 0;
        while (o < out && fabs(q[i * cols + o] - coded[i * cols + o]) < 1e-6) o++;
        differ += o < out;
    }
    if (differ > in / 8) fail_msg("%zu of %zu features differ", differ, in);
    assert_close(r.coded.feedback.plain[0], loss(p, r.q, NULL), 1e-3);
    assert_close(r.coded.feedback.plain[1], loss(p, NULL, NULL), 1e-3);
    assert_close(r.coded.feedback.weighted[0], r.coded.feedback.plain[0], 1e-9);
    void *all[] = {rin, rout, a, wt, once, w, hr, h, padded, coded, q};
    for (size_t i = 0; i < PL_COUNT(all); i++) free(all[i]);
    drop_result(&r);
}

/* A folded module: the loss by statistics of gain * y is that of W, whose gain has gone into what
 * is coded. A gain of zero leaves its feature out of both. */
static void test_folded_gain(void **state)
{
    (void)state;
    problem p = make_problem(160, 96, 9);
    float gain[96];
    for (size_t i = 0; i < p.in; i++) gain[i] = (i % 2 ? -1.f : 1.f) * exp2f((float)(i % 7) - 3);
    for (uint32_t axis = 0; axis <= 1; axis++) {
        fill_item(&p, 3, axis, PLEACH_ROTATE_BOTH);
        p.item.gain = gain;
        p.item.folded = true;
        result r = run(&p, &DEFAULT, 2);
        assert_int_equal(r.coded.feedback.inputs, PL_FEEDBACK_APPLIED);
        assert_close(r.coded.feedback.plain[1], loss(&p, NULL, NULL), 1e-3);
        for (size_t i = 0; i < p.out * p.in; i++) r.q[i] /= gain[i % p.in];
        assert_close(r.coded.feedback.plain[0], loss(&p, r.q, NULL), 1e-3);
        /* Less is lost than without feedback. */
        pl_feedback_settings none = {0};
        result plain = run(&p, &none, 2);
        for (size_t i = 0; i < p.out * p.in; i++) plain.q[i] /= gain[i % p.in];
        assert_true(loss(&p, r.q, NULL) < loss(&p, plain.q, NULL) * .8);
        drop_result(&plain);
        drop_result(&r);
    }
    gain[5] = 0;
    for (size_t j = 0; j < p.in; j++) p.h[5 * p.in + j] = p.h[j * p.in + 5] = 0;
    free(p.packed_h);
    p.stats.input = p.packed_h = pack(p.h, p.in);
    result r = run(&p, &DEFAULT, 2);
    assert_int_equal(r.coded.feedback.inputs, PL_FEEDBACK_APPLIED);
    assert_close(r.coded.feedback.plain[1], loss(&p, NULL, NULL), 1e-3);
    drop_result(&r);
    drop_problem(&p);
}

static void test_recipe(void **state)
{
    (void)state;
    static const pleach_rotate rotations[] = {PLEACH_ROTATE_NONE, PLEACH_ROTATE_BOTH,
                                              PLEACH_ROTATE_INPUT_SCALE};
    problem p = make_problem(160, 96, 1), padded = make_problem(300, 64, 2);
    for (uint32_t k = 2; k <= 4; k++) {
        fill_item(&p, k, 0, rotations[k - 2]);
        check_recipe(&p, .01);
    }
    fill_item(&padded, 3, 0, PLEACH_ROTATE_INPUT_SCALE);
    assert_true(padded.item.trellis.cols > 300);
    check_recipe(&padded, .1);
    drop_problem(&p);
    drop_problem(&padded);
}

static const pl_feedback_settings OFF = {.damping = .01};

/* Gaussian W: no feedback costs sum of H_jj, feedback sum of U_jj^2, times the code's noise. */
static void test_theory(void **state)
{
    (void)state;
    static const double noise[] = {.0749, .01937, .00503};
    problem p = make_problem(384, 256, 3);
    double trace = 0, pivots = 0, *u = malloc(256 * 256 * sizeof *u);
    memcpy(u, p.h, 256 * 256 * sizeof *u);
    for (size_t i = 0; i < 256; i++) trace += p.h[i * 257];
    for (size_t i = 0; i < 256; i++) u[i * 257] += 1e-3 * trace / 256;
    factor_upper(u, 256);
    for (size_t i = 0; i < 256; i++) pivots += u[i * 257] * u[i * 257];
    assert_true(pivots < .5 * trace);
    for (uint32_t k = 2; k <= 4; k++) {
        fill_item(&p, k, 0, PLEACH_ROTATE_INPUT_SCALE);
        pl_feedback_settings s = DEFAULT;
        s.damping = 1e-3;
        result with = run(&p, &s, 2), without = run(&p, &OFF, 2);
        double power = loss(&p, NULL, NULL);
        double plain = loss(&p, without.q, NULL), fed = loss(&p, with.q, NULL);
        assert_close(plain / power, noise[k - 2], .1);
        assert_close(fed / plain, pivots / trace, k == 2 ? .4 : .2);
        assert_close(with.coded.feedback.estimate[k - 2], fed, k == 2 ? .4 : .2);
        assert_int_equal(without.coded.feedback.inputs, PL_FEEDBACK_NO_STATISTICS);
        drop_result(&with);
        drop_result(&without);
    }
    free(u);
    drop_problem(&p);
}

static void test_threads(void **state)
{
    (void)state;
    problem p = make_problem(600, 200, 4);
    p.stats.output = p.packed_g;
    for (int sided = 0; sided < 2; sided++) {
        pl_feedback_settings s = DEFAULT;
        s.two_sided = sided;
        fill_item(&p, 3, 0, PLEACH_ROTATE_INPUT_SCALE);
        result one = run(&p, &s, 1);
        for (int threads = 2; threads <= 5; threads += 3) {
            result more = run(&p, &s, threads);
            assert_true(same_codes(&one, &more));
            assert_memory_equal(&one.coded.feedback, &more.coded.feedback,
                                sizeof one.coded.feedback);
            drop_result(&more);
        }
        drop_result(&one);
    }
    drop_problem(&p);
}

static void set_packed(problem *p, double (*value)(size_t i, size_t j))
{
    float *to = p->packed_h;
    for (size_t i = 0; i < p->in; i++)
        for (size_t j = i; j < p->in; j++) *to++ = (float)value(i, j);
}

static double zero(size_t i, size_t j) { return 0 * (double)(i + j); }
static double rank_one(size_t i, size_t j) { return (1 + (double)i) * (1 + (double)j) * 1e-3; }
static double indefinite(size_t i, size_t j) { return i == j ? i == 5 ? -.3 : 1 : 0; }
static double negative(size_t i, size_t j) { return i == j ? i == 5 ? -1e9 : 2e7 : 0; }
static double not_a_number(size_t i, size_t j) { return i == 3 && j == 9 ? NAN : i == j; }
static double infinite(size_t i, size_t j) { return i == 9 && j == 9 ? INFINITY : i == j; }
static double dead(size_t i, size_t j) { return i % 4 == 1 || j % 4 == 1 ? 0 : i == j ? 1 : .5; }
static double huge(size_t i, size_t j) { return (i == j ? 2 : 1) * 1e37; }
static double tiny(size_t i, size_t j) { return (i == j ? 2 : 1) * 1e-37; }

/* Statistics that do not factor at once, or ever. */
static void test_hard_statistics(void **state)
{
    (void)state;
    static const struct {
        double (*value)(size_t i, size_t j);
        pl_feedback_state expected;
        double damping, dead;
    } cases[] = {
        {zero, PL_FEEDBACK_ZERO, 0, 96},        {rank_one, PL_FEEDBACK_APPLIED, .01, 0},
        {indefinite, PL_FEEDBACK_APPLIED, 1, 0}, {negative, PL_FEEDBACK_NOT_DEFINITE, 0, 0},
        {not_a_number, PL_FEEDBACK_NOT_FINITE, 0, 0}, {infinite, PL_FEEDBACK_NOT_FINITE, 0, 0},
        {dead, PL_FEEDBACK_APPLIED, .01, 24},   {huge, PL_FEEDBACK_APPLIED, .01, 0},
        {tiny, PL_FEEDBACK_APPLIED, .01, 0},
    };
    problem p = make_problem(160, 96, 5);
    fill_item(&p, 3, 0, PLEACH_ROTATE_INPUT_SCALE);
    result plain = run(&p, &OFF, 2);
    for (int rotated = 0; rotated < 2; rotated++) {
        if (!rotated) fill_item(&p, 3, 0, PLEACH_ROTATE_NONE);
        else fill_item(&p, 3, 0, PLEACH_ROTATE_INPUT_SCALE);
        for (size_t i = 0; i < PL_COUNT(cases); i++) {
            set_packed(&p, cases[i].value);
            result r = run(&p, &DEFAULT, 2);
            const pl_feedback_report *f = &r.coded.feedback;
            if (f->inputs != cases[i].expected || fabs(f->damping - cases[i].damping) > 1e-12)
                fail_msg("case %zu: %s, damping %g", i, pl_feedback_state_text(f->inputs),
                         f->damping);
            if (cases[i].expected != PL_FEEDBACK_NOT_FINITE)
                assert_true(f->dead == cases[i].dead);
            for (size_t j = 0; j < p.out * p.in; j++) assert_true(isfinite(r.q[j]));
            if (f->inputs != PL_FEEDBACK_APPLIED && rotated) assert_true(same_codes(&r, &plain));
            assert_true(r.coded.error < .1 * r.coded.power);
            drop_result(&r);
        }
    }
    drop_result(&plain);
    drop_problem(&p);
}

/* Feedback between outputs lowers the loss that it is made for, and the report tells the truth. */
static void test_two_sided(void **state)
{
    (void)state;
    static const pleach_rotate rotations[] = {PLEACH_ROTATE_BOTH, PLEACH_ROTATE_INPUT_SCALE};
    problem p = make_problem(576, 96, 6);
    p.stats.output = p.packed_g;
    for (size_t i = 0; i < PL_COUNT(rotations); i++) {
        pl_feedback_settings s = DEFAULT;
        s.output_damping = .01;
        fill_item(&p, 3, 0, rotations[i]);
        result one = run(&p, &s, 2);
        s.two_sided = true;
        result two = run(&p, &s, 2);
        double first = loss(&p, one.q, p.g), second = loss(&p, two.q, p.g);
        assert_int_equal(one.coded.feedback.outputs, PL_FEEDBACK_NO_STATISTICS);
        assert_int_equal(two.coded.feedback.outputs, PL_FEEDBACK_APPLIED);
        assert_close(one.coded.feedback.loss, first / 2, 1e-3);
        assert_close(two.coded.feedback.loss, second / 2, 1e-3);
        assert_close(one.coded.feedback.estimate[1], first / 2, .25);
        assert_true(second < .8 * first);
        drop_result(&one);
        drop_result(&two);
    }
    /* Statistics of outputs that cannot be used: one-sided, and said so. */
    fill_item(&p, 3, 0, PLEACH_ROTATE_INPUT_SCALE);
    pl_feedback_settings s = DEFAULT;
    result one = run(&p, &s, 2);
    s.two_sided = true;
    p.packed_g[7] = NAN;
    result two = run(&p, &s, 2);
    assert_int_equal(two.coded.feedback.inputs, PL_FEEDBACK_APPLIED);
    assert_int_equal(two.coded.feedback.outputs, PL_FEEDBACK_NOT_FINITE);
    assert_true(same_codes(&one, &two));
    drop_result(&one);
    drop_result(&two);
    drop_problem(&p);
}

/* Along axis 1 feedback between blocks helps, and each sweep after it. */
static void test_blocks(void **state)
{
    (void)state;
    problem p = make_problem(96, 1100, 7);
    fill_item(&p, 3, 1, PLEACH_ROTATE_BOTH);
    assert_true(p.item.trellis.cols / p.item.trellis.block > 3);
    result without = run(&p, &OFF, 2);
    double last = loss(&p, without.q, NULL);
    drop_result(&without);
    for (int sweeps = 0; sweeps <= 2; sweeps++) {
        pl_feedback_settings s = DEFAULT;
        s.sweeps = sweeps;
        result with = run(&p, &s, 3), single = run(&p, &s, 1);
        assert_int_equal(with.coded.feedback.inputs, PL_FEEDBACK_APPLIED);
        assert_true(same_codes(&with, &single));
        double now = loss(&p, with.q, NULL);
        assert_true(now < (sweeps == 0 ? .8 : sweeps == 1 ? .99 : 1) * last);
        assert_close(with.coded.feedback.plain[0], now, 1e-3);
        assert_close(with.coded.feedback.plain[1], loss(&p, NULL, NULL), 1e-3);
        last = now;
        drop_result(&with);
        drop_result(&single);
    }
    drop_problem(&p);
}

/* Rows that are hard on a scale, at every k, axis and rotation: all is finite and errors fall. */
static void test_hard_rows(void **state)
{
    (void)state;
    problem p = make_problem(64, 512, 8);
    float *w = p.w;
    for (size_t j = 0; j < 512; j++) {
        w[0 * 512 + j] = 0;
        w[1 * 512 + j] = 1e-40f;
        w[2 * 512 + j] = j == 9 ? 1e-30f : 0;
        w[3 * 512 + j] = -0.0f;
        w[4 * 512 + j] = j & 1 ? 3 : -3;
        w[5 * 512 + j] = j == 100 ? 900 : w[5 * 512 + j];
    }
    for (int zeros = 0; zeros < 2; zeros++) {
        if (zeros) memset(w, 0, 64 * 512 * sizeof *w);
        pl_map_close(&p.map);
        assert_ok(pl_write_file(at("matrix"), w, 64 * 512 * sizeof *w, err));
        assert_ok(pl_map_open(&p.map, at("matrix"), err));
        for (uint32_t axis = 0; axis < 2; axis++) {
            for (int rotate = 0; rotate <= PLEACH_ROTATE_INPUT_SCALE; rotate++) {
                double last = 1;
                for (uint32_t k = 2; k <= 4; k++) {
                    fill_item(&p, k, axis, (pleach_rotate)rotate);
                    result r = run(&p, &DEFAULT, 2);
                    for (size_t i = 0; i < 64 * 512; i++)
                        assert_true(zeros ? r.q[i] == 0 : isfinite(r.q[i]));
                    assert_true(isfinite(r.coded.feedback.plain[0]));
                    double now = zeros ? 0 : r.coded.feedback.plain[0] / r.coded.feedback.plain[1];
                    if (now > last) fail_msg("axis %u rotate %d k %u: %g after %g, %s", axis, rotate,
                                             k, now, last,
                                             pl_feedback_state_text(r.coded.feedback.inputs));
                    last = now;
                    drop_result(&r);
                }
            }
        }
    }
    drop_problem(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipe),
        cmocka_unit_test(test_folded_gain),
        cmocka_unit_test(test_theory),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_hard_statistics),
        cmocka_unit_test(test_two_sided),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_hard_rows),
    };
    return cmocka_run_group_tests(tests, make_scratch, drop_scratch);
}
