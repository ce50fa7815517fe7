/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of a statistics folder: how they are called and what is in them, for the reader
 * (statistics.c) and the writer (calibrate.c). docs/quantize.md, "Statistics". */
#ifndef PL_CALIBRATE_STATISTICS_FILE_H
#define PL_CALIBRATE_STATISTICS_FILE_H

#include "format/safetensors.h"
#include "statistics.h"

#define PL_STATISTICS_HEAD "statistics.json"

typedef enum pl_statistic {
    PL_STATISTIC_INPUT,  /* one for each distinct input of a block */
    PL_STATISTIC_FISHER, /* one for each linear layer, as the others */
    PL_STATISTIC_POWER,  /* vectors */
    PL_STATISTIC_OUTPUT,
    PL_STATISTIC_KINDS
} pl_statistic;

/* How many a block has of a kind, and which of them is a module's. */
size_t pl_statistic_count(const pl_config *config, uint32_t block, pl_statistic kind);
size_t pl_statistic_index(pl_statistic kind, const pl_module *m);
/* Numbers stored of one whose inputs or outputs are n. */
uint64_t pl_statistic_size(pl_statistic kind, uint64_t n);
bool pl_statistic_gathered(const pl_statistics_info *info, pl_statistic kind);
#define PL_STATISTICS_NAME 64 /* bytes for the name of a tensor */
/* "input.0", "input.1", .., "self_attn.q_proj.fisher", ...; returns `name`. */
char *pl_statistics_tensor_name(pl_statistic kind, const pl_module *m,
                                char name[PL_STATISTICS_NAME]);
/* The tensor with the number of tokens behind each matrix of a kind: I64 [pl_statistic_count]. */
const char *pl_statistics_tokens_name(pl_statistic kind);
#define PL_STATISTICS_GRADIENT "gradient" /* with fisher: F64 [linear layers] */

/* DIR/block-0012.safetensors in fresh memory (pl_free). */
char *pl_statistics_block_path(const char *dir, uint32_t block, pleach_error *err);
/* A block's file with everything in it that `info` promises. config: of the model, or NULL where it is
 * not at hand; what a module lacks is then found when it is asked for. */
pleach_status pl_statistics_block_open(const char *dir, uint32_t block, const pl_config *config,
                                       const pl_statistics_info *info, pl_safetensors **out,
                                       pleach_error *err);
/* The tensor is there, of this type and n numbers (0: any). */
pleach_status pl_statistics_check(const char *path, const pl_safetensors *file, const char *name,
                                  pl_dtype type, uint64_t n, pleach_error *err);

/* statistics.json. */
typedef struct pl_statistics_head {
    pl_statistics_info info;
    bool whole;
    json_t *binding;  /* owned */
    json_t *left_out; /* tokens whose numbers were not finite, by block and tensor; owned or NULL */
} pl_statistics_head;

/* PLEACH_ERR_MISSING when there is none. */
pleach_status pl_statistics_head_read(const char *dir, pl_statistics_head *head, pleach_error *err);
pleach_status pl_statistics_head_write(const char *dir, const pl_statistics_head *head,
                                       pleach_error *err);
void pl_statistics_head_free(pl_statistics_head *head); /* accepts a zeroed one */
/* PLEACH_ERR_MISMATCH, naming the first field in which the folder's binding differs. */
pleach_status pl_statistics_head_check(const char *dir, const pl_statistics_head *head,
                                       const json_t *binding, pleach_error *err);

#endif
