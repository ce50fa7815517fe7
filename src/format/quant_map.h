/* SPDX-License-Identifier: Apache-2.0
 *
 * The quantisation part of config.json: how each module's weight is coded. docs/format.md,
 * "Quantization map". */
#ifndef PL_FORMAT_QUANT_MAP_H
#define PL_FORMAT_QUANT_MAP_H

#include "checkpoint.h"
#include "json.h"

/* How one module is coded. */
typedef struct pl_quant_entry {
    const char *module; /* its one name (tensor_names.h); the map's */
    pl_coding coding;   /* DENSE for a module marked `false` */
    uint32_t bits;
    uint32_t group_size; /* affine: of a scale; trellis: the block length T */
    /* Trellis alone. */
    uint32_t state_bits, axis;
    uint64_t width; /* coded numbers without padding; 0: no padding */
    pl_rotation rotate_in, rotate_out;
    bool output_scale;
} pl_quant_entry;

typedef struct pl_quant_map {
    bool has_default; /* of modules with scales and biases that no entry names */
    pl_quant_entry fallback;
    pl_quant_entry *entries; /* by module name */
    size_t n;
    char *names;
    uint32_t fp8_block[2]; /* rows and columns that share a scale; 0: no FP8 checkpoint */
} pl_quant_map;

/* From "quantization", or where that is absent from "quantization_config", which means the same. An
 * empty map when there is neither. */
pleach_status pl_quant_map_read(pl_quant_map *map, const char *file, const json_t *root,
                                pleach_error *err);
void pl_quant_map_close(pl_quant_map *map);
/* The entry that names the module, or NULL. */
const pl_quant_entry *pl_quant_map_find(const pl_quant_map *map, const char *module);

#endif
