/* SPDX-License-Identifier: Apache-2.0 */
/* run: what the files share that read and run a graph of Scheduler.run(). */
#ifndef TENON_CORE_RUN_H
#define TENON_CORE_RUN_H

#include "sched.h"

struct node {
    struct tnp_call call;
    struct tnp_run *run;
    PyObject *key, *work; /* owned; work is NULL if the node is data */
    PyObject *value;      /* owned; NULL: not there yet, or dropped */
    bool is_tuple;
    uint32_t input;       /* the first of its inputs in run->inputs */
    uint32_t input_count; /* is_tuple: arguments of the call */
    uint32_t readers;     /* inputs of other nodes, and wishes of the caller, that are open */
    uint32_t task;        /* its number in the graph */
    Py_ssize_t kind;
    PyObject *ran_out;       /* owned; what it raised last, if its memory ran out */
    struct node *ran_before; /* of run->ran_out */
};

struct tnp_run {
    tn_graph *graph;
    struct tnp_run *next; /* of tnp_sched.unfinished */
    struct node *nodes;   /* [count] */
    uint32_t *inputs;     /* [input_count]: nodes, or CONSTANT for an argument of a tuple */
    PyObject *context;    /* copied for each task */
    PyObject *type, *error, *traceback; /* what the first task raised */
    uint32_t count, input_count;
    size_t room, input_room;
    struct node *ran_out; /* the nodes whose memory ran out, the newest first */
    bool says_bytes;      /* the sizes of results matter */
};

enum {
    CONSTANT = UINT32_MAX,
    MOST = CONSTANT / 4, /* nodes of a run, and inputs */
};

/* What run() was given, and what it needs until the graph runs. */
struct reading {
    tnp_sched *its;
    struct tnp_run *run;
    PyObject *graph, *convert, *find_kind; /* borrowed */
    PyTypeObject *node_type, *data_type;   /* borrowed */
    PyObject *numbers;                     /* owned: node by key */
    PyObject *kinds;                       /* owned: kind by the address of a function */
};

/** Read all nodes that the keys need. -1: raised */
int tnp_run_read(struct reading *r, PyObject *keys);
/** Make the names of attributes. -1: raised */
int tnp_run_read_init(void);

#endif
