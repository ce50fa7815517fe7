/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules are handed out in order, linear layers first, so that the speed shown early is one that
 * lasts. A module is finished under a lock: written, counted, reported. After a failure no further
 * module is started, but those in work go on, so that the first failure in order is found whatever
 * the timing; after a stop they are dropped. */
#include "parts.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/threads.h"

#define ERROR_TENSOR "squared error and power" /* of a part file, beside the module's tensors */
#define FEEDBACK_TENSOR "error feedback"

#define SHARED_MEMORY ((uint64_t)1 << 30) /* that several modules in work may take together */
#define BESIDE_DEVICE ((uint64_t)8 << 30) /* the same where a device codes */

enum { MOST_BESIDE_DEVICE = 4 }; /* one is read or measured while three are coded */

/* ---- files ---------------------------------------------------------------------------------- */

bool pl_part_is_output(const pl_tensor *t)
{
    return strcmp(t->name, ERROR_TENSOR) != 0 && strcmp(t->name, FEEDBACK_TENSOR) != 0;
}

static bool same_tensor(const pl_tensor *a, const pl_tensor *b)
{
    return a && b && a->type == b->type && a->n_dims == b->n_dims &&
           !memcmp(a->shape, b->shape, a->n_dims * sizeof *a->shape);
}

static pl_tensor number_tensor(const char *name, size_t n)
{
    return (pl_tensor){.name = name, .type = PL_F64, .n_dims = 1, .shape = {n},
                       .n_bytes = n * sizeof(double)};
}

/* *out: a finished part that holds what the plan asks for, or NULL: then the module is coded again. */
static pleach_status open_part(const pl_plan_item *item, const char *path, pl_safetensors **out,
                               pleach_error *err)
{
    pl_safetensors *part = NULL;
    pl_item_tensors want;
    *out = NULL;
    pleach_status status = pl_exists(path) ? pl_safetensors_open(path, &part, err) : PLEACH_OK;
    if (!part) return status == PLEACH_ERR_MEMORY ? status : PLEACH_OK;
    char name[192];
    snprintf(name, sizeof name, "%s.scales", item->module.name);
    const pl_tensor *scales = pl_safetensors_find(part, name);
    bool bf16 = scales && scales->type == PL_BF16 && item->coding == PL_CODING_AFFINE;
    pl_item_tensors_get(item, bf16 ? PL_BF16 : PL_F16, &want);
    const pl_tensor error = number_tensor(ERROR_TENSOR, 2);
    const pl_tensor feedback = number_tensor(FEEDBACK_TENSOR, PL_FEEDBACK_NUMBERS);
    bool whole = pl_safetensors_count(part) == want.n + 2 &&
                 same_tensor(pl_safetensors_find(part, ERROR_TENSOR), &error) &&
                 same_tensor(pl_safetensors_find(part, FEEDBACK_TENSOR), &feedback);
    for (size_t i = 0; whole && i < want.n; i++)
        whole = same_tensor(pl_safetensors_find(part, want.name[i]), &want.tensor[i]);
    if (whole)
        *out = part;
    else
        pl_safetensors_close(part);
    return PLEACH_OK;
}

static pleach_status write_part(const pl_coded *coded, const char *path, pleach_error *err)
{
    pl_tensor tensors[5];
    const size_t n = coded->tensors.n;
    double error[2] = {coded->error, coded->power}, feedback[PL_FEEDBACK_NUMBERS];
    const void *data[5] = {coded->data[0], coded->data[1], coded->data[2]};
    pl_safetensors_writer *w = NULL;
    pl_feedback_report_put(&coded->feedback, feedback);
    memcpy(tensors, coded->tensors.tensor, n * sizeof *tensors);
    tensors[n] = number_tensor(ERROR_TENSOR, 2);
    tensors[n + 1] = number_tensor(FEEDBACK_TENSOR, PL_FEEDBACK_NUMBERS);
    data[n] = error;
    data[n + 1] = feedback;
    PL_TRY(pl_safetensors_create(path, tensors, n + 2, &w, err));
    pleach_status status = PLEACH_OK;
    for (size_t i = 0; status == PLEACH_OK && i < n + 2; i++)
        status = pl_safetensors_append(w, data[i], tensors[i].n_bytes, err);
    if (status == PLEACH_OK) return pl_safetensors_commit(w, err);
    pl_safetensors_discard(w);
    return status;
}

void pl_part_error(const pl_parts *p, size_t i, double error[2])
{
    memcpy(error, pl_safetensors_find(p->files[i], ERROR_TENSOR)->data, 2 * sizeof *error);
}

void pl_part_feedback(const pl_parts *p, size_t i, pl_feedback_report *report)
{
    double numbers[PL_FEEDBACK_NUMBERS];
    memcpy(numbers, pl_safetensors_find(p->files[i], FEEDBACK_TENSOR)->data, sizeof numbers);
    pl_feedback_report_get(report, numbers);
}

/* ---- finding -------------------------------------------------------------------------------- */

static uint64_t item_weights(const pl_plan_item *item)
{
    return item->module.out * item->module.in;
}

pleach_status pl_parts_find(pl_parts *p, pleach_error *err)
{
    const pl_plan *plan = p->plan;
    p->files = pl_calloc(plan->n_items, sizeof *p->files);
    if (!p->files) return pl_fail_memory(err, "the list of parts", plan->n_items);
    for (size_t i = 0; i < plan->n_items; i++) {
        const pl_plan_item *item = &plan->items[i];
        if (item->coding == PL_CODING_DENSE) continue;
        char *path = pl_job_part_path(p->job, item->module.name, err);
        if (!path) return PLEACH_ERR_MEMORY;
        pleach_status status = open_part(item, path, &p->files[i], err);
        pl_free(path);
        if (status != PLEACH_OK) return status;
        if (!p->files[i]) continue;
        p->resumed++;
        p->resumed_weights += item_weights(item);
    }
    return PLEACH_OK;
}

void pl_parts_close(pl_parts *p)
{
    for (size_t i = 0; p->files && i < p->plan->n_items; i++) pl_safetensors_close(p->files[i]);
    pl_free(p->files);
    p->files = NULL;
}

/* ---- making --------------------------------------------------------------------------------- */

typedef struct worker worker;

typedef struct pool {
    pl_parts *parts;
    worker *workers;
    int n_workers;
    pthread_mutex_t lock; /* of all that follows, of the workers' shares and of finishing */
    bool linear;          /* which modules are in work */
    size_t next;          /* item to look at */
    uint64_t done;        /* weights of finished modules */
    bool stopped;         /* by the progress call */
    size_t failed;        /* item of `error`; SIZE_MAX: none */
    pleach_status status;
    pleach_error error;
} pool;

struct worker {
    pool *pool;
    pl_coder coder;
    const pl_plan_item *item; /* in work, or NULL */
    uint64_t share;           /* weights of it that are done */
    pthread_t thread;
};

/* With the lock held. */
static int report(pool *p, const pl_plan_item *item)
{
    uint64_t done = p->done;
    for (int i = 0; i < p->n_workers; i++) done += p->workers[i].share;
    if (!p->stopped && p->parts->progress(p->parts->user, item->module.name, done))
        p->stopped = true;
    return p->stopped;
}

static int step(void *user, double share)
{
    worker *w = user;
    pthread_mutex_lock(&w->pool->lock);
    w->share = (uint64_t)(share * (double)item_weights(w->item));
    int stop = report(w->pool, w->item);
    pthread_mutex_unlock(&w->pool->lock);
    return stop;
}

static pleach_status stopped_error(const pool *p, pleach_error *err)
{
    return pl_fail(err, PLEACH_ERR_CANCELLED, "stopped; the work done so far is kept in %s",
                   p->parts->job->path->partial);
}

/* With the lock held: the next module that is still to be coded, or SIZE_MAX. */
static size_t take(pool *p, worker *w)
{
    const pl_plan *plan = p->parts->plan;
    w->share = 0;
    w->item = NULL;
    if (p->stopped || p->failed != SIZE_MAX) return SIZE_MAX;
    for (; p->next < plan->n_items; p->next++) {
        const pl_plan_item *item = &plan->items[p->next];
        if (item->coding == PL_CODING_DENSE || p->parts->files[p->next]) continue;
        if ((item->module.kind == PL_MODULE_LINEAR) != p->linear) continue;
        w->item = item;
        return p->next++;
    }
    return SIZE_MAX;
}

static pleach_status code(worker *w, pl_coded *coded, pleach_error *err)
{
    const pl_statistics *statistics = w->pool->parts->statistics;
    pl_module_statistics s = {0};
    if (!statistics) return pl_code_module(&w->coder, w->item, NULL, coded, err);
    PL_TRY(pl_statistics_get(statistics, &w->item->module, &s, err));
    pleach_status status = pl_code_module(&w->coder, w->item, &s, coded, err);
    pl_module_statistics_release(&s);
    return status;
}

/* With the lock held. */
static pleach_status finish(worker *w, size_t i, const pl_coded *coded, pleach_error *err)
{
    pool *p = w->pool;
    if (p->stopped) return stopped_error(p, err);
    char *path = pl_job_part_path(p->parts->job, w->item->module.name, err);
    if (!path) return PLEACH_ERR_MEMORY;
    pleach_status status = write_part(coded, path, err);
    if (status == PLEACH_OK) {
        p->done += item_weights(w->item);
        w->share = 0;
        status = open_part(w->item, path, &p->parts->files[i], err);
        if (status == PLEACH_OK && !p->parts->files[i])
            status = pl_fail(err, PLEACH_ERR_IO, "%s: not what was written there", path);
        else if (status == PLEACH_OK && report(p, w->item))
            status = stopped_error(p, err);
    }
    pl_free(path);
    return status;
}

static void *run_worker(void *user)
{
    worker *w = user;
    pool *p = w->pool;
    pl_coded coded;
    pthread_mutex_lock(&p->lock);
    for (size_t i; (i = take(p, w)) != SIZE_MAX;) {
        pleach_error error = {0};
        pthread_mutex_unlock(&p->lock);
        pleach_status status = code(w, &coded, &error);
        pthread_mutex_lock(&p->lock);
        if (status == PLEACH_OK) status = finish(w, i, &coded, &error);
        if (status == PLEACH_OK || i >= p->failed) continue;
        p->failed = i;
        p->status = status;
        p->error = error;
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* The calling thread is the first worker. Fewer threads than wanted do as well. */
static void run_workers(pool *p, int n)
{
    int started = 1;
    while (started < n &&
           !pthread_create(&p->workers[started].thread, NULL, run_worker, &p->workers[started]))
        started++;
    run_worker(&p->workers[0]);
    for (int i = 1; i < started; i++) pthread_join(p->workers[i].thread, NULL);
}

static pleach_status open_workers(pool *p, pleach_error *err)
{
    const pl_plan *plan = p->parts->plan;
    for (int i = 0; i < p->n_workers; i++) {
        worker *w = &p->workers[i];
        *w = (worker){.pool = p,
                      .coder = {.kernels = p->parts->kernels, .cpu = plan->settings.cpu,
                                .search = plan->settings.encode, .step = step,
                                .user = w, .feedback = plan->feedback,
                                .device = p->parts->device}};
        PL_TRY(pl_pool_open(plan->settings.threads / p->n_workers, &w->coder.pool, err));
        if (p->parts->device) pl_pool_lend(w->coder.pool, p->parts->device->products);
        PL_TRY(pl_coder_open(&w->coder, plan->items, plan->n_items, err));
    }
    return PLEACH_OK;
}

static pleach_status make_all(pool *p, pleach_error *err)
{
    PL_TRY(open_workers(p, err));
    p->linear = true;
    run_workers(p, p->n_workers);
    /* Embedding and head: one or two, each with all threads. */
    p->linear = false;
    p->next = 0;
    pl_pool *own = p->workers[0].coder.pool;
    p->workers[0].coder.pool = p->parts->plan->pool;
    run_workers(p, 1);
    p->workers[0].coder.pool = own;
    if (p->failed == SIZE_MAX) return PLEACH_OK;
    if (err) *err = p->error;
    return p->status;
}

pleach_status pl_parts_make(pl_parts *parts, pleach_error *err)
{
    pool p = {.parts = parts, .n_workers = parts->plan->at_once,
              .done = parts->resumed_weights, .failed = SIZE_MAX};
    p.workers = pl_calloc((size_t)p.n_workers, sizeof *p.workers);
    if (!p.workers) return pl_fail_memory(err, "the coders", (size_t)p.n_workers * sizeof(worker));
    pthread_mutex_init(&p.lock, NULL);
    pleach_status status = make_all(&p, err);
    pthread_mutex_destroy(&p.lock);
    for (int i = 0; i < p.n_workers; i++) {
        pl_coder_close(&p.workers[i].coder);
        pl_pool_close(p.workers[i].coder.pool);
    }
    pl_free(p.workers);
    return status;
}

int pl_parts_at_once(const pl_plan *plan)
{
    uint64_t one = pl_coder_memory(plan->items, plan->n_items, &plan->feedback), linear = 0;
    for (size_t i = 0; i < plan->n_items; i++)
        linear += plan->items[i].module.kind == PL_MODULE_LINEAR;
    bool here = !plan->settings.device || strcmp(plan->settings.device, "cpu") == 0;
    uint64_t most = PL_MIN((here ? SHARED_MEMORY : BESIDE_DEVICE) / one, linear);
    uint64_t allowed = plan->settings.memory;
    if (!here) most = PL_MIN(most, MOST_BESIDE_DEVICE);
    if (allowed)
        most = PL_MIN(most, (allowed - PL_MIN(allowed, PL_FIXED_MEMORY)) / plan->module_memory);
    return (int)PL_MIN(PL_MAX(most, 1), (uint64_t)plan->settings.threads);
}
