/* SPDX-License-Identifier: Apache-2.0
 *
 * The files of tests/golden/trellis, opened for a test. Include after cmocka.h. */
#ifndef TRELLIS_GOLDEN_H
#define TRELLIS_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/safetensors.h"
#include "pleach/trellis.h"

static const char *const trellis_golden_names[] = {
    "k2_t256_axis0",
    "k2_t256_axis1",
    "k3_t128_l16_axis1",
    "k3_t192_axis1",
    "k3_t256_axis0_interleaved",
    "k3_t256_axis1",
    "k4_t256_axis0",
    "k4_t256_axis1",
    "k4_t256_l16_axis0",
};

typedef struct trellis_golden {
    pl_safetensors *file;
    pleach_trellis t;
    uint32_t *codes;
    uint16_t *scales;
} trellis_golden;

static uint32_t golden_number(const trellis_golden *g, const char *key)
{
    const char *text = pl_safetensors_metadata(g->file, key);
    assert_non_null(text);
    return (uint32_t)strtoul(text, NULL, 10);
}

static const void *golden_data(const trellis_golden *g, const char *name)
{
    const pl_tensor *tensor = pl_safetensors_find(g->file, name);
    return tensor ? tensor->data : NULL;
}

/* Words and scales are copied out: a mapped tensor has no alignment. */
static trellis_golden golden_open(const char *name)
{
    char path[512];
    trellis_golden g;
    pleach_error err;
    snprintf(path, sizeof path, "%s/golden/trellis/trellis_%s.safetensors", PLEACH_TEST_DATA, name);
    if (pl_safetensors_open(path, &g.file, &err)) fail_msg("%s", err.message);
    g.t = (pleach_trellis){.bits = golden_number(&g, "k"),
                           .state_bits = golden_number(&g, "L"),
                           .block = golden_number(&g, "T"),
                           .axis = golden_number(&g, "axis"),
                           .interleaved = golden_number(&g, "block_interleave") / 2,
                           .rows = golden_number(&g, "rows"),
                           .cols = golden_number(&g, "cols")};
    assert_int_equal(pleach_trellis_check(&g.t, NULL), PLEACH_OK);
    g.codes = malloc(4 * pleach_trellis_words(&g.t));
    g.scales = malloc(2 * g.t.rows);
    assert_non_null(g.codes);
    assert_non_null(g.scales);
    memcpy(g.codes, golden_data(&g, "codes"), 4 * pleach_trellis_words(&g.t));
    memcpy(g.scales, golden_data(&g, "scales"), 2 * g.t.rows);
    return g;
}

static void golden_close(trellis_golden *g)
{
    pl_safetensors_close(g->file);
    free(g->codes);
    free(g->scales);
}

#endif
