/* SPDX-License-Identifier: Apache-2.0
 *
 * Walking a grammar. A place is a vertex that takes a byte, with the vertices to go on at once its
 * rule and those round it end; a state is the set of places where a text may stand. States are made
 * as texts lead to them and kept with their transitions, so that looking through a vocabulary is
 * mostly table look-ups. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/memory.h"
#include "rules.h"
#include "tokens.h"

enum {
    UNKNOWN = 0xffffffff,
    DEAD = 0,           /* the state of texts that the grammar has not */
    MAX_STATES = 16384, /* then all but the current one are forgotten */
    MAX_STACK = 1000    /* rules inside rules; deeper is dead */
};

/* Stack i: vertex, then stack `rest`; stack 0 is empty. */
typedef struct stack {
    uint32_t vertex, rest, depth;
    uint32_t set_mark, seen_mark; /* of the last set, the last search, that it was added to */
} stack;

typedef struct state {
    uint32_t first, n; /* its places: matcher.places[first ..) are stacks, ascending */
    bool whole;        /* the text may end here */
    uint32_t to[256];
} state;

/* An open table from a hash to an index. */
typedef struct table {
    uint32_t *slots;
    size_t capacity; /* a power of two */
    size_t n;
} table;

struct pl_matcher {
    const pl_grammar *g;
    stack *stacks;
    size_t n_stacks, stacks_capacity;
    state *states;
    size_t n_states, states_capacity;
    uint32_t *places;
    size_t n_places, places_capacity;
    table stack_table, state_table;
    uint32_t begin, now;
    /* A set being made. */
    uint32_t *set, *seen;
    size_t n_set, set_capacity, n_seen, seen_capacity, looked;
    uint32_t set_mark, seen_mark;
    bool whole, broken; /* broken: out of memory */
};

/* ---- tables ---------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15;
    return h ^ h >> 29;
}

static uint64_t stack_hash(const stack *s)
{
    return mix(mix(0, s->vertex), s->rest);
}

static uint64_t set_hash(const uint32_t *places, size_t n, bool whole)
{
    uint64_t h = whole;
    for (size_t i = 0; i < n; i++) h = mix(h, places[i]);
    return h;
}

static bool grow_table(pl_matcher *m, table *t, bool stacks)
{
    if (2 * (t->n + 1) <= t->capacity) return true;
    size_t capacity = t->capacity ? 2 * t->capacity : 256;
    uint32_t *slots = pl_alloc(capacity, sizeof *slots);
    if (!slots) return false;
    memset(slots, 0xff, capacity * sizeof *slots);
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i] == UNKNOWN) continue;
        const state *s = stacks ? NULL : &m->states[t->slots[i]];
        uint64_t h = stacks ? stack_hash(&m->stacks[t->slots[i]])
                            : set_hash(m->places + s->first, s->n, s->whole);
        size_t at = h & (capacity - 1);
        while (slots[at] != UNKNOWN) at = (at + 1) & (capacity - 1);
        slots[at] = t->slots[i];
    }
    pl_free(t->slots);
    t->slots = slots;
    t->capacity = capacity;
    return true;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

/* The stack (vertex, rest); UNKNOWN when it would be too deep or memory is out. */
static uint32_t push(pl_matcher *m, uint32_t vertex, uint32_t rest)
{
    stack s = {.vertex = vertex, .rest = rest, .depth = m->stacks[rest].depth + 1};
    if (s.depth > MAX_STACK) return UNKNOWN;
    if (!grow_table(m, &m->stack_table, true)) goto broken;
    table *t = &m->stack_table;
    size_t at = stack_hash(&s) & (t->capacity - 1);
    for (; t->slots[at] != UNKNOWN; at = (at + 1) & (t->capacity - 1)) {
        const stack *other = &m->stacks[t->slots[at]];
        if (other->vertex == vertex && other->rest == rest) return t->slots[at];
    }
    if (pl_grow((void **)&m->stacks, &m->stacks_capacity, m->n_stacks + 1, sizeof s)) goto broken;
    m->stacks[m->n_stacks] = s;
    t->slots[at] = (uint32_t)m->n_stacks;
    t->n++;
    return (uint32_t)m->n_stacks++;
broken:
    m->broken = true;
    return UNKNOWN;
}

/* ---- sets ------------------------------------------------------------------------------------ */

static void append(pl_matcher *m, uint32_t **list, size_t *n, size_t *capacity, uint32_t v)
{
    if (pl_grow((void **)list, capacity, *n + 1, sizeof v))
        m->broken = true;
    else
        (*list)[(*n)++] = v;
}

static void begin_set(pl_matcher *m)
{
    m->n_set = m->n_seen = m->looked = 0;
    m->set_mark++;
    m->seen_mark++;
    m->whole = m->broken = false;
}

static void add_to_set(pl_matcher *m, uint32_t s)
{
    if (m->stacks[s].set_mark == m->set_mark) return;
    m->stacks[s].set_mark = m->set_mark;
    append(m, &m->set, &m->n_set, &m->set_capacity, s);
}

/* s: UNKNOWN for none. */
static void add_to_seen(pl_matcher *m, uint32_t s)
{
    if (s == UNKNOWN || m->stacks[s].seen_mark == m->seen_mark) return;
    m->stacks[s].seen_mark = m->seen_mark;
    append(m, &m->seen, &m->n_seen, &m->seen_capacity, s);
}

/* Adds the places that a text reaches from `vertex` without a byte more, `rest` being what comes
 * after the vertex's rule. seen[] holds what was looked at for this set, and what is still to be.
 */
static void reach(pl_matcher *m, uint32_t vertex, uint32_t rest)
{
    add_to_seen(m, push(m, vertex, rest));
    for (; m->looked < m->n_seen && !m->broken; m->looked++) {
        uint32_t at = m->seen[m->looked];
        stack s = m->stacks[at];
        struct vertex v = m->g->vertices[s.vertex];
        uint32_t a = UNKNOWN, b = UNKNOWN, back;
        switch (v.kind) {
        case VERTEX_BYTE:
            add_to_set(m, at);
            break;
        case VERTEX_SPLIT:
            a = push(m, v.a, s.rest);
            b = push(m, v.b, s.rest);
            break;
        case VERTEX_CALL: /* a call at a rule's end leaves nothing to come back to */
            back = m->g->vertices[v.b].kind == VERTEX_END ? s.rest : push(m, v.b, s.rest);
            if (back != UNKNOWN) a = push(m, v.a, back);
            break;
        case VERTEX_END:
            if (s.rest)
                a = s.rest;
            else
                m->whole = true;
            break;
        }
        add_to_seen(m, a);
        add_to_seen(m, b);
    }
}

static int ascending(const void *a_, const void *b_)
{
    const uint32_t *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* The state of the set made; DEAD for the empty one and when memory is out. */
static uint32_t state_of_set(pl_matcher *m)
{
    if (m->broken || (!m->n_set && !m->whole)) return DEAD;
    qsort(m->set, m->n_set, sizeof *m->set, ascending);
    if (!grow_table(m, &m->state_table, false)) goto broken;
    table *t = &m->state_table;
    size_t at = set_hash(m->set, m->n_set, m->whole) & (t->capacity - 1);
    for (; t->slots[at] != UNKNOWN; at = (at + 1) & (t->capacity - 1)) {
        const state *s = &m->states[t->slots[at]];
        if (s->n == m->n_set && s->whole == m->whole &&
            !memcmp(m->places + s->first, m->set, s->n * sizeof *m->set))
            return t->slots[at];
    }
    if (pl_grow((void **)&m->states, &m->states_capacity, m->n_states + 1, sizeof *m->states) ||
        pl_grow((void **)&m->places, &m->places_capacity, m->n_places + m->n_set + 1,
                sizeof *m->places))
        goto broken;
    state *s = &m->states[m->n_states];
    s->first = (uint32_t)m->n_places;
    s->n = (uint32_t)m->n_set;
    s->whole = m->whole;
    memset(s->to, 0xff, sizeof s->to);
    if (m->n_set) memcpy(m->places + m->n_places, m->set, m->n_set * sizeof *m->set);
    m->n_places += m->n_set;
    t->slots[at] = (uint32_t)m->n_states;
    t->n++;
    return (uint32_t)m->n_states++;
broken:
    m->broken = true;
    return DEAD;
}

static uint32_t step(pl_matcher *m, uint32_t from, uint8_t byte)
{
    uint32_t to = m->states[from].to[byte];
    if (to != UNKNOWN) return to;
    begin_set(m);
    for (uint32_t i = 0; i < m->states[from].n && !m->broken; i++) {
        stack s = m->stacks[m->places[m->states[from].first + i]];
        const struct vertex *v = &m->g->vertices[s.vertex];
        if (byte >= v->first && byte <= v->last) reach(m, v->a, s.rest);
    }
    to = state_of_set(m);
    if (!m->broken) m->states[from].to[byte] = to;
    return to;
}

/* Forgets all states but the first ones and the current one, whose places stay. */
static bool forget(pl_matcher *m)
{
    const state *s = &m->states[m->now];
    begin_set(m);
    m->whole = s->whole;
    for (uint32_t i = 0; i < s->n; i++) add_to_set(m, m->places[s->first + i]);
    memset(m->state_table.slots, 0xff, m->state_table.capacity * sizeof *m->state_table.slots);
    m->state_table.n = 0;
    m->n_states = 1;
    m->n_places = 0;
    m->now = state_of_set(m);
    m->begin = UNKNOWN;
    return m->now != DEAD;
}

/* ---- the matcher ----------------------------------------------------------------------------- */

static uint32_t begin(pl_matcher *m)
{
    begin_set(m);
    reach(m, m->g->begin, 0);
    return state_of_set(m);
}

pleach_status pl_matcher_open(const pl_grammar *g, pl_matcher **out, pleach_error *err)
{
    *out = NULL;
    pl_matcher *m = pl_calloc(1, sizeof *m);
    if (!m) return pl_fail_memory(err, "a grammar's matcher", sizeof *m);
    m->g = g;
    bool good = !pl_grow((void **)&m->stacks, &m->stacks_capacity, 1, sizeof *m->stacks) &&
                !pl_grow((void **)&m->states, &m->states_capacity, 1, sizeof *m->states);
    if (good) {
        m->stacks[0] = (stack){0};
        m->n_stacks = m->n_states = 1;
        memset(&m->states[DEAD], 0, sizeof *m->states); /* every byte leads back to it */
        m->now = m->begin = begin(m);
    }
    if (!good || m->broken) {
        pl_matcher_close(m);
        return pl_fail_memory(err, "a grammar's matcher", sizeof(state));
    }
    *out = m;
    return PLEACH_OK;
}

void pl_matcher_close(pl_matcher *m)
{
    if (!m) return;
    pl_free(m->stacks);
    pl_free(m->states);
    pl_free(m->places);
    pl_free(m->stack_table.slots);
    pl_free(m->state_table.slots);
    pl_free(m->set);
    pl_free(m->seen);
    pl_free(m);
}

void pl_matcher_restart(pl_matcher *m)
{
    if (m->begin == UNKNOWN) m->begin = begin(m);
    m->now = m->begin;
}

bool pl_matcher_may_end(const pl_matcher *m)
{
    return m->states[m->now].whole;
}

bool pl_matcher_take(pl_matcher *m, const char *bytes, size_t size)
{
    if (m->n_states > MAX_STATES && !forget(m)) return false;
    uint32_t at = m->now;
    for (size_t i = 0; i < size && at != DEAD; i++) at = step(m, at, (uint8_t)bytes[i]);
    if (at == DEAD) return false;
    m->now = at;
    return true;
}

/* Tokens in the order of their bytes: the states of the prefix that a token shares with the one
 * before are known, and all tokens with a dead prefix are passed over. */
void pl_matcher_mask(pl_matcher *m, const pl_token_list *l, uint32_t *allowed)
{
    uint32_t path[PL_LONGEST_TOKEN + 1];
    memset(allowed, 0, (l->n_ids + 31) / 32 * sizeof *allowed);
    if (m->n_states > MAX_STATES && !forget(m)) return;
    path[0] = m->now;
    for (size_t i = 0; i < l->n;) {
        const listed_token *t = &l->tokens[i];
        size_t depth = t->shared;
        while (depth < t->size && path[depth] != DEAD) {
            path[depth + 1] = step(m, path[depth], (uint8_t)t->bytes[depth]);
            depth++;
        }
        if (path[depth] != DEAD) {
            allowed[t->id / 32] |= 1u << t->id % 32;
            i++;
            continue;
        }
        for (i++; i < l->n && l->tokens[i].shared >= depth;) i++;
    }
}
