/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing a backend, and the one that is this processor. */
#include "backend.h"

#include <string.h>

#include "base/memory.h"
#include "family.h"

typedef struct processor {
    pl_backend base;
    const pl_transformer *t;
    const pl_compute *c;
} processor;

static void processor_close(pl_backend *b)
{
    pl_free(b);
}

/* Memory grows as tokens come, and the system says when it ends. */
static pleach_status processor_check(pl_backend *b, const pl_cache *cache, size_t batch,
                                     pleach_error *err)
{
    (void)b, (void)cache, (void)batch, (void)err;
    return PLEACH_OK;
}

static pleach_status processor_workspace_open(pl_backend *b, const pl_cache *cache, size_t batch,
                                              void **out, pleach_error *err)
{
    const processor *p = (processor *)b;
    (void)cache;
    return pl_workspace_open(p->t, p->c, batch, (pl_workspace **)out, err);
}

static void processor_workspace_close(pl_backend *b, void *workspace)
{
    (void)b;
    pl_workspace_close(workspace);
}

static pleach_status processor_run(pl_backend *b, void *workspace, const pl_pass *p,
                                   pleach_error *err)
{
    const processor *me = (processor *)b;
    if (p->apart)
        return pl_transformer_step(me->c, workspace, p->caches, p->ids, p->n, p->logits, err);
    return pl_transformer_forward(me->t, me->c, workspace, p->caches[0], p->ids, p->n, p->first,
                                  p->logits, p->hidden, err);
}

static const pl_backend_functions processor_functions = {
    .close = processor_close,
    .check_memory = processor_check,
    .workspace_open = processor_workspace_open,
    .workspace_close = processor_workspace_close,
    .run = processor_run,
};

static pleach_status processor_open(const pl_transformer *t, const pl_compute *c, pl_backend **out,
                                    pleach_error *err)
{
    processor *p = pl_calloc(1, sizeof *p);
    if (!p) return pl_fail_memory(err, "model", sizeof *p);
    *p = (processor){.base = {.f = &processor_functions, .device = "cpu", .name = "",
                              .gives_hidden = true},
                     .t = t,
                     .c = c};
    *out = &p->base;
    return PLEACH_OK;
}

pleach_status pl_backend_open(const pl_transformer *t, const pl_compute *c, const char *device,
                              bool batch_invariant, pl_backend **out, pleach_error *err)
{
    *out = NULL;
    if (!device || strcmp(device, "cpu") == 0) return processor_open(t, c, out, err);
    PL_FAIL_IF(strncmp(device, "cuda", 4) != 0, err, PLEACH_ERR_ARGUMENT,
               "unknown device '%s': expected cpu, cuda or cuda:N", device);
    PL_FAIL_IF(c->arith != PLEACH_ARITH_INT16, err, PLEACH_ERR_UNSUPPORTED,
               "device %s: arithmetic %s is the processor's: expected the default", device,
               pleach_arith_name(c->arith));
#ifdef PLEACH_CUDA
    PL_FAIL_IF(!t->family->cuda, err, PLEACH_ERR_UNSUPPORTED,
               "device %s: %s models run on the processor alone", device, t->config->arch_name);
    return pl_cuda_backend_open(t, c, device, batch_invariant, out, err);
#else
    (void)batch_invariant;
    return pl_fail(err, PLEACH_ERR_UNSUPPORTED,
                   "device %s: this build has no CUDA: it was made without -DPLEACH_CUDA=ON",
                   device);
#endif
}

void pl_backend_close(pl_backend *b)
{
    if (b) b->f->close(b);
}
