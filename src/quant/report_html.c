/* SPDX-License-Identifier: Apache-2.0
 *
 * The report as one page without scripts or links: totals, pictures of bits and loss by layer and
 * kind, and a table of all modules. Colours follow the reader's light or dark scheme. */
#include "report.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "pleach/pleach.h"

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>Quantisation report</title>\n<style>\n"
    ":root{color-scheme:light dark;--back:#fff;--text:#1c1e21;--soft:#667;--line:#dde;"
    "--bits:#1f5fbf;--loss:#b3400f;--warn:#fff3d6}\n"
    "@media(prefers-color-scheme:dark){:root{--back:#16181c;--text:#e4e6ea;--soft:#99a;"
    "--line:#33363d;--bits:#6ea8ff;--loss:#ff9a5c;--warn:#3d3216}}\n"
    "body{background:var(--back);color:var(--text);font:15px/1.45 system-ui,sans-serif;"
    "max-width:64rem;margin:2rem auto;padding:0 1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}\n"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}\n"
    "td,th{padding:.15rem .7rem .15rem 0;text-align:right;border-bottom:1px solid var(--line);"
    "font-weight:400}\n"
    "th{color:var(--soft)}td:first-child,th:first-child,td.text{text-align:left}\n"
    "code{font-size:.9em;overflow-wrap:anywhere}.soft{color:var(--soft)}\n"
    ".warn{background:var(--warn);padding:.4rem .7rem;border-radius:.3rem;margin:.3rem 0}\n"
    ".wide{overflow-x:auto}svg text{fill:var(--text);font:11px system-ui,sans-serif}\n"
    ".bits{fill:var(--bits)}.loss{fill:var(--loss)}\n"
    "</style></head><body>\n";

static void put_text(FILE *f, const char *s)
{
    for (; *s; s++) {
        const char *entity = *s == '<' ? "&lt;" : *s == '>' ? "&gt;" : *s == '&' ? "&amp;"
                             : *s == '"' ? "&quot;" : NULL;
        if (entity) fputs(entity, f);
        else fputc(*s, f);
    }
}

/* ---- the page's head ------------------------------------------------------------------------ */

static void put_totals(FILE *f, const pleach_quantize_summary *s)
{
    fputs("<table><tr><th></th><th>weights</th><th>MB</th><th>bits a weight</th></tr>\n", f);
    fprintf(f, "<tr><td>block matrices</td><td>%" PRIu64 "</td><td>%.1f</td><td>%.3f</td></tr>\n",
            s->block_weights, (double)s->block_bytes * 1e-6, s->block_bits);
    fprintf(f, "<tr><td>whole model</td><td>%" PRIu64 "</td><td>%.1f</td><td>%.3f</td></tr>"
               "</table>\n<p>Mean relative error of the block matrices: %.5f</p>\n",
            s->weights, (double)s->bytes * 1e-6, s->bits, s->relative_error);
}

static void put_settings(FILE *f, const pleach_quantize_settings *s)
{
    fputs("<p class=\"soft\">", f);
    if (s->plan) fputs("Bits by a plan file. ", f);
    else if (s->budget > 0) fprintf(f, "Budget %g bits. ", s->budget);
    else if (s->budget_file > 0) fprintf(f, "Budget %" PRIu64 " bytes. ", s->budget_file);
    else fprintf(f, "%u bits. ", s->bits);
    fprintf(f, "L = %u, rotation seed %" PRIu64 ". Calibration: ", s->state_bits, s->seed);
    put_text(f, s->calib);
    if (strcmp(s->calib, "none") != 0)
        fprintf(f, ", at most %zu tokens, %s, damping %g%s", s->calib_tokens,
                s->fisher ? "weighted by loss" : "not weighted by loss", s->damping,
                s->two_sided ? ", feedback on both sides" : "");
    fputs(".</p>\n", f);
}

static void put_eval(FILE *f, const pl_report *r)
{
    const pleach_eval_result *e = r->eval;
    if (!e) return;
    fprintf(f, "<h2>Against the original</h2>\n<table><tr><th></th><th>KL, nats a token</th>"
               "<th>same top token</th><th>perplexity</th></tr>\n"
               "<tr><td>this model</td><td>%.4f &plusmn; %.4f</td><td>%.2f %%</td>"
               "<td>%.3f</td></tr>\n"
               "<tr><td>original</td><td>0</td><td>100 %%</td><td>%.3f</td></tr></table>\n"
               "<p>%zu tokens of %zu chunks. Again by <code>",
            e->kl, e->kl_error, 100 * e->same_top, e->perplexity, e->teacher_perplexity, e->tokens,
            e->chunks);
    put_text(f, r->command ? r->command : "pleach eval");
    fputs("</code></p>\n", f);
}

static void put_warnings(FILE *f, const pleach_quantize_summary *s)
{
    for (size_t i = 0; i < s->n_warnings; i++) {
        fputs("<p class=\"warn\">", f);
        put_text(f, s->warnings[i]);
        fputs("</p>\n", f);
    }
}

/* ---- pictures ------------------------------------------------------------------------------- */

enum { MAX_KINDS = 16, CELL = 20, LEFT = 90, TOP = 18 };

/* Block matrices in a grid: kinds such as "q_proj" down, layers across. */
typedef struct grid {
    const pleach_quantize_summary *s;
    const char *kinds[MAX_KINDS];
    size_t n_kinds, n_layers;
} grid;

/* Layer and kind of "model.layers.3.mlp.up_proj"; false for other names. */
static bool place(const pleach_quantize_item *item, unsigned long *layer, const char **kind)
{
    const char *at = strstr(item->name, ".layers."), *dot = strrchr(item->name, '.');
    char *end;
    if (!at || !item->k) return false;
    *layer = strtoul(at + 8, &end, 10);
    *kind = dot + 1;
    return *end == '.' && *layer < 100000;
}

static size_t find_kind(const grid *g, const char *kind)
{
    size_t i = 0;
    while (i < g->n_kinds && strcmp(g->kinds[i], kind) != 0) i++;
    return i;
}

static grid make_grid(const pleach_quantize_summary *s)
{
    grid g = {.s = s};
    for (size_t i = 0; i < s->n_items; i++) {
        unsigned long layer;
        const char *kind;
        if (!place(&s->items[i], &layer, &kind)) continue;
        size_t k = find_kind(&g, kind);
        if (k == MAX_KINDS) continue;
        if (k == g.n_kinds) g.kinds[g.n_kinds++] = kind;
        g.n_layers = PL_MAX(g.n_layers, layer + 1);
    }
    return g;
}

static void put_axes(FILE *f, const grid *g)
{
    size_t width = LEFT + g->n_layers * CELL + 10, height = TOP + g->n_kinds * CELL + 4;
    fprintf(f, "<div class=\"wide\"><svg width=\"%zu\" height=\"%zu\" role=\"img\">\n", width,
            height);
    for (size_t layer = 0; layer < g->n_layers; layer += g->n_layers > 16 ? 5 : 1)
        fprintf(f, "<text x=\"%zu\" y=\"12\" text-anchor=\"middle\">%zu</text>\n",
                LEFT + layer * CELL + CELL / 2, layer);
    for (size_t k = 0; k < g->n_kinds; k++) {
        fprintf(f, "<text x=\"%d\" y=\"%zu\" text-anchor=\"end\">", LEFT - 6,
                TOP + k * CELL + CELL - 6);
        put_text(f, g->kinds[k]);
        fputs("</text>\n", f);
    }
}

/* A cell as strong as `share`, 0 to 1; its value appears when pointed at. */
static void put_cell(FILE *f, const grid *g, const pleach_quantize_item *item, const char *class,
                     double share, const char *value)
{
    unsigned long layer;
    const char *kind;
    if (!place(item, &layer, &kind) || find_kind(g, kind) == g->n_kinds) return;
    fprintf(f, "<rect class=\"%s\" x=\"%lu\" y=\"%zu\" width=\"%d\" height=\"%d\" "
               "fill-opacity=\"%.2f\"><title>",
            class, LEFT + layer * CELL + 1, TOP + find_kind(g, kind) * CELL + 1, CELL - 2, CELL - 2,
            .08 + .92 * share);
    put_text(f, item->name);
    fprintf(f, ": %s</title></rect>\n", value);
}

static void put_bits(FILE *f, const grid *g)
{
    fputs("<h2>Bits by layer and kind</h2>\n", f);
    put_axes(f, g);
    for (size_t i = 0; i < g->s->n_items; i++) {
        const pleach_quantize_item *item = &g->s->items[i];
        char value[64];
        snprintf(value, sizeof value, "k = %u, %.3f bits a weight", item->k, item->bits);
        if (item->k) put_cell(f, g, item, "bits", ((double)item->k - 2) / 2, value);
    }
    fputs("</svg></div>\n<p class=\"soft\">Pale: 2 bits, middle: 3, strong: 4.</p>\n", f);
}

static double loss_of(const pleach_quantize_item *item, bool proxy)
{
    return proxy ? item->proxy_loss : item->relative_error;
}

static void put_losses(FILE *f, const grid *g, bool proxy)
{
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < g->s->n_items; i++) {
        double loss = g->s->items[i].k ? loss_of(&g->s->items[i], proxy) : 0;
        if (loss > 0) least = fmin(least, loss);
        most = fmax(most, loss);
    }
    if (!(most > 0)) return;
    fprintf(f, "<h2>%s by layer and kind</h2>\n", proxy ? "Proxy loss" : "Relative error");
    put_axes(f, g);
    for (size_t i = 0; i < g->s->n_items; i++) {
        const pleach_quantize_item *item = &g->s->items[i];
        double loss = loss_of(item, proxy);
        char value[32];
        if (!item->k || !(loss > 0)) continue;
        snprintf(value, sizeof value, "%.5g", loss);
        put_cell(f, g, item, "loss", most > least ? log(loss / least) / log(most / least) : 1,
                 value);
    }
    fprintf(f, "</svg></div>\n<p class=\"soft\">From %.3g, pale, to %.3g, strong; by its "
               "logarithm.</p>\n", least, most);
}

/* ---- the table ------------------------------------------------------------------------------ */

static void put_number(FILE *f, double x)
{
    if (x > 0) fprintf(f, "<td>%.4g</td>", x);
    else fputs("<td></td>", f);
}

static void put_module(FILE *f, const pleach_quantize_item *t)
{
    fputs("<tr><td>", f);
    put_text(f, t->name);
    fprintf(f, "</td><td>%" PRIu64 "&times;%" PRIu64 "</td><td>%.3f</td>", t->out, t->in, t->bits);
    if (t->k) fprintf(f, "<td>%u</td><td>%u</td><td>%u</td>", t->k, t->axis, t->block);
    else fprintf(f, "<td>%s</td><td></td><td></td>", t->coding);
    put_number(f, t->relative_error);
    put_number(f, t->proxy_loss);
    put_number(f, t->damping);
    fputs("<td class=\"text\">", f);
    put_text(f, t->fallback);
    fputs("</td></tr>\n", f);
}

static void put_modules(FILE *f, const pleach_quantize_summary *s)
{
    fputs("<h2>Modules</h2>\n<div class=\"wide\"><table><tr><th>name</th><th>shape</th>"
          "<th>bits</th><th>k</th><th>axis</th><th>T</th><th>relative error</th>"
          "<th>proxy loss</th><th>damping</th><th>fallback</th></tr>\n", f);
    for (size_t i = 0; i < s->n_items; i++) put_module(f, &s->items[i]);
    fputs("</table></div>\n", f);
}

static void put_page(FILE *f, const pl_report *r)
{
    grid g = make_grid(r->summary);
    fputs(head, f);
    fputs("<h1>Quantisation report</h1>\n<p class=\"soft\">Pleach " PLEACH_VERSION ", from ", f);
    put_text(f, r->source);
    fputs("</p>\n", f);
    put_totals(f, r->summary);
    put_settings(f, r->settings);
    put_warnings(f, r->summary);
    put_eval(f, r);
    if (g.n_kinds) {
        put_bits(f, &g);
        bool proxy = false;
        for (size_t i = 0; i < r->summary->n_items; i++)
            proxy |= r->summary->items[i].proxy_loss > 0;
        if (proxy) put_losses(f, &g, true);
        put_losses(f, &g, false);
    }
    put_modules(f, r->summary);
    fputs("</body></html>\n", f);
}

char *pl_report_html(const pl_report *r)
{
    char *html = NULL;
    size_t size;
    FILE *f = open_memstream(&html, &size);
    if (!f) return NULL;
    put_page(f, r);
    bool good = !ferror(f);
    if (fclose(f) == 0 && good) return html;
    free(html);
    return NULL;
}
