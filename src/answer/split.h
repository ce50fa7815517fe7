/* SPDX-License-Identifier: Apache-2.0
 *
 * Content, reasoning and calls told apart in a text that comes piece by piece. Positions are from
 * the first byte that nobody was shown yet. */
#ifndef PL_ANSWER_SPLIT_H
#define PL_ANSWER_SPLIT_H

#include "answer.h"
#include "json_scan.h"

/* {"name": .., "arguments": {..}} as far as it came. */
typedef struct pl_json_call {
    pl_json_scan scan;                                        /* of the call */
    pl_json_scan shown;                                       /* of the arguments that were shown */
    enum { PL_KEY_OTHER, PL_KEY_NAME, PL_KEY_ARGUMENTS } key; /* whose value it is */
    size_t string;                                            /* where the last one begins */
    size_t name, name_size; /* of the name with its quotes; 0: none yet */
    size_t from, to;        /* arguments that were not shown */
    bool has_arguments, in_arguments;
} pl_json_call;

/* <function=f><parameter=x>..</parameter></function> as far as it came. */
typedef struct pl_xml_call {
    enum { PL_XML_NAME, PL_XML_BETWEEN, PL_XML_KEY, PL_XML_VALUE } where;
    const json_t *properties; /* of the function; NULL: not known */
    bool any;                 /* a parameter came */
    bool string;              /* the value is one, and shown as it comes */
    bool began;               /* the line end before the value was seen */
    size_t scan;              /* bytes of the value that hold no end of it */
} pl_xml_call;

typedef struct pl_splitter {
    enum {
        PL_SPLIT_BEGIN, /* <think> may come */
        PL_SPLIT_REASONING,
        PL_SPLIT_ANSWER, /* of which nothing came but blanks */
        PL_SPLIT_CONTENT,
        PL_SPLIT_CALL,
        PL_SPLIT_AFTER /* a call */
    } phase;
    size_t at;    /* bytes of the text that are done */
    size_t scan;  /* bytes behind that were looked at */
    bool trim;    /* blanks that come next are left out */
    bool open;    /* calls began by a marker that is not closed */
    size_t calls; /* that were shown */

    /* The call that is read. */
    enum { PL_CALL_UNKNOWN, PL_CALL_JSON, PL_CALL_XML } kind;
    size_t head; /* bytes before it: blanks and a marker */
    size_t pos;  /* bytes of it, the head among them, that were read */
    bool shown;  /* its name was */
    pl_json_call json;
    pl_xml_call xml;
} pl_splitter;

void pl_splitter_begin(pl_splitter *s, const pl_answer_settings *set);
/* A special token that is a marker. */
bool pl_splitter_knows(const pl_answer_settings *set, const char *literal, size_t size);

/* ---- calls ----------------------------------------------------------------------------------- */

typedef enum pl_call_state {
    PL_CALL_WAITS, /* for more text */
    PL_CALL_DONE,
    PL_CALL_BAD /* it is none, or goes on as none can: from pos on it is content */
} pl_call_state;

/* Read on from s->pos. */
pleach_status pl_json_call_read(pl_answer *a, pl_call_state *state, pleach_error *err);
pleach_status pl_xml_call_read(pl_answer *a, bool last, pl_call_state *state, pleach_error *err);

/* ---- matching -------------------------------------------------------------------------------- */

typedef enum pl_match { PL_MATCH_NO, PL_MATCH_PART, PL_MATCH_ALL } pl_match;

/* Whether text begins with the marker, or is a beginning of it and more may come. */
pl_match pl_match_marker(const char *text, size_t size, const char *marker, bool last);

#endif
