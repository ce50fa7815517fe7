/* SPDX-License-Identifier: Apache-2.0
 *
 * A model on disk: a Hugging Face folder (packed by Pleach or not) or a GGUF file. Looking into
 * it, checking it, and writing it out again as plain bf16. */
#ifndef PLEACH_CHECKPOINT_H
#define PLEACH_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pleach_checkpoint pleach_checkpoint;

/* Opens and checks the structure of everything: headers, offsets, shards, types. Tensor data is
 * mapped, not read. *out is NULL on failure. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_open(const char *path,
                                                                  pleach_checkpoint **out,
                                                                  pleach_error *err);
PLEACH_API void pleach_checkpoint_close(pleach_checkpoint *c); /* accepts NULL */

/* One weight or other tensor of the model, as stored. Strings live as long as the checkpoint. */
typedef struct pleach_tensor_info {
    const char *name;     /* in the Hugging Face name space, also for GGUF */
    const char *coding;   /* "dense", "affine" or "trellis" */
    const char *type;     /* element type as stored: "BF16", "Q4_1", "U32", ... */
    uint32_t n_dims;      /* of the matrix it stands for */
    uint64_t shape[4];    /* outermost first; [out][in] for a weight */
    uint64_t bytes;       /* all its parts: codes, scales, biases, output scale */
    double bits;          /* bits a weight, all parts and padding counted */
    /* Trellis alone; zero otherwise. */
    uint32_t k, state_bits, block, axis, interleaved;
    uint64_t padded;      /* coded width with padding */
    uint32_t rotate_in, rotate_out; /* Hadamard block, 0 for none */
    /* Smallest and largest scale; zero when there are none. */
    float scale_min, scale_max;
    int block_matrix; /* 1 for a linear layer inside a transformer block */
} pleach_tensor_info;

PLEACH_API size_t pleach_checkpoint_count(const pleach_checkpoint *c);
/* Fills in *info for tensor i < count. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_tensor(const pleach_checkpoint *c,
                                                                    size_t i,
                                                                    pleach_tensor_info *info,
                                                                    pleach_error *err);

/* Totals of the whole model. */
typedef struct pleach_checkpoint_totals {
    uint64_t weights, bytes;             /* all tensors; tied weights counted once */
    uint64_t block_weights, block_bytes; /* linear layers inside blocks */
    uint64_t file_bytes;                 /* all files of the model's weights */
    /* What a token meets: of a mixture's experts the share that is used for each. */
    uint64_t active_weights, active_bytes;
    uint64_t skipped; /* tensors of parts that are not run and count nowhere: a vision tower, say */
} pleach_checkpoint_totals;
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_total(
    const pleach_checkpoint *c, pleach_checkpoint_totals *totals, pleach_error *err);

/* Called for each finding of pleach_checkpoint_verify, with one line. */
typedef void pleach_finding_fn(void *user, const char *tensor, const char *finding);

/* Reads every tensor: NaN, infinity, scales out of range, sizes that do not fit the config, weights
 * the model needs and the file lacks. *n_findings counts them; PLEACH_OK also when there are some. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_verify(const pleach_checkpoint *c,
                                                                    pleach_finding_fn *found,
                                                                    void *user, size_t *n_findings,
                                                                    pleach_error *err);

/* Writes the model as a plain bf16 Hugging Face folder, rotations undone. `out` must not exist
 * unless `force`, and may never be the source. Appears under its name only when whole. */
PLEACH_API PLEACH_MUST_CHECK pleach_status pleach_checkpoint_dequantize(const pleach_checkpoint *c,
                                                                        const char *out, int force,
                                                                        pleach_error *err);

#ifdef __cplusplus
}
#endif
#endif
