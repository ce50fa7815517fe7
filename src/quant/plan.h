/* SPDX-License-Identifier: Apache-2.0
 *
 * What quantising a checkpoint will make: a coding for every module, and the tensors that are
 * carried over. Reads headers alone. */
#ifndef PL_QUANT_PLAN_H
#define PL_QUANT_PLAN_H

#include "base/pool.h"
#include "feedback.h"
#include "fold.h"
#include "format/checkpoint.h"
#include "pleach/quantize.h"

/* Modules with fewer coded numbers than this stay dense: no block is shorter. */
#define PL_TRELLIS_MIN_WIDTH 32

#define PL_FIXED_MEMORY ((uint64_t)96 << 20) /* code, libraries, tokenizer, small buffers */

typedef struct pl_plan_item {
    pl_module module;
    pl_weight source;
    pl_coding coding;
    /* Trellis. `width` is the coded width before padding. */
    pleach_trellis trellis;
    uint64_t width;
    pl_rotation rotate_in, rotate_out;
    bool output_scale;
    double output_weighting; /* see pl_load_rotated */
    /* The whole model is folded: these rotations are of any coding, and none is left for run time. */
    bool folded;
    const float *gain; /* [in] folded into the inputs, or NULL; the plan's */
    bool bits_fixed; /* by a pattern: no budget changes it */
    double loss[3];  /* expected at k = 2, 3, 4; 0 where no budget asked (budget.h) */
    /* Affine. */
    uint32_t bits, group_size;
    /* Dense: kept; the type it is stored in. */
    pl_dtype type;
    uint64_t bytes; /* of all its tensors in the result */
} pl_plan_item;

typedef struct pl_plan {
    const pleach_checkpoint *source;
    const pl_config *config;
    pleach_quantize_settings settings; /* checked, defaults filled in */
    pl_feedback_settings feedback;     /* what they mean for error feedback */
    pl_pool *pool;                     /* of the settings' threads */
    pl_fold fold;                      /* zeroed unless asked for */
    bool untied;                       /* the last item is a head that the source lacks */
    pl_plan_item *items;               /* modules, in the config's order */
    size_t n_items;
    const pl_tensor **carried;         /* norms, biases and the like, as they are written */
    size_t n_carried;
    uint64_t weights, bytes, block_weights, block_bytes;
    uint64_t part_bytes;               /* of the modules that are coded */
    uint64_t module_memory;            /* for each that is coded at once */
    int at_once;                       /* how many that are */
    uint64_t peak_memory;
} pl_plan;

pleach_status pl_plan_open(pl_plan *plan, const pleach_checkpoint *source,
                           const pleach_quantize_settings *settings, pleach_error *err);
void pl_plan_close(pl_plan *plan); /* accepts a zeroed one */
/* Sums up weights and bytes again, after items have changed. */
void pl_plan_total(pl_plan *plan);

/* The tensors that hold a coded module: names, types, shapes and sizes, without data. */
typedef struct pl_item_tensors {
    size_t n;
    pl_tensor tensor[3];
    char name[3][192];
} pl_item_tensors;
/* scale_type: of an affine module's scales and biases, PL_F16 or PL_BF16. */
void pl_item_tensors_get(const pl_plan_item *item, pl_dtype scale_type, pl_item_tensors *out);

/* Sets item->bytes by those tensors. */
void pl_item_size(pl_plan_item *item);

/* The type a tensor is kept in: its own when it is a plain one, F16 for blocks of a GGUF file. */
pl_dtype pl_kept_type(const pl_tensor *t);

/* A module inside a transformer block: what bits a weight are counted for. */
static inline bool pl_item_in_block(const pl_plan_item *item)
{
    return item->module.kind == PL_MODULE_LINEAR;
}

#endif
