/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of cache types, and what they take. */
#include "kv_type.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static size_t plain_bytes(pl_kv type, uint32_t dim)
{
    return (size_t)dim * (type == PL_KV_BF16 ? 2 : 4);
}

size_t pl_kv_key_bytes(pl_kv type, uint32_t dim)
{
    pl_turboquant t = pl_kv_code(type, dim);
    return pl_kv_is_packed(type) ? pl_turboquant_key_bytes(&t) : plain_bytes(type, dim);
}

size_t pl_kv_value_bytes(pl_kv type, uint32_t dim)
{
    pl_turboquant t = pl_kv_code(type, dim);
    return pl_kv_is_packed(type) ? pl_turboquant_value_bytes(&t) : plain_bytes(type, dim);
}

const char *pl_kv_name(pl_kv type, char text[PL_KV_NAME_SIZE])
{
    if (pl_kv_is_packed(type))
        snprintf(text, PL_KV_NAME_SIZE, "k%uv%u", (unsigned)type >> 4, (unsigned)type & 15);
    else
        strcpy(text, type == PL_KV_BF16 ? "bf16" : "f32");
    return text;
}

pleach_status pl_kv_check(pl_kv type, uint32_t dim, pleach_error *err)
{
    pl_turboquant t = pl_kv_code(type, dim);
    pleach_error reason;
    char name[PL_KV_NAME_SIZE];
    PL_FAIL_IF(pl_kv_is_packed(type) && pl_turboquant_check(&t, &reason) != PLEACH_OK, err,
               PLEACH_ERR_SHAPE, "cache type %s: %s; f32 and bf16 take any", pl_kv_name(type, name),
               reason.message);
    return PLEACH_OK;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* The type named by text[0..size). */
static bool find_type(const char *text, size_t size, pl_kv *type)
{
    static const char keys[] = "8542", values[] = "85432";
    *type = PL_KV_F32;
    if (size == 3 && memcmp(text, "f32", 3) == 0) return true;
    *type = PL_KV_BF16;
    if (size == 4 && memcmp(text, "bf16", 4) == 0) return true;
    if (size != 4 || text[0] != 'k' || text[2] != 'v') return false;
    if (!memchr(keys, text[1], 4) || !memchr(values, text[3], 5)) return false;
    *type = PL_KV_PACKED(text[1] - '0', text[3] - '0');
    return true;
}

/* Bytes of text[0..size) that an error quotes: no more than 40, and whole characters. */
static int quoted(const char *text, size_t size)
{
    size_t n = PL_MIN(size, (size_t)40);
    while (n > 0 && n < size && ((unsigned char)text[n] & 0xC0) == 0x80) n--;
    return (int)n;
}

static pleach_status parse_type(const char *text, size_t size, pl_kv *type, pleach_error *err)
{
    PL_FAIL_IF(!find_type(text, size, type), err, PLEACH_ERR_ARGUMENT,
               "expected a cache type: f32, bf16, or kKvV with K of 8, 5, 4 or 2 and V of 8, 5, 4, "
               "3 or 2, as k8v3; found \"%.*s\"",
               quoted(text, size), text);
    return PLEACH_OK;
}

/* A layer's number; returns what follows it, or NULL. */
static const char *parse_layer(const char *at, uint32_t *layer)
{
    const char *start = at;
    for (*layer = 0; *at >= '0' && *at <= '9' && at - start < 6; at++)
        *layer = *layer * 10 + (uint32_t)(*at - '0');
    return at > start ? at : NULL;
}

/* "3:bf16" or "0-1:bf16", in item[0..size). */
static pleach_status parse_override(const char *item, size_t size, uint32_t n_layers, pl_kv *types,
                                    pleach_error *err)
{
    uint32_t first, last;
    pl_kv type;
    const char *at = parse_layer(item, &first);
    last = first;
    if (at && *at == '-') at = parse_layer(at + 1, &last);
    PL_FAIL_IF(!at || *at != ':' || last < first, err, PLEACH_ERR_ARGUMENT,
               "expected LAYER:TYPE or FIRST-LAST:TYPE, as 0-1:bf16; found \"%.*s\"",
               quoted(item, size), item);
    at++;
    PL_TRY(parse_type(at, size - (size_t)(at - item), &type, err));
    if (!types) return PLEACH_OK;
    PL_FAIL_IF(last >= n_layers, err, PLEACH_ERR_ARGUMENT,
               "cache types: layer %u in \"%.*s\", and the model has layers 0 to %u", last,
               quoted(item, size), item, n_layers - 1);
    memset(types + first, type, last - first + 1);
    return PLEACH_OK;
}

pleach_status pl_kv_parse(const char *spec, uint32_t n_layers, pl_kv *types, pleach_error *err)
{
    size_t size = strcspn(spec, ",");
    pl_kv type;
    PL_TRY(parse_type(spec, size, &type, err));
    if (types) memset(types, type, n_layers);
    for (spec += size; *spec; spec += size) {
        size = strcspn(++spec, ",");
        PL_TRY(parse_override(spec, size, n_layers, types, err));
    }
    return PLEACH_OK;
}

static pl_kv commonest(const pl_kv *types, uint32_t n_layers)
{
    uint32_t counts[256] = {0};
    pl_kv best = types[0];
    for (uint32_t i = 0; i < n_layers; i++) counts[types[i]]++;
    for (uint32_t i = 0; i < n_layers; i++)
        if (counts[types[i]] > counts[best]) best = types[i];
    return best;
}

char *pl_kv_spec(const pl_kv *types, uint32_t n_layers)
{
    enum { ITEM = 24 }; /* ",511-511:k8v3", with room to spare */
    char *text = pl_alloc(n_layers + 1, ITEM), name[PL_KV_NAME_SIZE];
    if (!text) return NULL;
    pl_kv most = commonest(types, n_layers);
    size_t used = (size_t)snprintf(text, ITEM, "%s", pl_kv_name(most, name));
    for (uint32_t first = 0, next; first < n_layers; first = next) {
        for (next = first + 1; next < n_layers && types[next] == types[first]; next++) continue;
        if (types[first] == most) continue;
        used += (size_t)snprintf(text + used, ITEM, ",%u", first);
        if (next - first > 1) used += (size_t)snprintf(text + used, ITEM, "-%u", next - 1);
        used += (size_t)snprintf(text + used, ITEM, ":%s", pl_kv_name(types[first], name));
    }
    return text;
}
