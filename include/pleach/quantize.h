/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantiser: a checkpoint in, a packed checkpoint out. */
#ifndef PLEACH_QUANTIZE_H
#define PLEACH_QUANTIZE_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"
#include "trellis.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pleach_rotate {
    PLEACH_ROTATE_NONE = 0,
    PLEACH_ROTATE_INPUT = 1,        /* input side alone */
    PLEACH_ROTATE_BOTH = 2,         /* input and output */
    PLEACH_ROTATE_INPUT_SCALE = 3,  /* input side, and an output scale vector */
    PLEACH_ROTATE_FOLD = 4          /* no rotation at run time: norm gains and one rotation of the
                                       residual stream go into the weights; unties a tied head */
} pleach_rotate;

typedef struct pleach_quantize_progress {
    const char *stage;               /* "text", "forward", "backward": calibration; "coding";
                                        "evaluation" of report_text */
    double share;                    /* of that, 0 to 1 */
    const char *tensor;              /* the one in work */
    uint64_t done, total;            /* weights */
    double seconds, seconds_left;    /* seconds_left < 0: not known yet */
    double weights_per_second;
} pleach_quantize_progress;
/* Non-zero return stops; what is done is kept for resuming. */
typedef int pleach_quantize_progress_fn(void *user, const pleach_quantize_progress *p);

/* Told once, when all that is cheap to check is checked and before the work begins. */
typedef void pleach_quantize_promise_fn(void *user, uint64_t peak_memory);

typedef struct pleach_quantize_settings {
    uint32_t bits;         /* 2, 3 or 4 for linear layers inside blocks; default 3 */
    /* Bits module by module instead; docs/quantize.md, "Budget". */
    double budget;         /* at most so many bits a weight over block matrices, scales and padding
                              counted; 0 (default): none */
    uint64_t budget_file;  /* at most so many bytes in the files of weights; 0 (default): none */
    const char *plan;      /* a plan file that says it; NULL (default): none. Not with a budget */
    const char *const *bits_for; /* "PATTERN=k", shell patterns of modules; the last that matches
                                    counts, over everything above */
    size_t n_bits_for;
    int axis;              /* 0 or 1; -1: the default, which measured better; with
                              PLEACH_ROTATE_FOLD the side that the rotation reaches */
    uint32_t state_bits;   /* 12 (default) or 16 */
    uint32_t embed_bits;   /* 4 or 8 (default): affine; 16: kept */
    uint32_t head_bits;    /* the same for an untied output head; default 8 */
    pleach_rotate rotate;  /* default: what measured better */
    uint64_t seed;         /* of the rotations; default 2, which measured better */
    /* Calibration; docs/quantize.md. */
    const char *calib;     /* a text or JSONL file; "self": text that the model writes; "none" */
    size_t calib_tokens;   /* at most; default 20480 */
    const char *statistics; /* folder that keeps what calibration found, for other runs; NULL
                               (default): in the work folder, and gone with it */
    uint64_t memory;       /* bytes that the run may use; 0 (default): what it likes */
    int fisher;            /* 1 (default): statistics weighted by loss too (a backward pass) */
    /* Error feedback, when there are statistics. */
    int two_sided;         /* 1: by the output's statistics too; needs fisher, a text, axis 0 */
    double damping;        /* of input statistics, in means of the diagonal */
    double output_damping; /* of output statistics */
    int sweeps;            /* axis 1: sweeps of coordinate descent after coding */
    double output_weighting; /* with fisher, how far an output's share of the loss goes into its
                              output scale: 0 not at all, 1 wholly */
    int refine;            /* passes over the calibration text that fit the scales to the source's
                              predictions after coding; 0 (default): none */
    const char *const *keep; /* shell patterns of modules to keep as they are */
    size_t n_keep;
    const char *report_text; /* a file: the report scores the result on it against the source;
                                NULL (default): no figures */
    int threads;           /* 0: all cores this process may use (default) */
    const char *cpu;       /* NULL: best (default) */
    pleach_trellis_search encode; /* how hard to look for each block's path; default
                                     PLEACH_SEARCH_NORMAL */
    int force;             /* 1: replace an existing output */
    int discard_partial;   /* 1: start over where partial work of other settings lies in the way */
    pleach_quantize_progress_fn *progress; /* may be NULL */
    pleach_quantize_promise_fn *promise;   /* the summary's peak_memory, ahead of it; may be NULL */
    void *user;
    const char *device;    /* who codes: NULL or "cpu" (default), "cuda", "cuda:1"; docs/quantize.md,
                              "On a GPU" */
    unsigned char reserved[48];
} pleach_quantize_settings;

PLEACH_API void pleach_quantize_settings_defaults(pleach_quantize_settings *s);

/* One tensor of the plan. */
typedef struct pleach_quantize_item {
    char name[200];
    const char *coding;        /* "trellis", "affine", "dense"; static storage */
    uint64_t out, in, bytes;   /* of the result, all parts */
    double bits;               /* bits a weight, scales and padding counted */
    uint32_t k, state_bits, block, axis;
    int block_matrix;
    double predicted_loss;     /* what a budget was spent by; 0 when there was none */
    /* After coding; 0 in a plan. */
    double relative_error;     /* |W-Q|^2 / |W|^2 */
    double proxy_loss;         /* tr(E H E^T) / tr(W H W^T); 0 without statistics */
    double damping;            /* of the error feedback; 0 when there was none */
    char fallback[160];        /* why there was none, or not as asked for; "" otherwise */
} pleach_quantize_item;

/* What quantising would make, or has made. */
typedef struct pleach_quantize_summary {
    uint64_t weights, bytes, block_weights, block_bytes;
    double bits, block_bits;        /* bits a weight: whole file, block matrices */
    uint64_t peak_memory;           /* bytes, an upper bound */
    double relative_error;          /* mean over block matrices of |W-Q|^2/|W|^2; 0 in a plan */
    int refined;                    /* passes of refining whose result was kept */
    double refine_before, refine_after; /* KL of held-out text before and after; 0 without refining */
    int evaluated;                  /* 1: report_text was scored now, against the source */
    double kl, perplexity, same_top; /* as in pleach_eval_result; 0 when it was not */
    size_t resumed;                 /* tensors taken over from an interrupted run */
    double seconds;
    size_t n_items;
    pleach_quantize_item *items;    /* freed by pleach_quantize_summary_free */
    size_t n_warnings;
    char (*warnings)[256];          /* a line each; freed likewise */
} pleach_quantize_summary;
PLEACH_API void pleach_quantize_summary_free(pleach_quantize_summary *s);

/* The plan alone: reads headers, and with a budget the weights, and the statistics if they are there
 * already; writes nothing. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_quantize_plan(
    const char *source, const pleach_quantize_settings *settings, pleach_quantize_summary *summary,
    pleach_error *err);

/* Quantises `source` (folder or GGUF) into the new folder `out`, tensor by tensor. Work in progress
 * lies in "OUT.partial" and is resumed by the next call with the same source, settings and version;
 * with others it is refused (PLEACH_ERR_MISMATCH names the field). `out` appears only when whole; an
 * existing one is PLEACH_ERR_EXISTS unless `force`. summary may be NULL. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_quantize(const char *source, const char *out,
                                                           const pleach_quantize_settings *settings,
                                                           pleach_quantize_summary *summary,
                                                           pleach_error *err);

/* Writes the bits of a summary's modules as a plan file, to be edited and given back. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_quantize_save_plan(
    const pleach_quantize_summary *summary, const char *path, pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
