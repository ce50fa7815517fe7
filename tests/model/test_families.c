/* SPDX-License-Identifier: Apache-2.0
 *
 * The families beside the dense ones: other spellings of one checkpoint give the same bits, and a
 * sequence in a batch has the bits of one alone. */
#include "support.h"

#include "format/json.h"
#include "runtime/session.h"

enum { MOST = 600 };

/* The last test_family's copy of a golden checkpoint. */
typedef struct copy {
    folder at;
    pl_safetensors *from;
    pl_tensor tensors[MOST];
    const void *data[MOST];
    char names[MOST][120];
    size_t n;
} copy;

static void add_tensor(copy *c, const char *name, const pl_tensor *like, const void *data)
{
    assert_true(c->n < MOST);
    snprintf(c->names[c->n], sizeof c->names[c->n], "%s", name);
    c->tensors[c->n] = *like;
    c->tensors[c->n].name = c->names[c->n];
    c->data[c->n++] = data;
}

static void write_copy(copy *c, const char *config)
{
    pl_safetensors_writer *w;
    char *path = pl_path_join(c->at.path, "model.safetensors");
    folder_write(&c->at, "config.json", config);
    must(pl_safetensors_create(path, c->tensors, c->n, &w, &err));
    for (size_t i = 0; i < c->n; i++)
        must(pl_safetensors_append(w, c->data[i], c->tensors[i].n_bytes, &err));
    must(pl_safetensors_commit(w, &err));
    pl_free(path);
}

static copy *open_copy(const char *name)
{
    char path[512];
    copy *c = pl_calloc(1, sizeof *c);
    assert_non_null(c);
    c->at = make_folder();
    snprintf(path, sizeof path, CHECKPOINTS "%s/model.safetensors", name);
    must(pl_safetensors_open(path, &c->from, &err));
    return c;
}

static void close_copy(copy *c)
{
    remove_folder(&c->at, (const char *const[]){"config.json", "model.safetensors"}, 2);
    pl_safetensors_close(c->from);
    pl_free(c);
}

static char *config_text(const char *name)
{
    char path[512], *text;
    size_t size;
    snprintf(path, sizeof path, CHECKPOINTS "%s/config.json", name);
    must(pl_read_file(path, 1 << 20, &text, &size, &err));
    return text;
}

/* Logits of the golden's ids, in one call. */
static float *logits_of(const char *path, const golden *g)
{
    float *logits = pl_alloc(g->n * g->vocab, sizeof *logits);
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 2);
    pleach_session *s = open_session(m, "f32", 512);
    must(pleach_session_feed_all(s, g->ids, g->n, 0, logits, &err));
    pleach_session_close(s);
    pleach_model_close(m);
    return logits;
}

static void assert_same_model(const char *path, const char *name)
{
    char original[512];
    golden g = open_golden(name);
    snprintf(original, sizeof original, CHECKPOINTS "%s", name);
    float *want = logits_of(original, &g), *got = logits_of(path, &g);
    assert_memory_equal(got, want, g.n * g.vocab * sizeof *got);
    pl_free(want);
    pl_free(got);
    close_golden(&g);
}

/* Returns whether left-out tensors were spoken of. */
static bool quantise(const char *source, const char *out)
{
    pleach_quantize_settings s;
    pleach_quantize_summary summary;
    bool told = false;
    pleach_quantize_settings_defaults(&s);
    s.threads = 2;
    must(pleach_quantize(source, out, &s, &summary, &err));
    for (size_t i = 0; i < summary.n_warnings; i++)
        told = told || strstr(summary.warnings[i], "2 tensors of parts that are not run");
    pleach_quantize_summary_free(&summary);
    return told;
}

/* Packed, the model is the same whatever its tensors were called before. */
static void assert_same_packed(const char *path, const char *name, bool skipped)
{
    folder f = make_folder();
    golden g = open_golden(name);
    char original[512], one[300], two[300], command[400];
    snprintf(original, sizeof original, CHECKPOINTS "%s", name);
    snprintf(one, sizeof one, "%s/one", f.path);
    snprintf(two, sizeof two, "%s/two", f.path);
    assert_false(quantise(original, one));
    assert_int_equal(quantise(path, two), skipped);
    float *want = logits_of(one, &g), *got = logits_of(two, &g);
    assert_memory_equal(got, want, g.n * g.vocab * sizeof *got);
    pl_free(want);
    pl_free(got);
    close_golden(&g);
    snprintf(command, sizeof command, "rm -rf '%s'", f.path);
    assert_int_equal(system(command), 0);
}

/* ---- spellings ------------------------------------------------------------------------------- */

/* A model that sees, and two tensors that are left out of it. */
typedef struct wrapper {
    const char *golden, *class, *model_type, *foreign[2];
} wrapper;

/* The text model below a prefix, beside a vision tower. */
static void check_wrapped(const wrapper *of, const char *prefix)
{
    copy *c = open_copy(of->golden);
    char name[120], *text = config_text(of->golden);
    size_t room = strlen(text) + 200;
    char *wrapped = pl_alloc(room, 1);
    for (size_t i = 0; i < pl_safetensors_count(c->from); i++) {
        const pl_tensor *t = pl_safetensors_tensor(c->from, i);
        bool head = strncmp(t->name, "model.", 6) != 0;
        snprintf(name, sizeof name, "%s%s", head ? "" : prefix, t->name + (head ? 0 : 6));
        add_tensor(c, name, t, t->data);
    }
    const float pixel[4] = {1, 2, 3, 4};
    const pl_tensor vision = {.type = PL_F32, .n_dims = 2, .shape = {2, 2}, .n_bytes = 16};
    for (size_t i = 0; i < 2; i++) add_tensor(c, of->foreign[i], &vision, pixel);
    snprintf(wrapped, room,
             "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"eos_token_id\":[1,106],"
             "\"text_config\":%s}",
             of->class, of->model_type, text);
    write_copy(c, wrapped);
    assert_same_model(c->at.path, of->golden);
    assert_same_packed(c->at.path, of->golden, true);
    pleach_checkpoint *checkpoint;
    pleach_checkpoint_totals totals;
    must(pleach_checkpoint_open(c->at.path, &checkpoint, &err));
    must(pleach_checkpoint_total(checkpoint, &totals, &err));
    assert_int_equal(totals.skipped, 2);
    pleach_checkpoint_close(checkpoint);
    pl_free(wrapped);
    pl_free(text);
    close_copy(c);
}

static void text_models_are_found_in_those_that_see(void **state)
{
    (void)state;
    static const wrapper gemma = {
        "gemma3", "Gemma3ForConditionalGeneration", "gemma3",
        {"vision_tower.embeddings.weight", "model.multi_modal_projector.weight"}};
    static const wrapper qwen = {
        "qwen35-hybrid", "Qwen3_5ForConditionalGeneration", "qwen3_5",
        {"model.visual.patch_embed.proj.weight", "mtp.layers.0.mlp.up_proj.weight"}};
    check_wrapped(&gemma, "language_model.model.");
    check_wrapped(&gemma, "model.language_model.");
    check_wrapped(&qwen, "model.language_model.");
}

static const pl_tensor *expert(const copy *c, int layer, int e, const char *matrix)
{
    char name[120];
    snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.%s.weight", layer, e, matrix);
    const pl_tensor *t = pl_safetensors_find(c->from, name);
    assert_non_null(t);
    return t;
}

/* Matrices of all experts of a layer one after another: those named, of each expert in turn. */
static char *stacked(const copy *c, int layer, const char *const *matrices, size_t n)
{
    size_t bytes = expert(c, layer, 0, matrices[0])->n_bytes;
    char *data = pl_alloc(8 * n, bytes);
    for (int e = 0; e < 8; e++)
        for (size_t i = 0; i < n; i++)
            memcpy(data + ((size_t)e * n + i) * bytes, expert(c, layer, e, matrices[i])->data, bytes);
    return data;
}

static void stacked_experts_are_the_same_model(void **state)
{
    (void)state;
    static const char *const gate_up[] = {"gate_proj", "up_proj"}, *const down[] = {"down_proj"};
    copy *c = open_copy("qwen3-moe");
    char *text = config_text("qwen3-moe"), *data[6], name[120];
    for (size_t i = 0; i < pl_safetensors_count(c->from); i++) {
        const pl_tensor *t = pl_safetensors_tensor(c->from, i);
        if (!strstr(t->name, ".experts.")) add_tensor(c, t->name, t, t->data);
    }
    for (int layer = 0; layer < 3; layer++) {
        pl_tensor both = *expert(c, layer, 0, "gate_proj"), one = *expert(c, layer, 0, "down_proj");
        both.n_dims = one.n_dims = 3;
        memcpy(both.shape, (const uint64_t[]){8, 128, 128}, 3 * sizeof *both.shape);
        memcpy(one.shape, (const uint64_t[]){8, 128, 64}, 3 * sizeof *one.shape);
        both.n_bytes *= 16;
        one.n_bytes *= 8;
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.gate_up_proj", layer);
        add_tensor(c, name, &both, data[2 * layer] = stacked(c, layer, gate_up, 2));
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.down_proj", layer);
        add_tensor(c, name, &one, data[2 * layer + 1] = stacked(c, layer, down, 1));
    }
    write_copy(c, text);
    assert_same_model(c->at.path, "qwen3-moe");
    assert_same_packed(c->at.path, "qwen3-moe", false);
    for (int i = 0; i < 6; i++) pl_free(data[i]);
    pl_free(text);
    close_copy(c);
}

/* Mixtral: its own names, no norms of heads; against the same with the others' names. */
static void mixtral_names_are_the_same_model(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"gate_proj", "w1"}, {"down_proj", "w2"}, {"up_proj", "w3"}};
    static const char config[] =
        "{\"architectures\":[\"MixtralForCausalLM\"],\"vocab_size\":384,\"hidden_size\":128,"
        "\"intermediate_size\":64,\"num_hidden_layers\":3,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":64,\"num_local_experts\":8,"
        "\"num_experts_per_tok\":2,\"tie_word_embeddings\":false}";
    float *logits[2];
    golden g = open_golden("qwen3-moe");
    for (int own = 0; own < 2; own++) {
        copy *c = open_copy("qwen3-moe");
        char name[120];
        for (size_t i = 0; i < pl_safetensors_count(c->from); i++) {
            const pl_tensor *t = pl_safetensors_tensor(c->from, i);
            if (strstr(t->name, "_norm")) continue;
            snprintf(name, sizeof name, "%s", t->name);
            char matrix[20];
            int layer, e;
            if (own && sscanf(name, "model.layers.%d.mlp.experts.%d.%19[a-z_]", &layer, &e, matrix) == 3)
                for (size_t k = 0; k < 3; k++)
                    if (strcmp(matrix, names[k][0]) == 0)
                        snprintf(name, sizeof name,
                                 "model.layers.%d.block_sparse_moe.experts.%d.%s.weight", layer, e,
                                 names[k][1]);
            if (own && strstr(name, ".mlp.gate."))
                snprintf(name, sizeof name, "model.layers.%c.block_sparse_moe.gate.weight",
                         t->name[strlen("model.layers.")]);
            add_tensor(c, name, t, t->data);
        }
        write_copy(c, config);
        logits[own] = logits_of(c->at.path, &g);
        close_copy(c);
    }
    assert_memory_equal(logits[0], logits[1], g.n * g.vocab * sizeof *logits[0]);
    assert_true(max_difference(logits[0], g.logits, g.n * g.vocab) > 1e-2); /* another model */
    pl_free(logits[0]);
    pl_free(logits[1]);
    close_golden(&g);
}

static void a_stack_of_another_shape_is_refused(void **state)
{
    (void)state;
    copy *c = open_copy("qwen3-moe");
    char *text = config_text("qwen3-moe");
    const float numbers[8] = {0};
    const pl_tensor wrong = {.type = PL_F32, .n_dims = 3, .shape = {8, 1, 1}, .n_bytes = 32};
    pleach_checkpoint *checkpoint;
    add_tensor(c, "model.layers.0.mlp.experts.gate_up_proj", &wrong, numbers);
    write_copy(c, text);
    assert_refused(pleach_checkpoint_open(c->at.path, &checkpoint, &err), PLEACH_ERR_SHAPE,
                   "model.layers.0.mlp.experts.gate_up_proj is [8, 1, 1], expected [8, 128, 128]");
    pl_free(text);
    close_copy(c);
}

/* ---- batches --------------------------------------------------------------------------------- */

enum { SESSIONS = 5, STEPS = 24 };

static int32_t token_of(int session, int i)
{
    return (int32_t)(pl_mix64((uint64_t)(session * 1000 + i)) % 384);
}

/* Prompts of 1, 8, 15, .. tokens, then steps of all at once, against each alone. */
static void check_batch(const char *name, const char *kv)
{
    char path[512];
    snprintf(path, sizeof path, CHECKPOINTS "%s", name);
    pleach_model *m = open_model(path, NULL, PLEACH_ARITH_INT16, 3);
    size_t vocab = vocab_of(m);
    float *together = pl_alloc(SESSIONS * vocab, sizeof *together);
    float *alone = pl_alloc(vocab, sizeof *alone);
    pleach_session *batch[SESSIONS], *single[SESSIONS];
    for (int i = 0; i < SESSIONS; i++) {
        batch[i] = open_session(m, kv, 512);
        single[i] = open_session(m, kv, 512);
        for (int k = 0; k <= 7 * i; k++) {
            int32_t id = token_of(i, k);
            must(pleach_session_feed(batch[i], &id, 1, NULL, &err));
            must(pleach_session_feed(single[i], &id, 1, NULL, &err));
        }
    }
    for (int step = 0; step < STEPS; step++) {
        int32_t ids[SESSIONS];
        for (int i = 0; i < SESSIONS; i++) ids[i] = token_of(i, 100 + step);
        must(pl_sessions_step(batch, ids, SESSIONS, together, NULL, &err));
        for (int i = 0; i < SESSIONS; i++) {
            must(pleach_session_feed(single[i], &ids[i], 1, alone, &err));
            if (memcmp(alone, together + (size_t)i * vocab, vocab * sizeof *alone))
                fail_msg("%s, %s: step %d of sequence %d has other bits", name, kv, step, i);
        }
    }
    for (int i = 0; i < SESSIONS; i++) {
        pleach_session_close(batch[i]);
        pleach_session_close(single[i]);
    }
    pl_free(together);
    pl_free(alone);
    pleach_model_close(m);
}

static void batches_equal_lone_runs(void **state)
{
    (void)state;
    check_batch("gemma3", "f32");
    check_batch("gemma3", "k8v3");
    check_batch("qwen3-moe", "f32");
    check_batch("qwen3-moe", "k8v3");
    check_batch("qwen35-hybrid", "f32");
    check_batch("qwen35-hybrid", "k8v3");
    check_batch("qwen35-moe", "f32");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_models_are_found_in_those_that_see),
        cmocka_unit_test(stacked_experts_are_the_same_model),
        cmocka_unit_test(mixtral_names_are_the_same_model),
        cmocka_unit_test(a_stack_of_another_shape_is_refused),
        cmocka_unit_test(batches_equal_lone_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
