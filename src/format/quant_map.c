/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the quantisation map. An option that this reader does not know would change what the
 * codes mean, so every unknown key is refused by name. */
#include "quant_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensor_names.h"

/* Refuses keys of `object` that are not in the NULL-terminated list. */
static pleach_status known_keys(pl_json_source at, const json_t *object, const char *const *known,
                                pleach_error *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0) i++;
        PL_FAIL_IF(!known[i], err, PLEACH_ERR_UNSUPPORTED, "%s: %s%s is not supported", at.file,
                   at.prefix, key);
    }
    return PLEACH_OK;
}

/* ---- affine -------------------------------------------------------------------------------- */

/* What the object leaves out is as in `fallback`, which may be NULL. */
static pleach_status read_affine(pl_json_source at, const json_t *object,
                                 const pl_quant_entry *fallback, pl_quant_entry *e,
                                 pleach_error *err)
{
    if (fallback) *e = *fallback;
    e->coding = PL_CODING_AFFINE;
    if (!fallback || pl_json_get(object, "bits"))
        PL_TRY(pl_json_u32(at, object, "bits", 2, 8, &e->bits, err));
    PL_FAIL_IF(e->bits == 7, err, PLEACH_ERR_UNSUPPORTED,
               "%s: %sbits is 7, expected 2, 3, 4, 5, 6 or 8", at.file, at.prefix);
    if (!fallback || pl_json_get(object, "group_size"))
        PL_TRY(pl_json_u32(at, object, "group_size", 32, 128, &e->group_size, err));
    PL_FAIL_IF(e->group_size & (e->group_size - 1), err, PLEACH_ERR_UNSUPPORTED,
               "%s: %sgroup_size is %u, expected 32, 64 or 128", at.file, at.prefix, e->group_size);
    return PLEACH_OK;
}

/* ---- trellis ------------------------------------------------------------------------------- */

static pleach_status read_rotation(pl_json_source at, const json_t *trellis, const char *key,
                                   pl_rotation *r, pleach_error *err)
{
    static const char *const keys[] = {"kind", "block", "seed", NULL};
    char prefix[300];
    const char *kind;
    const json_t *object = pl_json_get(trellis, key);
    if (!object) return PLEACH_OK;
    PL_FAIL_IF(!json_is_object(object), err, PLEACH_ERR_FORMAT,
               "%s: %s%s is %s, expected an object", at.file, at.prefix, key, pl_json_kind(object));
    snprintf(prefix, sizeof prefix, "%s%s.", at.prefix, key);
    pl_json_source inner = {at.file, prefix};
    PL_TRY(known_keys(inner, object, keys, err));
    PL_TRY(pl_json_text(inner, object, "kind", &kind, err));
    PL_FAIL_IF(strcmp(kind, "hadamard") != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: %skind %s is not supported, only hadamard is", at.file, prefix, kind);
    PL_TRY(pl_json_u32(inner, object, "block", 1, 1u << 20, &r->block, err));
    PL_FAIL_IF(r->block & (r->block - 1), err, PLEACH_ERR_FORMAT,
               "%s: %sblock is %u, expected a power of two", at.file, prefix, r->block);
    /* Whole numbers below 2^53 survive every JSON library. */
    return pl_json_u64(inner, object, "seed", 0, ((uint64_t)1 << 53) - 1, &r->seed, err);
}

static pleach_status read_trellis(pl_json_source at, const json_t *object, pl_quant_entry *e,
                                  pleach_error *err)
{
    static const char *const keys[] = {
        "L", "code", "axis", "width", "input_rotation", "output_rotation", "output_scale", NULL};
    char prefix[240];
    const char *code;
    const json_t *trellis = json_object_get(object, "trellis");
    PL_FAIL_IF(!json_is_object(trellis), err, PLEACH_ERR_FORMAT,
               "%s: %strellis is %s, expected an object", at.file, at.prefix,
               pl_json_kind(trellis));
    e->coding = PL_CODING_TRELLIS;
    PL_TRY(pl_json_u32(at, object, "bits", 2, 4, &e->bits, err));
    PL_TRY(pl_json_u32(at, object, "group_size", 32, 1024, &e->group_size, err));
    snprintf(prefix, sizeof prefix, "%strellis.", at.prefix);
    pl_json_source inner = {at.file, prefix};
    PL_TRY(known_keys(inner, trellis, keys, err));
    PL_TRY(pl_json_text(inner, trellis, "code", &code, err));
    PL_FAIL_IF(strcmp(code, "1mad") != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: %scode %s is not supported, only 1mad is", at.file, prefix, code);
    PL_TRY(pl_json_u32(inner, trellis, "L", 1, 32, &e->state_bits, err));
    PL_TRY(pl_json_u32(inner, trellis, "axis", 0, 1, &e->axis, err));
    if (pl_json_get(trellis, "width"))
        PL_TRY(pl_json_u64(inner, trellis, "width", 1, (uint64_t)1 << 32, &e->width, err));
    PL_TRY(read_rotation(inner, trellis, "input_rotation", &e->rotate_in, err));
    PL_TRY(read_rotation(inner, trellis, "output_rotation", &e->rotate_out, err));
    PL_TRY(pl_json_bool_or(inner, trellis, "output_scale", &e->output_scale, err));
    /* The rest of the geometry is the codec's to judge. */
    pleach_trellis t = {.bits = e->bits,
                        .state_bits = e->state_bits,
                        .block = e->group_size,
                        .axis = e->axis,
                        .cols = e->group_size};
    pleach_error why;
    PL_FAIL_IF(pleach_trellis_check(&t, &why) != PLEACH_OK, err, PLEACH_ERR_UNSUPPORTED,
               "%s: %.200s%.200s", at.file, at.prefix, why.message);
    return PLEACH_OK;
}

/* ---- the map ------------------------------------------------------------------------------- */

static pleach_status read_entry(const char *file, const char *module, const json_t *value,
                                const pl_quant_map *map, pl_quant_entry *e, pleach_error *err)
{
    static const char *const keys[] = {"bits", "group_size", "mode", "trellis", NULL};
    char prefix[200];
    const char *mode = "affine";
    snprintf(prefix, sizeof prefix, "quantization of %.160s: ", module);
    pl_json_source at = {file, prefix};
    *e = (pl_quant_entry){.coding = PL_CODING_DENSE};
    if (json_is_true(value)) {
        PL_FAIL_IF(!map->has_default, err, PLEACH_ERR_FORMAT, "%s: %strue, but there is no default",
                   file, prefix);
        *e = map->fallback;
    } else if (json_is_object(value)) {
        PL_TRY(known_keys(at, value, keys, err));
        if (pl_json_get(value, "mode")) PL_TRY(pl_json_text(at, value, "mode", &mode, err));
        if (strcmp(mode, "trellis") == 0)
            PL_TRY(read_trellis(at, value, e, err));
        else if (strcmp(mode, "affine") == 0)
            PL_TRY(read_affine(at, value, map->has_default ? &map->fallback : NULL, e, err));
        else
            return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: %smode %s is not supported", file,
                           prefix, mode);
    } else if (!json_is_false(value)) {
        return pl_fail(err, PLEACH_ERR_UNSUPPORTED, "%s: %s%s is not supported", file, prefix,
                       pl_json_kind(value));
    }
    return PLEACH_OK;
}

static pleach_status read_default(const char *file, const json_t *object, pl_quant_map *map,
                                  pleach_error *err)
{
    pl_json_source at = {file, "quantization."};
    const char *mode = "affine";
    if (pl_json_get(object, "mode")) PL_TRY(pl_json_text(at, object, "mode", &mode, err));
    PL_FAIL_IF(strcmp(mode, "affine") != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: quantization.mode %s is not supported as the default, only affine is", file,
               mode);
    if (!pl_json_get(object, "bits") && !pl_json_get(object, "group_size")) return PLEACH_OK;
    map->has_default = true;
    return read_affine(at, object, NULL, &map->fallback, err);
}

static int compare_modules(const void *a, const void *b)
{
    return strcmp(((const pl_quant_entry *)a)->module, ((const pl_quant_entry *)b)->module);
}

/* For an entry of every key, and its module's one name. */
static pleach_status make_room(const char *file, const json_t *object, pl_quant_map *map,
                               pleach_error *err)
{
    const char *key;
    json_t *value;
    size_t n = json_object_size(object), bytes = 0;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
        bytes += strlen(key) + PL_NAME_GROWTH;
    map->entries = pl_alloc(n, sizeof *map->entries);
    map->names = pl_alloc(bytes, 1);
    return map->entries && map->names ? PLEACH_OK
                                      : pl_fail_memory(err, file, n * sizeof *map->entries + bytes);
}

/* Entries that a file has under two names of one module say the same. */
static pleach_status read_map(const char *file, const json_t *object, pl_quant_map *map,
                              pleach_error *err)
{
    PL_TRY(read_default(file, object, map, err));
    PL_TRY(make_room(file, object, map, err));
    const char *key;
    char *name = map->names;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        if (strcmp(key, "bits") == 0 || strcmp(key, "group_size") == 0 || strcmp(key, "mode") == 0)
            continue;
        pl_quant_entry *e = &map->entries[map->n];
        PL_TRY(read_entry(file, key, value, map, e, err));
        pl_tensor_name_text(key, name, strlen(key) + PL_NAME_GROWTH);
        e->module = name;
        name += strlen(name) + 1;
        map->n++;
    }
    qsort(map->entries, map->n, sizeof *map->entries, compare_modules);
    return PLEACH_OK;
}

/* A checkpoint of 8-bit floats with a scale for each tile, as DeepSeek and Qwen publish them. */
static pleach_status read_fp8(const char *file, const json_t *object, pl_quant_map *map,
                              pleach_error *err)
{
    pl_json_source at = {file, "quantization_config."};
    const char *fmt = "e4m3";
    if (pl_json_get(object, "fmt")) PL_TRY(pl_json_text(at, object, "fmt", &fmt, err));
    PL_FAIL_IF(strcmp(fmt, "e4m3") != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: quantization_config.fmt %s is not supported, only e4m3 is", file, fmt);
    const json_t *block = pl_json_get(object, "weight_block_size");
    PL_FAIL_IF(!json_is_array(block) || json_array_size(block) != 2, err, PLEACH_ERR_UNSUPPORTED,
               "%s: quantization_config.weight_block_size is %s, expected two numbers", file,
               pl_json_kind(block));
    for (size_t i = 0; i < 2; i++) {
        json_int_t n = json_integer_value(json_array_get(block, i));
        PL_FAIL_IF(n < 1 || n > 1 << 20, err, PLEACH_ERR_FORMAT,
                   "%s: quantization_config.weight_block_size has an entry out of range", file);
        map->fp8_block[i] = (uint32_t)n;
    }
    return PLEACH_OK;
}

pleach_status pl_quant_map_read(pl_quant_map *map, const char *file, const json_t *root,
                                pleach_error *err)
{
    *map = (pl_quant_map){0};
    const json_t *object = pl_json_get(root, "quantization");
    if (!object) object = pl_json_get(root, "quantization_config");
    if (!object) return PLEACH_OK;
    PL_FAIL_IF(!json_is_object(object), err, PLEACH_ERR_FORMAT,
               "%s: quantization is %s, expected an object", file, pl_json_kind(object));
    const json_t *method = pl_json_get(object, "quant_method");
    if (!method) return read_map(file, object, map, err);
    const char *name = json_string_value(method);
    PL_FAIL_IF(!name || strcmp(name, "fp8") != 0, err, PLEACH_ERR_UNSUPPORTED,
               "%s: quant_method %s is not supported", file, name ? name : pl_json_kind(method));
    return read_fp8(file, object, map, err);
}

void pl_quant_map_close(pl_quant_map *map)
{
    pl_free(map->entries);
    pl_free(map->names);
    *map = (pl_quant_map){0};
}

const pl_quant_entry *pl_quant_map_find(const pl_quant_map *map, const char *module)
{
    pl_quant_entry key = {.module = module};
    if (map->n == 0) return NULL;
    return bsearch(&key, map->entries, map->n, sizeof key, compare_modules);
}
