/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels, in PTX, which the driver compiles for the card that there is. Their addresses are
 * generic ones, as those of the driver API are.
 */
#include "gpu/facts/facts.h"

/* clang-format off */
static const char text[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    "\n"
    ".visible .entry spin(.param .u64 p_ns, .param .u64 p_flag)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u64 %ns, %flag, %begin, %now;\n"
    "  ld.param.u64 %ns, [p_ns];\n"
    "  ld.param.u64 %flag, [p_flag];\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "AGAIN:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %p, %now, %ns;\n"
    "  @%p bra AGAIN;\n"
    "  setp.eq.u64 %p, %flag, 0;\n"
    "  @%p bra DONE;\n"
    "  mov.u64 %now, 1;\n"
    "  st.volatile.u64 [%flag], %now;\n"
    "DONE:\n"
    "  ret;\n"
    "}\n"
    "\n"
    ".visible .entry count(.param .u64 p_word, .param .u64 p_ns)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u64 %ns, %word, %begin, %now, %value;\n"
    "  ld.param.u64 %word, [p_word];\n"
    "  ld.param.u64 %ns, [p_ns];\n"
    "  mov.u64 %value, 0;\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "AGAIN:\n"
    "  add.u64 %value, %value, 1;\n"
    "  st.volatile.u64 [%word], %value;\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %p, %now, %ns;\n"
    "  @%p bra AGAIN;\n"
    "  ret;\n"
    "}\n"
    "\n"
    ".visible .entry fill(.param .u64 p_at, .param .u64 p_bytes, .param .u32 p_word)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u32 %word, %a, %b, %c;\n"
    "  .reg .u64 %at, %end, %off, %step;\n"
    "  ld.param.u64 %at, [p_at];\n"
    "  ld.param.u64 %end, [p_bytes];\n"
    "  ld.param.u32 %word, [p_word];\n"
    "  mov.u32 %a, %ctaid.x;\n"
    "  mov.u32 %b, %ntid.x;\n"
    "  mov.u32 %c, %tid.x;\n"
    "  mad.lo.u32 %c, %a, %b, %c;\n"
    "  mul.wide.u32 %off, %c, 16;\n"
    "  mov.u32 %a, %nctaid.x;\n"
    "  mul.lo.u32 %a, %a, %b;\n"
    "  mul.wide.u32 %step, %a, 16;\n"
    "  add.u64 %end, %end, %at;\n"
    "  add.u64 %at, %at, %off;\n"
    "AGAIN:\n"
    "  setp.ge.u64 %p, %at, %end;\n"
    "  @%p bra DONE;\n"
    "  st.v4.u32 [%at], {%word, %word, %word, %word};\n"
    "  add.u64 %at, %at, %step;\n"
    "  bra AGAIN;\n"
    "DONE:\n"
    "  ret;\n"
    "}\n"
    "\n"
    ".visible .entry read(.param .u64 p_at, .param .u64 p_bytes, .param .u32 p_word,\n"
    "                   .param .u64 p_ns, .param .u64 p_wrong)\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .u32 %word, %a, %b, %c, %d;\n"
    "  .reg .u64 %first, %at, %end, %off, %step, %ns, %wrong, %begin, %now, %found, %one;\n"
    "  ld.param.u64 %first, [p_at];\n"
    "  ld.param.u64 %end, [p_bytes];\n"
    "  ld.param.u32 %word, [p_word];\n"
    "  ld.param.u64 %ns, [p_ns];\n"
    "  ld.param.u64 %wrong, [p_wrong];\n"
    "  mov.u64 %begin, %globaltimer;\n"
    "  mov.u64 %found, 0;\n"
    "  mov.u32 %a, %ctaid.x;\n"
    "  mov.u32 %b, %ntid.x;\n"
    "  mov.u32 %c, %tid.x;\n"
    "  mad.lo.u32 %c, %a, %b, %c;\n"
    "  mul.wide.u32 %off, %c, 16;\n"
    "  mov.u32 %a, %nctaid.x;\n"
    "  mul.lo.u32 %a, %a, %b;\n"
    "  mul.wide.u32 %step, %a, 16;\n"
    "  add.u64 %end, %end, %first;\n"
    "  add.u64 %first, %first, %off;\n"
    "ROUND:\n"
    "  mov.u64 %at, %first;\n"
    "AGAIN:\n"
    "  setp.ge.u64 %p, %at, %end;\n"
    "  @%p bra PASSED;\n"
    "  ld.volatile.v4.u32 {%a, %b, %c, %d}, [%at];\n"
    "  xor.b32 %a, %a, %word;\n"
    "  xor.b32 %b, %b, %word;\n"
    "  xor.b32 %c, %c, %word;\n"
    "  xor.b32 %d, %d, %word;\n"
    "  or.b32 %a, %a, %b;\n"
    "  or.b32 %c, %c, %d;\n"
    "  or.b32 %a, %a, %c;\n"
    "  setp.ne.u32 %p, %a, 0;\n"
    "  selp.u64 %one, 1, 0, %p;\n"
    "  add.u64 %found, %found, %one;\n"
    "  add.u64 %at, %at, %step;\n"
    "  bra AGAIN;\n"
    "PASSED:\n"
    "  mov.u64 %now, %globaltimer;\n"
    "  sub.u64 %now, %now, %begin;\n"
    "  setp.lt.u64 %p, %now, %ns;\n"
    "  @%p bra ROUND;\n"
    "  setp.eq.u64 %p, %found, 0;\n"
    "  @%p bra DONE;\n"
    "  atom.add.u64 %one, [%wrong], %found;\n"
    "DONE:\n"
    "  ret;\n"
    "}\n";
/* clang-format on */

enum { SPIN, COUNT, FILL, READ, KERNELS };
static const char *const names[KERNELS] = {"spin", "count", "fill", "read"};
static CUfunction functions[KERNELS]; /* of the context that was current at the first launch */

enum { MANY_BLOCKS = 528, THREADS = 256 };

static void load(void)
{
    CUmodule module;
    if (functions[SPIN] != NULL)
        return;
    CALL(cuModuleLoadData, &module, text);
    for (int i = 0; i < KERNELS; i++)
        CALL(cuModuleGetFunction, &functions[i], module, names[i]);
}

/* The kernels with one thread are those that only take time. */
static void launch(CUstream stream, int kernel, void **arguments)
{
    bool is_alone = kernel == SPIN || kernel == COUNT;
    load();
    CALL(cuLaunchKernel, functions[kernel], is_alone ? 1 : MANY_BLOCKS, 1, 1,
         is_alone ? 1 : THREADS, 1, 1, 0, stream, arguments, NULL);
}

void kernel_spin(CUstream stream, uint64_t ns, CUdeviceptr flag)
{
    launch(stream, SPIN, (void *[]){&ns, &flag});
}

void kernel_count(CUstream stream, CUdeviceptr word, uint64_t ns)
{
    launch(stream, COUNT, (void *[]){&word, &ns});
}

void kernel_fill(CUstream stream, CUdeviceptr at, size_t bytes, uint32_t word)
{
    uint64_t all = bytes;
    launch(stream, FILL, (void *[]){&at, &all, &word});
}

void kernel_read(CUstream stream, const struct reading *reading)
{
    struct reading r = *reading;
    launch(stream, READ, (void *[]){&r.at, &r.bytes, &r.word, &r.ns, &r.wrong});
}
