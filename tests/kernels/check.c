/* SPDX-License-Identifier: Apache-2.0
 *
 * check-kernels: the frame that check.h describes, and its command line.
 *
 *   check-kernels [--cpu LEVEL | --device cuda[:N]] [--seed N] [--bench] [--quick] [--list] [NAME...]
 *
 * Without either every CPU level of this machine runs. A NAME keeps the tests whose name contains it.
 * --quick makes an eighth of the rounds, for emulators. Exits with 0, 1 after a failure, 2 for a
 * wrong command line, 77 when the machine lacks LEVEL or the device. */
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/half.h"
#include "base/random.h"
#ifdef PLEACH_CUDA
#include "cuda/check_cuda.h"
#endif

static const struct {
    const char *name;
    check_family_fn *run;
} families[] = {
    {"rotate", check_rotate},
    {"viterbi", check_viterbi},
    {"product", check_product},
    {"trellis", check_trellis},
    {"float", check_float},
    {"vector", check_vector},
    {"attention", check_attention},
    {"turboquant", check_turboquant},
    {"packed", check_packed},
    {"delta", check_delta},
};

static const char *const levels[] = {"c", "avx2", "avx512", "avx512bf16", "neon", "dotprod"};

enum { GUARD = 128, BUFFERS = 64, GUARD_BYTE = 0xa5 };

typedef struct guarded {
    uint8_t *base, *data;
    size_t bytes, total;
} guarded;

struct check {
    uint64_t seed, state;
    bool bench, quick, list;
    char **filters;
    int n_filters;
    const char *level;
    char name[96];
    char rate[256];
    bool good;
    guarded buffers[BUFFERS];
    int n_buffers;
    int passed, failed;
};

/* ---- random numbers ------------------------------------------------------------------------ */

uint64_t check_rnd(check *t)
{
    return pl_random_next(&t->state);
}

uint32_t check_below(check *t, uint32_t n)
{
    return (uint32_t)(check_rnd(t) % n);
}

double check_unit(check *t)
{
    return pl_random_unit(&t->state);
}

double check_normal(check *t)
{
    double r = sqrt(-2 * log(1 - check_unit(t)));
    return r * cos(6.283185307179586 * check_unit(t));
}

void check_fill(check *t, void *p, size_t bytes)
{
    uint8_t *b = p;
    uint32_t kind = check_below(t, 8);
    if (kind < 3)
        memset(p, kind == 0 ? 0xff : 0, bytes);
    else
        for (size_t i = 0; i < bytes; i++) b[i] = (uint8_t)check_rnd(t);
    if (kind == 2 && bytes) b[check_rnd(t) % bytes] = (uint8_t)(1 << check_below(t, 8));
}

void check_fill_f32(check *t, float *p, size_t n)
{
    uint32_t kind = check_below(t, 10);
    for (size_t i = 0; i < n; i++) {
        float x = (float)check_normal(t);
        switch (kind) {
        case 0:
            x = 0;
            break;
        case 1:
            x = x < 0 ? -0.0f : 0.0f;
            break;
        case 2:
            x *= 1e-40f;
            break;
        case 3:
            x = i & 1 ? -1e18f : 1e18f;
            break;
        case 4:
            x *= 1e-3f;
            break;
        }
        p[i] = x;
    }
    if (kind == 4 && n) p[check_rnd(t) % n] = 1e4f;
}

/* ---- buffers --------------------------------------------------------------------------------- */

void *check_buffer(check *t, size_t bytes, size_t align)
{
    if (t->n_buffers == BUFFERS) {
        fprintf(stderr, "check: more than %d buffers in %s\n", BUFFERS, t->name);
        abort();
    }
    guarded *g = &t->buffers[t->n_buffers++];
    g->bytes = bytes;
    g->total = bytes + 2 * GUARD + 128;
    g->base = malloc(g->total);
    if (!g->base) abort();
    memset(g->base, GUARD_BYTE, g->total);
    g->data = g->base + GUARD;
    g->data += -(uintptr_t)g->data & 63;
    g->data += align * check_below(t, (uint32_t)(64 / align));
    for (size_t i = 0; i < bytes; i++) g->data[i] = (uint8_t)check_rnd(t);
    return g->data;
}

uint8_t *check_fenced(check *t, size_t bytes)
{
    static uint8_t *map;
    const size_t size = 1 << 20;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!map) {
        map = mmap(NULL, size + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || mprotect(map + page, size, PROT_READ | PROT_WRITE) != 0) abort();
    }
    if (bytes > size) abort();
    return map + page + (check_below(t, 2) ? 0 : size - bytes);
}

static void check_guards(check *t)
{
    for (int i = 0; i < t->n_buffers; i++) {
        const guarded *g = &t->buffers[i];
        for (const uint8_t *p = g->base; p < g->base + g->total; p++) {
            if (p == g->data) p += g->bytes;
            if (p < g->base + g->total && *p != GUARD_BYTE) {
                check_fail(t, "buffer %d of %zu bytes: byte %td outside it was overwritten", i,
                           g->bytes, p - g->data);
                return;
            }
        }
    }
}

void check_release(check *t)
{
    check_guards(t);
    for (int i = 0; i < t->n_buffers; i++) free(t->buffers[i].base);
    t->n_buffers = 0;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

void check_fail(check *t, const char *fmt, ...)
{
    if (!t->good) return;
    t->good = false;
    va_list args;
    va_start(args, fmt);
    printf("%-7s %-32s FAILED (seed %llu): ", t->level, t->name, (unsigned long long)t->seed);
    vprintf(fmt, args);
    printf("\n");
    va_end(args);
}

bool check_same(check *t, const void *got, const void *want, size_t bytes)
{
    const uint8_t *a = got, *b = want;
    check_guards(t);
    for (size_t i = 0; i < bytes; i++)
        if (a[i] != b[i]) {
            check_fail(t, "byte %zu of %zu is %02x, expected %02x", i, bytes, a[i], b[i]);
            break;
        }
    return t->good;
}

bool check_close(check *t, const float *got, const double *want, const double *bound, size_t n)
{
    check_guards(t);
    for (size_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= bound[i])) {
            check_fail(t, "number %zu of %zu is %.9g, expected %.9g within %.3g", i, n, got[i],
                       want[i], bound[i]);
            break;
        }
    return t->good;
}

bool check_round(const check *t, int round, int rounds)
{
    return t->good && round < (t->quick ? (rounds + 7) / 8 : rounds);
}

bool check_good(const check *t)
{
    return t->good;
}

bool check_is_reference(const check *t)
{
    return strcmp(t->level, "c") == 0;
}

bool check_benches(const check *t)
{
    return t->bench && t->good;
}

/* A test's random numbers depend on the seed and its name alone, so that a filter does not change
 * them. */
static uint64_t seed_of_test(const check *t)
{
    uint64_t h = t->seed;
    for (const char *p = t->name; *p; p++) h = pl_mix64(h ^ (uint8_t)*p);
    return h;
}

bool check_begin(check *t, bool improved, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->name, sizeof t->name, fmt, args);
    va_end(args);
    bool wanted = t->n_filters == 0;
    for (int i = 0; i < t->n_filters; i++) wanted |= strstr(t->name, t->filters[i]) != NULL;
    if (!wanted || !(improved || check_is_reference(t))) return false;
    if (t->list) {
        printf("%-7s %s\n", t->level, t->name);
        return false;
    }
    t->state = seed_of_test(t);
    t->good = true;
    t->rate[0] = 0;
    return true;
}

void check_end(check *t)
{
    check_release(t);
    if (t->good) printf("%-7s %-32s ok %s\n", t->level, t->name, t->rate);
    fflush(stdout);
    t->passed += t->good;
    t->failed += !t->good;
}

/* ---- speed ----------------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

bool check_benching(const check *t)
{
    return t->bench && t->good;
}

void check_note(check *t, const char *fmt, ...)
{
    size_t used = strlen(t->rate);
    va_list args;
    va_start(args, fmt);
    vsnprintf(t->rate + used, sizeof t->rate - used, fmt, args);
    va_end(args);
}

check_timer check_timer_start(check *t, double units, const char *label)
{
    return (check_timer){.t = t, .units = units, .label = label, .best = INFINITY, .runs = -1};
}

bool check_timer_next(check_timer *timer)
{
    check *t = timer->t;
    if (!check_benching(t)) return false;
    double now = seconds();
    if (timer->runs < 0)
        timer->deadline = now + 0.5;
    else
        timer->best = fmin(timer->best, now - timer->begun);
    if (++timer->runs >= 5 && now > timer->deadline) {
        check_note(t, " %10.3f %s", timer->units / timer->best, timer->label);
        return false;
    }
    timer->begun = seconds();
    return true;
}

/* ---- command line ---------------------------------------------------------------------------- */

static void run_level(check *t, const char *level, unsigned flags)
{
    pl_kernels c, isa;
    pl_kernels_init(&c, PL_CPU_C);
    pl_kernels_init(&isa, flags);
    t->level = level;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) families[i].run(t, &c, &isa);
}

static void run_cpu(check *t, const char *only, int *ran)
{
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
        unsigned flags;
        if ((only && strcmp(only, levels[i])) || pl_cpu_level(levels[i], &flags)) continue;
        run_level(t, levels[i], flags);
        ++*ran;
    }
    if (!*ran) printf("skipped: this machine has no level \"%s\"\n", only);
}

static void run_device(check *t, const char *name, int *ran)
{
#ifdef PLEACH_CUDA
    pleach_error err;
    pl_cuda *d;
    if (pl_cuda_open(name, &d, &err) != PLEACH_OK) {
        printf("skipped: %s\n", err.message);
        return;
    }
    pl_kernels c;
    pl_kernels_init(&c, PL_CPU_C);
    t->level = name;
    check_cuda(t, &c, d);
    pl_cuda_close(d);
    ++*ran;
#else
    (void)t;
    (void)ran;
    printf("skipped: %s: built without -DPLEACH_CUDA=ON\n", name);
#endif
}

static int usage(FILE *out)
{
    fprintf(out, "check-kernels [--cpu LEVEL | --device cuda[:N]] [--seed N] [--bench] [--quick] "
                 "[--list] [NAME...]\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv)
{
    const char *only = NULL, *device = NULL;
    check t = {.seed = (uint64_t)time(NULL), .filters = argv + 1};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0)
            return usage(stdout);
        else if (strcmp(argv[i], "--bench") == 0)
            t.bench = true;
        else if (strcmp(argv[i], "--quick") == 0)
            t.quick = true;
        else if (strcmp(argv[i], "--list") == 0)
            t.list = true;
        else if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc)
            only = argv[++i];
        else if (strcmp(argv[i], "--device") == 0 && i + 1 < argc)
            device = argv[++i];
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            t.seed = strtoull(argv[++i], NULL, 10);
        else if (argv[i][0] == '-')
            return usage(stderr);
        else
            t.filters[t.n_filters++] = argv[i];
    }
    if (!t.list) printf("seed %llu\n", (unsigned long long)t.seed);
    int ran = 0;
    if (device)
        run_device(&t, device, &ran);
    else
        run_cpu(&t, only, &ran);
    if (!ran) return 77;
    if (!t.list) printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
