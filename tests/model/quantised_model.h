/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of quantised models share: a work folder for the whole program, logits, and how far
 * apart they are. */
#ifndef PLEACH_TESTS_MODEL_QUANTISED_MODEL_H
#define PLEACH_TESTS_MODEL_QUANTISED_MODEL_H

#include "support.h"

static folder work;

/* A path in the work folder, good for the eight calls that follow. */
static inline const char *in_work(const char *name)
{
    static char paths[9][512];
    static int next;
    char *path = paths[next++ % 9];
    snprintf(path, sizeof paths[0], "%s/%s", work.path, name);
    return path;
}

static inline int set_up(void **state)
{
    (void)state;
    work = make_folder();
    return 0;
}

static inline int tear_down(void **state)
{
    (void)state;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", work.path);
    return system(command);
}

/* RMS of y - x over the standard deviation of x. These models are random and their logits large, so
 * that this says more than a KL would. */
static inline double distance(const float *x, const float *y, size_t n)
{
    double sum = 0, squares = 0, error = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)y[i] - x[i];
        sum += x[i];
        squares += (double)x[i] * x[i];
        error += d * d;
    }
    double mean = sum / (double)n;
    return sqrt(error / (double)n / (squares / (double)n - mean * mean));
}

static inline float *logits_of(const char *path, const golden *g)
{
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_F32, 2);
    pleach_session *s = open_session(m, "f32", 512);
    float *logits = pl_alloc(g->n * g->vocab, sizeof *logits);
    must(pleach_session_feed_all(s, g->ids, g->n, 0, logits, &err));
    pleach_session_close(s);
    pleach_model_close(m);
    return logits;
}

#endif
