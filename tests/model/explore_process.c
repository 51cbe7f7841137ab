/* SPDX-License-Identifier: Apache-2.0 */
/*
 * explore_process: coroutines.
 *
 * A process stops in process_stop(), which is called at an access in the source. The part of
 * the stack above its stack pointer, with the saved registers, is the state of the process:
 * it is saved and hashed. The part below is zeroed before the process continues, so that it
 * carries no information.
 */
#include "explore.h"

#include <string.h>
#include <sys/mman.h>

#if !defined(__x86_64__) || defined(MODEL_UCONTEXT)
#include <ucontext.h>
#endif

enum { ZEROED_BYTES = 4096, NOT_SAVED = UINT32_MAX };
#define IMAGES_BYTES (UINT64_C(1) << 32)

static uint8_t *images;
static uint32_t image_end;
static uint32_t physical[PROCESSES + 1]; /* the image that the stack of each process has now */
static void (*entry[PROCESSES + 1])(void);
static void *explorer_sp, *stopped_sp;

static uint64_t stack_of(unsigned process)
{
    return STACKS_BASE + process * (uint64_t)STACK_BYTES;
}

/* ---- the switch -------------------------------------------------------------------------- */

#if defined(__x86_64__) && !defined(MODEL_UCONTEXT)

void model_switch(void **save_sp, void *next_sp);
__asm__(".text\n"
        ".globl model_switch\n"
        ".type model_switch, @function\n"
        "model_switch:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size model_switch, .-model_switch\n");

static void *first_sp(unsigned process, void (*begin)(void))
{
    uint64_t *top = (uint64_t *)(stack_of(process) + STACK_BYTES) - 2;
    *--top = 0; /* begin() has no return address */
    *--top = (uint64_t)begin;
    return top - 6;
}

#else

/* The registers are saved on the stack of the process, and so with it. */
static void model_switch(void **save_sp, void *next_sp)
{
    ucontext_t here;
    memset(&here, 0, sizeof here);
    *save_sp = &here;
    swapcontext(&here, next_sp);
}

static void *first_sp(unsigned process, void (*begin)(void))
{
    ucontext_t *context =
        (ucontext_t *)((stack_of(process) + STACK_BYTES - sizeof *context) & ~UINT64_C(63));
    getcontext(context);
    context->uc_stack.ss_sp = (void *)stack_of(process);
    context->uc_stack.ss_size = (size_t)((uint64_t)context - stack_of(process));
    context->uc_link = NULL;
    makecontext(context, begin, 0);
    return context;
}

#endif

/* ---- running ----------------------------------------------------------------------------- */

void process_open(void)
{
    if (images == NULL) {
        images = mmap(NULL, IMAGES_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        mmap((void *)STACKS_BASE, STACKS_END - STACKS_BASE, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    image_end = 0;
}

static void begin(void)
{
    struct op first = {.kind = OP_POINT};
    if (ex.self < ex.model->process_count && ex.model->kills > 0)
        process_stop(&first); /* the process may die before its first step */
    entry[ex.self]();
    struct op op = {.kind = OP_RETURN};
    for (;;)
        runtime_stop(&op);
}

void process_prepare(unsigned process, void (*run)(void))
{
    struct process *p = &ex.machine.process[process];
    memset(p, 0, sizeof *p);
    memset((void *)stack_of(process), 0, STACK_BYTES);
    entry[process] = run;
    p->sp = (uint32_t)((uint64_t)first_sp(process, begin) - stack_of(process));
    physical[process] = p->image = NOT_SAVED;
}

static void hash_stack(struct process *p, const uint64_t *from, const uint64_t *to)
{
    uint64_t a = (uint64_t)(to - from), b = 0;
    for (; from < to; from += 2) {
        uint64_t next = from + 1 < to ? from[1] : 0;
        a = mix(a ^ from[0], next); /* a and b do not wait for each other */
        b = mix(b ^ next, from[0]);
    }
    p->hash[0] = a;
    p->hash[1] = b;
}

void process_run(unsigned process)
{
    struct process *p = &ex.machine.process[process];
    uint64_t stack = stack_of(process);
    if (physical[process] != p->image && p->image != NOT_SAVED)
        memcpy((void *)(stack + p->sp), images + p->image, STACK_BYTES - p->sp);
    uint32_t zeroed = p->sp < ZEROED_BYTES ? p->sp : ZEROED_BYTES;
    memset((void *)(stack + p->sp - zeroed), 0, zeroed);

    ex.self = process;
    world_load_statics(process);
    ex.is_inside = true;
    model_switch(&explorer_sp, (void *)(stack + p->sp));
    ex.is_inside = false;
    world_take_notes();
    p->sp = (uint32_t)((uint64_t)stopped_sp - stack);
    physical[process] = p->image = NOT_SAVED;
    hash_stack(p, (const uint64_t *)(stack + p->sp), (const uint64_t *)(stack + STACK_BYTES));
}

void process_stop(const struct op *op)
{
    ex.machine.process[ex.self].op = *op;
    model_switch(&stopped_sp, explorer_sp);
}

void process_abandon(void)
{
    for (;;)
        model_switch(&stopped_sp, explorer_sp);
}

/* ---- images ------------------------------------------------------------------------------ */

void process_save(unsigned process)
{
    struct process *p = &ex.machine.process[process];
    uint32_t size_bytes = STACK_BYTES - p->sp;
    if (image_end + (uint64_t)size_bytes > IMAGES_BYTES - STACK_BYTES) {
        step_fail("no room for more stacks: the run is too long");
        return;
    }
    memcpy(images + image_end, (const void *)(stack_of(process) + p->sp), size_bytes);
    physical[process] = p->image = image_end;
    image_end += size_bytes;
}

uint32_t process_image_mark(void) { return image_end; }

void process_forget_images(uint32_t mark)
{
    image_end = mark;
    for (unsigned p = 0; p <= PROCESSES; p++)
        if (physical[p] != NOT_SAVED && physical[p] >= mark)
            physical[p] = NOT_SAVED;
}
