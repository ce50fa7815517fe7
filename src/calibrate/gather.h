/* SPDX-License-Identifier: Apache-2.0
 *
 * The statistics of one block while they are gathered: sums of outer products over the tokens of
 * chunk after chunk. Where not all fit into memory they are gathered in several passes over the
 * block. */
#ifndef PL_CALIBRATE_GATHER_H
#define PL_CALIBRATE_GATHER_H

#include "block.h"
#include "statistics_file.h"

typedef struct pl_gather_item {
    pl_statistic kind;
    pl_module module; /* whose input or gradient it is about */
    uint64_t width, out; /* of the matrix; of the linear layer's output */
    float *square;   /* [width][width], upper half: the sum, during its pass; [width] for power */
    int64_t tokens;  /* in the sum */
    double weight;   /* sum of the tokens' weights */
} pl_gather_item;

typedef struct pl_gather {
    const pl_compute *c; /* borrowed, as is config */
    const pl_config *config;
    pl_statistics_info info;
    size_t chunk;
    pl_gather_item *items;
    size_t n, first, end;   /* all of the block; those of this pass */
    float *memory;          /* their squares */
    float *rows;            /* [chunk][widest]: weighted tokens, or a row to be written */
    float *scales;          /* [chunk] */
    uint64_t limit;         /* numbers in the squares of one pass */
} pl_gather;

/* limit: bytes for everything, or what passes of one statistic each need if that is more. */
pleach_status pl_gather_open(pl_gather *g, const pl_config *config, const pl_compute *c,
                             const pl_statistics_info *info, size_t chunk, uint64_t limit,
                             pleach_error *err);
void pl_gather_close(pl_gather *g); /* accepts a zeroed one */
uint64_t pl_gather_memory(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                          uint64_t limit);
/* Bytes of all blocks' files, about. */
uint64_t pl_gather_disk(const pl_config *config, const pl_statistics_info *info);
/* Passes over the block that takes most, at least one. */
size_t pl_gather_passes(const pl_config *config, const pl_statistics_info *info, size_t chunk,
                        uint64_t limit);
/* Multiply-adds for one token in all of them, of an average block. */
double pl_gather_operations(const pl_config *config, const pl_statistics_info *info);

/* A block: begin; for each pass, next, add for every chunk, append; then commit or discard. */
pleach_status pl_gather_begin(pl_gather *g, const char *dir, uint32_t block,
                              pl_safetensors_writer **out, pleach_error *err);
bool pl_gather_next(pl_gather *g); /* false when all passes are done */
/* Adds the chunk on the tape. Tokens whose numbers are not finite, or so large that their squares
 * are not, are left out of a sum. */
void pl_gather_add(pl_gather *g, const pl_tape *tape);
pleach_status pl_gather_append(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err);
/* The counts, after the last pass; frees the writer either way. */
pleach_status pl_gather_commit(const pl_gather *g, pl_safetensors_writer *w, pleach_error *err);

#endif
