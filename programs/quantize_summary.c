/* SPDX-License-Identifier: Apache-2.0
 *
 * A summary of the quantiser as a table or as JSON. */
#include "quantize_summary.h"

#include <inttypes.h>
#include <stdio.h>

#include "console.h"

static void print_items(const pleach_quantize_summary *s)
{
    printf("%-14s %-8s %2s %5s %4s %7s  %s\n", "shape", "coding", "k", "T", "axis", "bits", "name");
    for (size_t i = 0; i < s->n_items; i++) {
        const pleach_quantize_item *t = &s->items[i];
        char shape[48];
        snprintf(shape, sizeof shape, "%" PRIu64 "x%" PRIu64, t->out, t->in);
        printf("%-14s %-8s ", shape, t->coding);
        if (t->k)
            printf("%2u %5u %4u", t->k, t->block, t->axis);
        else
            printf("%13s", "");
        printf(" %7.3f  ", t->bits);
        print_name(t->name);
        putchar('\n');
    }
    putchar('\n');
}

static void print_warnings(const pleach_quantize_summary *s)
{
    for (size_t i = 0; i < s->n_warnings; i++) {
        printf("warning         ");
        print_name(s->warnings[i]);
        putchar('\n');
    }
}

void print_memory(uint64_t bytes)
{
    char text[32];
    printf("memory          at most %s\n", bytes_text(bytes, text));
}

void print_summary(const pleach_quantize_summary *s, const char *out, bool dry_run)
{
    char text[32];
    if (dry_run) print_items(s);
    printf("output          %s\n", out);
    printf("whole model     %s, %.3f bits a weight, %" PRIu64 " weights\n",
           bytes_text(s->bytes, text), s->bits, s->weights);
    printf("block matrices  %s, %.3f bits a weight, %" PRIu64 " weights\n",
           bytes_text(s->block_bytes, text), s->block_bits, s->block_weights);
    if (dry_run) {
        print_memory(s->peak_memory);
        print_warnings(s);
        return;
    }
    printf("relative error  %.5f\n", s->relative_error);
    if (s->evaluated)
        printf("evaluation      KL %.4f, perplexity %.4f, same top token %.2f %%\n", s->kl,
               s->perplexity, 100 * s->same_top);
    printf("time            %s", time_text(s->seconds, text));
    if (!s->resumed && s->seconds > 0)
        printf(", %.2f M weights/s", (double)s->weights * 1e-6 / s->seconds);
    if (s->resumed) printf(", %zu tensors taken over from an earlier run", s->resumed);
    putchar('\n');
    print_warnings(s);
}

static void add_result(json_t *o, const pleach_quantize_item *t)
{
    if (t->relative_error > 0)
        json_object_set_new(o, "relative_error", json_number(t->relative_error));
    if (t->proxy_loss > 0) json_object_set_new(o, "proxy_loss", json_number(t->proxy_loss));
    if (t->damping > 0) json_object_set_new(o, "damping", json_number(t->damping));
    if (*t->fallback) json_object_set_new(o, "fallback", json_text(t->fallback));
}

static json_t *item_json(const pleach_quantize_item *t)
{
    json_t *o = json_pack("{s:o, s:s, s:[II], s:I, s:o, s:b}", "name", json_text(t->name), "coding",
                          t->coding, "shape", (json_int_t)t->out, (json_int_t)t->in, "bytes",
                          (json_int_t)t->bytes, "bits", json_number(t->bits), "block_matrix",
                          t->block_matrix);
    if (o && t->k) {
        json_object_set_new(o, "k", json_integer(t->k));
        json_object_set_new(o, "T", json_integer(t->block));
        json_object_set_new(o, "axis", json_integer(t->axis));
        if (t->predicted_loss > 0)
            json_object_set_new(o, "predicted_loss", json_number(t->predicted_loss));
        add_result(o, t);
    }
    return o;
}

json_t *summary_json(const pleach_quantize_summary *s, const char *out, bool dry_run)
{
    json_t *items = json_array(), *warnings = json_array();
    for (size_t i = 0; i < s->n_items; i++) json_array_append_new(items, item_json(&s->items[i]));
    for (size_t i = 0; i < s->n_warnings; i++)
        json_array_append_new(warnings, json_text(s->warnings[i]));
    json_t *o = json_pack(
        "{s:o, s:b, s:I, s:I, s:o, s:I, s:I, s:o, s:I, s:o, s:o}", "out", json_text(out), "dry_run",
        dry_run, "weights", (json_int_t)s->weights, "bytes", (json_int_t)s->bytes, "bits",
        json_number(s->bits), "block_weights", (json_int_t)s->block_weights, "block_bytes",
        (json_int_t)s->block_bytes, "block_bits", json_number(s->block_bits), "peak_memory",
        (json_int_t)s->peak_memory, "tensors", items, "warnings", warnings);
    if (o && !dry_run) {
        json_object_set_new(o, "relative_error", json_number(s->relative_error));
        if (s->evaluated)
            json_object_set_new(o, "evaluation",
                                json_pack("{s:o, s:o, s:o}", "kl", json_number(s->kl), "perplexity",
                                          json_number(s->perplexity), "same_top",
                                          json_number(s->same_top)));
        json_object_set_new(o, "resumed", json_integer((json_int_t)s->resumed));
        json_object_set_new(o, "seconds", json_number(s->seconds));
    }
    return o;
}
