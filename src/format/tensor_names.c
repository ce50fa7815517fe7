/* SPDX-License-Identifier: Apache-2.0
 *
 * The spellings that are about: models that see put the text model below a prefix, Mixtral has names
 * of its own, and newer checkpoints stack the matrices of a layer's experts. */
#include "tensor_names.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "tensor.h"

static bool starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool pl_tensor_name_foreign(const char *name)
{
    static const char *const prefixes[] = {
        "vision_tower.", "model.vision_tower.", "multi_modal_projector.",
        "model.multi_modal_projector.", "visual.", "model.visual.", "mtp.", "model.mtp."};
    for (size_t i = 0; i < PL_COUNT(prefixes); i++)
        if (starts_with(name, prefixes[i])) return true;
    return false;
}

typedef struct name_pair {
    const char *from, *to;
} name_pair;

/* Replaces the first of `pairs` that `text` has at its start; returns what is left of the text, and
 * in *to what stands for the start. */
static const char *replace_start(const char *text, const name_pair *pairs, size_t n, const char **to)
{
    *to = "";
    for (size_t i = 0; i < n; i++)
        if (starts_with(text, pairs[i].from)) {
            *to = pairs[i].to;
            return text + strlen(pairs[i].from);
        }
    return text;
}

/* Mixtral's experts: the digits, then the matrix. */
static bool mixtral_expert(const char *rest, char *out, size_t size)
{
    static const char *const matrices[][2] = {
        {"w1", "gate_proj"}, {"w2", "down_proj"}, {"w3", "up_proj"}};
    size_t digits = strspn(rest, "0123456789");
    if (!digits || digits > 9 || rest[digits] != '.') return false;
    const char *matrix = rest + digits + 1;
    for (size_t i = 0; i < PL_COUNT(matrices); i++)
        if (starts_with(matrix, matrices[i][0]) && (matrix[2] == '.' || matrix[2] == 0)) {
            snprintf(out, size, "mlp.experts.%.*s.%s%s", (int)digits, rest, matrices[i][1],
                     matrix + 2);
            return true;
        }
    return false;
}

void pl_tensor_name_text(const char *name, char *out, size_t size)
{
    static const name_pair starts[] = {{"model.language_model.", "model."},
                                       {"language_model.model.", "model."},
                                       {"language_model.lm_head", "lm_head"}};
    static const char block[] = "block_sparse_moe.", experts[] = "block_sparse_moe.experts.";
    const char *to, *rest = replace_start(name, starts, PL_COUNT(starts), &to);
    const char *moe = strstr(rest, block);
    char own[160];
    if (moe && starts_with(moe, experts) && mixtral_expert(moe + sizeof experts - 1, own, sizeof own))
        snprintf(out, size, "%s%.*s%s", to, (int)(moe - rest), rest, own);
    else if (moe)
        snprintf(out, size, "%s%.*smlp.%s", to, (int)(moe - rest), rest, moe + sizeof block - 1);
    else
        snprintf(out, size, "%s%s", to, rest);
}

/* ---- stacked experts ------------------------------------------------------------------------- */

/* Matrices of all experts in one tensor, and the two halves that gate_up consists of. */
typedef struct stack {
    const char *ending;
    const char *parts[2];
} stack;

static const stack stacks[] = {{".mlp.experts.gate_up_proj", {"gate_proj", "up_proj"}},
                               {".mlp.experts.gate_proj", {"gate_proj"}},
                               {".mlp.experts.up_proj", {"up_proj"}},
                               {".mlp.experts.down_proj", {"down_proj"}}};

static bool ends_with(const char *name, size_t n, const char *ending)
{
    size_t e = strlen(ending);
    return n >= e && memcmp(name + n - e, ending, e) == 0;
}

/* The stack that a name means, with or without ".weight"; *head: characters before "gate_proj". */
static const stack *find_stack(const char *name, size_t *head)
{
    size_t n = strlen(name);
    if (ends_with(name, n, ".weight")) n -= strlen(".weight");
    for (size_t i = 0; i < PL_COUNT(stacks); i++) {
        if (!ends_with(name, n, stacks[i].ending)) continue;
        *head = n - strlen(stacks[i].ending) + strlen(".mlp.experts.");
        return &stacks[i];
    }
    return NULL;
}

/* The stack that tensor t is, under its own name. */
static const stack *stack_of(const pl_tensor *t, const char *name, const pl_config *g, size_t *head)
{
    return g && g->n_experts && t->n_dims == 3 ? find_stack(name, head) : NULL;
}

static pleach_status check_stack(const char *path, const pl_tensor *t, const stack *s,
                                 const pl_config *g, pleach_error *err)
{
    bool down = strcmp(s->parts[0], "down_proj") == 0;
    uint64_t out = down ? g->hidden_size : (uint64_t)g->expert_size * (1 + (s->parts[1] != NULL));
    uint64_t in = down ? g->expert_size : g->hidden_size;
    char found[PL_SHAPE_TEXT];
    PL_FAIL_IF(t->shape[0] != g->n_experts || t->shape[1] != out || t->shape[2] != in, err,
               PLEACH_ERR_SHAPE, "%s: tensor %s is %s, expected [%u, %llu, %llu]", path, t->name,
               pl_tensor_shape_text(t, found, sizeof found), g->n_experts,
               (unsigned long long)out, (unsigned long long)in);
    return PLEACH_OK;
}

/* Appends a view for each expert and half. Rows are whole blocks of the type, so that every view
 * begins at one. */
static void add_views(pl_named_tensors *o, const pl_tensor *t, const char *name, const stack *s,
                      size_t head, char **at)
{
    uint64_t halves = 1 + (s->parts[1] != NULL), views = t->shape[0] * halves;
    for (uint64_t v = 0; v < views; v++) {
        pl_tensor *to = &o->tensors[o->n++];
        size_t room = strlen(name) + PL_NAME_GROWTH;
        *to = (pl_tensor){.name = *at, .type = t->type, .n_dims = 2,
                          .shape = {t->shape[1] / halves, t->shape[2]},
                          .data = (const uint8_t *)t->data + v * (t->n_bytes / views),
                          .n_bytes = t->n_bytes / views};
        snprintf(*at, room, "%.*s%llu.%s.weight", (int)head, name,
                 (unsigned long long)(v / halves), s->parts[v % halves]);
        *at += room;
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

static void add(pl_named_tensors *o, const pl_tensor *t, const pl_config *config, char **at)
{
    size_t room = strlen(t->name) + PL_NAME_GROWTH, head;
    char *name = *at;
    if (pl_tensor_name_foreign(t->name)) {
        o->foreign++;
        return;
    }
    pl_tensor_name_text(t->name, name, room);
    *at += room;
    const stack *s = stack_of(t, name, config, &head);
    if (s) {
        add_views(o, t, name, s, head, at);
        return;
    }
    o->tensors[o->n] = *t;
    o->tensors[o->n++].name = name;
}

pleach_status pl_tensors_name(const char *path, const pl_tensor *tensors, size_t n,
                              const pl_config *config, pl_named_tensors *out, pleach_error *err)
{
    char name[512], *at;
    size_t room = 0, bytes = 0, head;
    *out = (pl_named_tensors){0};
    for (size_t i = 0; i < n; i++) {
        pl_tensor_name_text(tensors[i].name, name, sizeof name);
        const stack *s = stack_of(&tensors[i], name, config, &head);
        if (s) PL_TRY(check_stack(path, &tensors[i], s, config, err));
        size_t views = s ? config->n_experts * (1 + (s->parts[1] != NULL)) : 1;
        room += views;
        bytes += (views + 1) * (strlen(tensors[i].name) + 2 * PL_NAME_GROWTH);
    }
    out->tensors = pl_alloc(room, sizeof *out->tensors);
    out->names = at = pl_alloc(bytes, 1);
    if (!out->tensors || !out->names) {
        pl_free(out->tensors);
        pl_free(out->names);
        return pl_fail_memory(err, path, room * sizeof *out->tensors + bytes);
    }
    for (size_t i = 0; i < n; i++) add(out, &tensors[i], config, &at);
    return PLEACH_OK;
}
