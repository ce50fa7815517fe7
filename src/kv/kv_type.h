/* SPDX-License-Identifier: Apache-2.0
 *
 * Types of cached keys and values, by name and by layer: "k8v3,0-1:bf16". */
#ifndef PL_KV_KV_TYPE_H
#define PL_KV_KV_TYPE_H

#include "base/error.h"
#include "codec/turboquant.h"

/* What one layer's cache holds: numbers as they are, or TurboQuant codes. */
typedef uint8_t pl_kv;
enum { PL_KV_F32 = 0, PL_KV_BF16 = 1 };
#define PL_KV_PACKED(key_bits, value_bits) ((pl_kv)((key_bits) << 4 | (value_bits)))

static inline bool pl_kv_is_packed(pl_kv type)
{
    return type > PL_KV_BF16;
}

/* The code of a packed type. */
static inline pl_turboquant pl_kv_code(pl_kv type, uint32_t dim)
{
    return (pl_turboquant){
        .dim = dim, .key_bits = (uint32_t)type >> 4, .value_bits = (uint32_t)type & 15};
}

/* Bytes of one key, of one value, of a head. */
size_t pl_kv_key_bytes(pl_kv type, uint32_t dim);
size_t pl_kv_value_bytes(pl_kv type, uint32_t dim);

enum { PL_KV_NAME_SIZE = 8 };
/* "f32", "bf16", "k8v3"; returns text. */
const char *pl_kv_name(pl_kv type, char text[PL_KV_NAME_SIZE]);

/* TYPE[,LAYER:TYPE][,FIRST-LAST:TYPE]...: the type of all layers, then of some; what comes later
 * holds. Fills types[0..n_layers), or with types NULL looks at the form alone. */
pleach_status pl_kv_parse(const char *spec, uint32_t n_layers, pl_kv *types, pleach_error *err);
/* Types back in that form, the commonest first, in fresh memory (pl_free); NULL: out of memory. */
char *pl_kv_spec(const pl_kv *types, uint32_t n_layers);

/* PLEACH_ERR_SHAPE, with what is allowed, when the type cannot serve heads of this size. */
pleach_status pl_kv_check(pl_kv type, uint32_t dim, pleach_error *err);

#endif
