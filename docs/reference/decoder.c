/* SPDX-License-Identifier: Apache-2.0
 *
 * From bytes on disk to one matrix, top down: numbers, blocks, rotations, files, modules. Files are
 * read whole and nothing is made fast. */
#include "decoder.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- small numbers ------------------------------------------------------------------------- */

static float of_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static float of_bf16(uint16_t h) { return of_bits((uint32_t)h << 16); }

static float of_f16(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    float f = exponent == 31 ? (mantissa ? NAN : INFINITY)
              : exponent     ? ldexpf((float)(1024 + mantissa), exponent - 25)
                             : ldexpf((float)mantissa, -24);
    return h >> 15 ? -f : f;
}

/* f rounded to a number with `bits` bits of significand, none smaller than 2^smallest. */
static float round_to(float f, int bits, int smallest)
{
    int exponent;
    if (f == 0 || !isfinite(f)) return f;
    frexpf(f, &exponent);
    int unit = exponent - bits < smallest ? smallest : exponent - bits;
    return (float)ldexp(rint(ldexp(f, -unit)), unit); /* rint: to nearest, ties to even */
}

static float to_bf16(float f) { return round_to(f, 8, -133); }

static float to_f16(float f)
{
    f = round_to(f, 11, -24);
    return fabsf(f) > 65504 ? copysignf(INFINITY, f) : f;
}

/* ---- sections 2, 3 and 4: blocks ----------------------------------------------------------- */

/* Where word w of block j of row r lies. */
static uint64_t word_index(const ref_trellis *t, uint64_t r, uint64_t j, uint64_t w)
{
    uint64_t words = t->T * t->k / 32;
    if (t->interleaved) return (j / 2 * t->rows + r) * 2 * words + j % 2 * words + w;
    return r * (t->cols / t->T) * words + j * words + w;
}

static uint32_t state_of(const ref_trellis *t, const uint32_t *words, uint64_t r, uint64_t c)
{
    uint64_t j = c / t->T, start = (t->T - 1 - c % t->T) * t->k;
    uint32_t state = 0;
    for (unsigned i = 0; i < t->L; i++) {
        uint64_t bit = (start + i) % (t->T * t->k);
        state |= (words[word_index(t, r, j, bit / 32)] >> bit % 32 & 1) << i;
    }
    return state;
}

float ref_number(const ref_trellis *t, const uint32_t *words, const uint16_t *scales, uint64_t r,
                 uint64_t c, ref_contract contract)
{
    uint32_t x = state_of(t, words, r, c) * 34038481u + 76625530u;
    int y = (int)(x & 255) + (int)(x >> 8 & 255) + (int)(x >> 16 & 255) + (int)(x >> 24) - 510;
    float constant = 147.800537109375f, scale = of_f16(scales[r]);
    if (contract == REF_EXPAND) {
        float quotient = (float)y / constant;
        float product = quotient * scale;
        return to_bf16(product);
    }
    float reciprocal = 1.0f / constant;
    float product = (float)y * reciprocal;
    return product * scale;
}

/* ---- section 5: rotation ------------------------------------------------------------------- */

static uint64_t mix64(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double sign_of(uint64_t seed, uint64_t i)
{
    return mix64(seed + 0x9e3779b97f4a7c15u * (i + 1)) & 1 ? -1 : 1;
}

static int odd_ones(uint64_t u)
{
    int odd = 0;
    for (; u; u &= u - 1) odd = !odd;
    return odd;
}

/* z <- R z for a vector of n numbers that lie `stride` apart. */
static void rotate(float *z, uint64_t n, uint64_t stride, uint64_t b, uint64_t seed, double *scratch)
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t first = i / b * b;
        scratch[i] = 0;
        for (uint64_t q = 0; q < b; q++) {
            double v = z[(first + q) * stride];
            scratch[i] += odd_ones((i - first) & q) ? -v : v;
        }
        scratch[i] *= sign_of(seed, i) / sqrt((double)b);
    }
    for (uint64_t i = 0; i < n; i++) z[i * stride] = (float)scratch[i];
}

/* ---- errors -------------------------------------------------------------------------------- */

typedef struct context {
    const char *folder, *module;
    char *error;
    size_t size;
} context;

static int fail(const context *x, const char *format, ...)
{
    va_list args;
    int n = snprintf(x->error, x->size, "%s: %s: ", x->folder, x->module);
    va_start(args, format);
    if (n >= 0 && (size_t)n < x->size) vsnprintf(x->error + n, x->size - (size_t)n, format, args);
    va_end(args);
    return -1;
}

/* ---- section 8: tensors -------------------------------------------------------------------- */

typedef struct tensor {
    char type[8];
    size_t n_dims, bytes;
    uint64_t shape[4];
    uint8_t *data; /* NULL: there is no such tensor */
} tensor;

/* The whole file, or NULL. */
static uint8_t *read_file(const char *folder, const char *name, size_t *size)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    FILE *f = fopen(path, "rb");
    if (!f) return NULL;
    uint8_t *data = NULL;
    if (fseek(f, 0, SEEK_END) == 0 && ftell(f) > 0) {
        *size = (size_t)ftell(f);
        rewind(f);
        data = malloc(*size);
        if (data && fread(data, 1, *size, f) != *size) {
            free(data);
            data = NULL;
        }
    }
    fclose(f);
    return data;
}

static json_t *read_json(const char *folder, const char *name)
{
    size_t size;
    uint8_t *text = read_file(folder, name, &size);
    json_t *j = text ? json_loadb((char *)text, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    free(text);
    return j;
}

static size_t type_size(const char *type)
{
    if (strcmp(type, "F32") == 0 || strcmp(type, "U32") == 0) return 4;
    if (strcmp(type, "F16") == 0 || strcmp(type, "BF16") == 0) return 2;
    return 0;
}

/* Takes a tensor's entry of a header apart and copies its data out of data[0 .. size). */
static int tensor_of_entry(const context *x, const char *name, json_t *entry, const uint8_t *data,
                           uint64_t size, tensor *t)
{
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    json_t *shape = json_object_get(entry, "shape");
    json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));
    t->n_dims = json_array_size(shape);
    if (!type || !type_size(type) || t->n_dims < 1 || t->n_dims > 4)
        return fail(x, "%s has a type or shape that is not known here", name);
    strcpy(t->type, type);
    uint64_t elements = 1;
    for (size_t i = 0; i < t->n_dims; i++) {
        t->shape[i] = (uint64_t)json_integer_value(json_array_get(shape, i));
        if (t->shape[i] == 0 || t->shape[i] > size / elements)
            return fail(x, "%s has an impossible shape", name);
        elements *= t->shape[i];
    }
    if (begin > end || end > size || end - begin != elements * type_size(type))
        return fail(x, "%s has offsets that do not fit", name);
    t->bytes = end - begin;
    t->data = malloc(t->bytes);
    if (!t->data) return fail(x, "out of memory");
    memcpy(t->data, data + begin, t->bytes);
    return 0;
}

/* Finds `<module><suffix>` in the file that holds it. t->data stays NULL when there is none. */
static int read_tensor(const context *x, const char *suffix, tensor *t)
{
    char name[512], file[256] = "model.safetensors";
    size_t size = 0;
    *t = (tensor){0};
    snprintf(name, sizeof name, "%s%s", x->module, suffix);
    json_t *index = read_json(x->folder, "model.safetensors.index.json");
    if (index) {
        const char *shard =
            json_string_value(json_object_get(json_object_get(index, "weight_map"), name));
        snprintf(file, sizeof file, "%s", shard ? shard : "");
        json_decref(index);
        if (!file[0]) return 0;
        if (strchr(file, '/')) return fail(x, "shard %s is not in the folder", file);
    }
    uint8_t *bytes = read_file(x->folder, file, &size);
    uint64_t header = 0;
    for (int i = 0; i < 8 && size >= 8; i++) header |= (uint64_t)bytes[i] << 8 * i;
    json_t *entries = size >= 8 && header <= size - 8
                          ? json_loadb((char *)bytes + 8, header, JSON_REJECT_DUPLICATES, NULL)
                          : NULL;
    int status = 0;
    if (!json_is_object(entries)) {
        status = fail(x, "%s is no safetensors file", file);
    } else {
        json_t *entry = json_object_get(entries, name);
        if (entry)
            status = tensor_of_entry(x, name, entry, bytes + 8 + header, size - 8 - header, t);
    }
    json_decref(entries);
    free(bytes);
    return status;
}

static uint16_t u16_at(const tensor *t, uint64_t i)
{
    return (uint16_t)(t->data[2 * i] | t->data[2 * i + 1] << 8);
}

static uint32_t u32_at(const tensor *t, uint64_t i)
{
    const uint8_t *b = t->data + 4 * i;
    return b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

/* Element i of a tensor of floating-point numbers. */
static float number_at(const tensor *t, uint64_t i)
{
    if (t->type[0] == 'B') return of_bf16(u16_at(t, i));
    return strcmp(t->type, "F16") == 0 ? of_f16(u16_at(t, i)) : of_bits(u32_at(t, i));
}

static int is(const tensor *t, const char *type) { return t->data && strcmp(t->type, type) == 0; }

static int is_float(const tensor *t) { return t->data && t->type[0] != 'U'; }

static int make_matrix(const context *x, uint64_t out, uint64_t in, ref_matrix *m)
{
    *m = (ref_matrix){.out = out, .in = in, .w = malloc(out * in * sizeof(float))};
    return m->w ? 0 : fail(x, "out of memory");
}

/* ---- section 1 and 6: dense and affine modules --------------------------------------------- */

static int dense_matrix(const context *x, const tensor *weight, ref_matrix *m)
{
    if (!is_float(weight) || weight->n_dims != 2) return fail(x, "weight is no dense matrix");
    if (make_matrix(x, weight->shape[0], weight->shape[1], m)) return -1;
    for (uint64_t i = 0; i < m->out * m->in; i++) m->w[i] = number_at(weight, i);
    return 0;
}

static float round_as(const tensor *t, float f)
{
    return is(t, "BF16") ? to_bf16(f) : is(t, "F16") ? to_f16(f) : f;
}

static int affine_matrix(const context *x, const tensor *weight, const tensor *scales,
                         const tensor *biases, unsigned bits, unsigned group, ref_matrix *m)
{
    if ((bits < 2 || bits > 6) && bits != 8) return fail(x, "affine bits %u", bits);
    if (group != 32 && group != 64 && group != 128) return fail(x, "affine group_size %u", group);
    if (!is(weight, "U32") || weight->n_dims != 2 || !is_float(scales) || scales->n_dims != 2 ||
        !is(biases, scales->type) || biases->n_dims != 2)
        return fail(x, "weight, scales or biases of a wrong type");
    uint64_t out = weight->shape[0], words = weight->shape[1], groups = scales->shape[1];
    uint64_t in = groups * group;
    if (words * 32 != in * bits || scales->shape[0] != out || biases->shape[0] != out ||
        biases->shape[1] != groups)
        return fail(x, "shapes of weight, scales and biases do not fit");
    if (make_matrix(x, out, in, m)) return -1;
    for (uint64_t o = 0; o < out; o++)
        for (uint64_t i = 0; i < in; i++) {
            uint32_t q = 0;
            for (unsigned n = 0; n < bits; n++) {
                uint64_t bit = i * bits + n;
                q |= (u32_at(weight, o * words + bit / 32) >> bit % 32 & 1) << n;
            }
            uint64_t g = o * groups + i / group;
            float product = round_as(scales, (float)q * number_at(scales, g));
            m->w[o * in + i] = round_as(scales, product + number_at(biases, g));
        }
    return 0;
}

/* ---- sections 5 and 7: trellis modules ----------------------------------------------------- */

typedef struct rotation {
    uint64_t block, seed; /* block 0: none */
} rotation;

typedef struct entry {
    unsigned axis, output_scale;
    ref_trellis t;
    uint64_t width; /* 0: all */
    rotation input, output;
} entry;

static int read_rotation(const context *x, json_t *j, rotation *r)
{
    const char *kind = json_string_value(json_object_get(j, "kind"));
    json_int_t block = json_integer_value(json_object_get(j, "block"));
    json_t *seed = json_object_get(j, "seed");
    if (!kind || strcmp(kind, "hadamard") != 0) return fail(x, "rotation of an unknown kind");
    if (block < 1 || (block & (block - 1)) || !json_is_integer(seed) || json_integer_value(seed) < 0)
        return fail(x, "rotation with a bad block or seed");
    *r = (rotation){(uint64_t)block, (uint64_t)json_integer_value(seed)};
    return 0;
}

/* Section 7's table: an unknown key is refused. */
static int read_entry(const context *x, json_t *module_entry, entry *e)
{
    const char *key, *code = NULL;
    json_t *value, *trellis = json_object_get(module_entry, "trellis");
    *e = (entry){.axis = 2};
    json_object_foreach(module_entry, key, value)
    {
        if (strcmp(key, "bits") && strcmp(key, "group_size") && strcmp(key, "mode") &&
            strcmp(key, "trellis"))
            return fail(x, "unknown key %s", key);
    }
    e->t.k = (unsigned)json_integer_value(json_object_get(module_entry, "bits"));
    e->t.T = (unsigned)json_integer_value(json_object_get(module_entry, "group_size"));
    json_object_foreach(trellis, key, value)
    {
        if (strcmp(key, "L") == 0) e->t.L = (unsigned)json_integer_value(value);
        else if (strcmp(key, "code") == 0) code = json_string_value(value);
        else if (strcmp(key, "axis") == 0 && json_is_integer(value))
            e->axis = (unsigned)json_integer_value(value);
        else if (strcmp(key, "width") == 0) e->width = (uint64_t)json_integer_value(value);
        else if (strcmp(key, "output_scale") == 0) e->output_scale = json_is_true(value);
        else if (strcmp(key, "input_rotation") == 0) {
            if (read_rotation(x, value, &e->input)) return -1;
        } else if (strcmp(key, "output_rotation") == 0) {
            if (read_rotation(x, value, &e->output)) return -1;
        } else
            return fail(x, "unknown key %s of trellis", key);
    }
    const ref_trellis *t = &e->t;
    if (t->k < 2 || t->k > 4 || (t->L != 12 && t->L != 16) || t->T < 32 || t->T > 1024 ||
        t->T % 32 || e->axis > 1 || !code || strcmp(code, "1mad") != 0)
        return fail(x, "trellis geometry outside the format");
    return 0;
}

/* Rows and coded width from the shapes, checked against the entry. */
static int fit_shapes(const context *x, const tensor *weight, const tensor *scales, entry *e)
{
    ref_trellis *t = &e->t;
    if (!is(weight, "U32") || !is(scales, "F16") || scales->n_dims != 1)
        return fail(x, "weight or scales of a wrong type");
    t->rows = scales->shape[0];
    t->interleaved = weight->n_dims == 3;
    if (t->interleaved) {
        if (t->k != 3 || t->T != 256 || e->axis != 0 || weight->shape[1] != t->rows ||
            weight->shape[2] != 48)
            return fail(x, "interleaved where it may not be");
        t->cols = weight->shape[0] * 512;
    } else {
        if (weight->n_dims != 2 || weight->shape[0] != t->rows || weight->shape[1] * 32 % t->k)
            return fail(x, "weight does not fit its scales");
        t->cols = weight->shape[1] * 32 / t->k;
    }
    if (e->width == 0) e->width = t->cols;
    if (t->cols % t->T || e->width > t->cols || e->width + t->T <= t->cols)
        return fail(x, "coded width does not fit");
    return 0;
}

/* W from W': R_out on each column, R_in on each row, then the output scale. */
static int undo(const context *x, const entry *e, const tensor *output_scale, ref_matrix *m)
{
    uint64_t longest = m->out > m->in ? m->out : m->in;
    if ((e->input.block && m->in % e->input.block) || (e->output.block && m->out % e->output.block))
        return fail(x, "a rotation's block does not divide the width");
    if (e->output_scale &&
        (!is_float(output_scale) || output_scale->n_dims != 1 || output_scale->shape[0] != m->out))
        return fail(x, "output_scale is absent or of a wrong shape");
    double *scratch = malloc(longest * sizeof *scratch);
    if (!scratch) return fail(x, "out of memory");
    for (uint64_t i = 0; e->output.block && i < m->in; i++)
        rotate(m->w + i, m->out, m->in, e->output.block, e->output.seed, scratch);
    for (uint64_t o = 0; e->input.block && o < m->out; o++) /* row of W' R_in^T = R_in row^T */
        rotate(m->w + o * m->in, m->in, 1, e->input.block, e->input.seed, scratch);
    for (uint64_t o = 0; e->output_scale && o < m->out; o++)
        for (uint64_t i = 0; i < m->in; i++) m->w[o * m->in + i] *= number_at(output_scale, o);
    free(scratch);
    return 0;
}

static int trellis_matrix(const context *x, entry *e, const tensor *weight, const tensor *scales,
                          ref_contract contract, ref_matrix *m)
{
    if (fit_shapes(x, weight, scales, e)) return -1;
    uint64_t rows = e->t.rows, width = e->width;
    uint32_t *words = malloc(weight->bytes);
    uint16_t *factors = malloc(scales->bytes);
    int status = words && factors ? make_matrix(x, e->axis ? rows : width, e->axis ? width : rows, m)
                                  : fail(x, "out of memory");
    if (status == 0) {
        for (size_t i = 0; i < weight->bytes / 4; i++) words[i] = u32_at(weight, i);
        for (uint64_t i = 0; i < rows; i++) factors[i] = u16_at(scales, i);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < width; c++)
                m->w[e->axis ? r * width + c : c * rows + r] =
                    ref_number(&e->t, words, factors, r, c, contract);
    }
    free(words);
    free(factors);
    return status;
}

/* ---- section 7: which coding a module has -------------------------------------------------- */

static unsigned setting(json_t *module_entry, json_t *quantization, const char *key)
{
    json_t *own = json_object_get(module_entry, key);
    return (unsigned)json_integer_value(own ? own : json_object_get(quantization, key));
}

int ref_read_module(const char *folder, const char *module, ref_contract contract, int whole,
                    ref_matrix *m, char *error, size_t size)
{
    context x = {folder, module, error, size};
    tensor weight = {0}, scales = {0}, biases = {0}, output_scale = {0};
    json_t *config = read_json(folder, "config.json");
    json_t *quantization = json_object_get(config, "quantization");
    if (!quantization) quantization = json_object_get(config, "quantization_config");
    json_t *own = json_object_get(quantization, module);
    const char *mode = json_string_value(json_object_get(own, "mode"));
    int status = -1;
    entry e;
    *m = (ref_matrix){0};

    if (!config) {
        fail(&x, "no config.json that can be read");
        goto out;
    }
    if (read_tensor(&x, ".weight", &weight) || read_tensor(&x, ".scales", &scales) ||
        read_tensor(&x, ".biases", &biases) || read_tensor(&x, ".output_scale", &output_scale))
        goto out;
    if (mode && strcmp(mode, "trellis") == 0) {
        status = read_entry(&x, own, &e);
        if (status == 0) status = trellis_matrix(&x, &e, &weight, &scales, contract, m);
        if (status == 0 && whole) status = undo(&x, &e, &output_scale, m);
    } else if (mode && strcmp(mode, "affine") != 0) {
        fail(&x, "unknown mode %s", mode);
    } else if (!json_is_false(own) && quantization && scales.data && biases.data) {
        status = affine_matrix(&x, &weight, &scales, &biases, setting(own, quantization, "bits"),
                               setting(own, quantization, "group_size"), m);
    } else {
        status = dense_matrix(&x, &weight, m);
    }
out:
    if (status) {
        free(m->w);
        *m = (ref_matrix){0};
    }
    free(weight.data);
    free(scales.data);
    free(biases.data);
    free(output_scale.data);
    json_decref(config);
    return status;
}
