/* SPDX-License-Identifier: Apache-2.0
 *
 * batch MODEL PROMPT...: continues all prompts side by side and prints each when it is whole. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pleach/pleach.h>

enum { TOKENS = 32 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t ended;

typedef struct answer {
    const pleach_model *model;
    const char *prompt;
    int32_t ids[TOKENS];
    size_t n;
} answer;

/* Both are called on the batch's own thread, one at a time. */
static int on_token(void *user, const pleach_token *t)
{
    answer *a = user;
    a->ids[a->n++] = t->id;
    return 0; /* anything else would end the answer */
}

static void on_end(void *user, const pleach_answer_end *e)
{
    const answer *a = user;
    char *text = NULL;
    size_t size;
    pleach_error err;
    if (e->status != PLEACH_OK)
        fprintf(stderr, "batch: %s\n", e->message);
    else if (pleach_detokenize(a->model, a->ids, a->n, 0, &text, &size, &err) == PLEACH_OK)
        printf("%s%s\n[%zu + %zu tokens, %zu of them kept from before]\n", a->prompt, text,
               e->prompt_tokens, e->new_tokens, e->cached_tokens);
    pleach_text_free(text);
    pthread_mutex_lock(&lock);
    ended++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static pleach_status submit(pleach_batch *b, answer *a, pleach_error *err)
{
    pleach_request r;
    uint64_t ticket;
    int32_t *ids;
    pleach_request_defaults(&r);
    pleach_status status = pleach_tokenize(a->model, a->prompt, strlen(a->prompt),
                                           PLEACH_TOKENIZE_BOS, &ids, &r.n_prompt, err);
    r.prompt = ids;
    r.generation.max_tokens = TOKENS;
    r.on_token = on_token;
    r.on_end = on_end;
    r.user = a;
    if (status == PLEACH_OK) status = pleach_batch_submit(b, &r, &ticket, err);
    pleach_ids_free(ids);
    return status;
}

/* Closing would cancel what runs. */
static void wait_for(size_t n)
{
    pthread_mutex_lock(&lock);
    while (ended < n) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
    pleach_error err = {0};
    pleach_model *model = NULL;
    pleach_batch *batch = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: batch MODEL PROMPT...\n");
        return 2;
    }
    size_t n = (size_t)argc - 2, taken = 0;
    answer *answers = calloc(n + 1, sizeof *answers);
    int ok = answers && pleach_model_open(argv[1], NULL, &model, &err) == PLEACH_OK &&
             pleach_batch_open(model, NULL, &batch, &err) == PLEACH_OK;
    for (; ok && taken < n; taken += (size_t)ok) {
        answers[taken] = (answer){.model = model, .prompt = argv[taken + 2]};
        ok = submit(batch, &answers[taken], &err) == PLEACH_OK;
    }
    if (ok) wait_for(n);
    if (!ok) fprintf(stderr, "batch: %s\n", err.message);
    pleach_batch_close(batch);
    pleach_model_close(model);
    free(answers);
    return ok ? 0 : 1;
}
