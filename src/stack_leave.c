#include "stack_leave.h"

#include <string.h>
#include <ucontext.h>

#include "callcode.h"
#include "compiler.h"
#include "gotable.h"

#if defined(__x86_64__)

#define FRAME_MAX 32768 /* bytes that a frame left without its table may have */
#define FAR_CALL  65536 /* bytes from a function's start to where it is */
#define START_MAX 64    /* bytes of a program's very first code */

static bool word_at(struct walk *w, uint64_t addr, uint64_t *value)
{
    return walk_read(w, addr, value, sizeof(*value));
}

static enum call_kind call_before(struct walk *w, uint64_t ret, uint64_t *target)
{
    uint8_t code[CALLCODE_BYTES];

    *target = 0;
    w->work++;
    if (ret < WALK_BLOCK || walk_is_stack(w, ret) || !space_is_code(w->space, ret - 1) ||
        !walk_read(w, ret - CALLCODE_BYTES, code, sizeof(code)))
        return CALL_NONE;
    return callcode_decode(code, ret, target);
}

/* Recovery of rbp ------------------------------------------------------------------------- */

struct recovery {
    const unw_cursor_t *frame;
    uint64_t sp, function;
    size_t n; /* frames that stand */
};

/* The way on from the frame if rbp is A. */
static enum stack_end try_rbp(struct walk *w, const struct recovery *r, uint64_t a)
{
    unw_cursor_t c = *r->frame;

    w->view.rbp = a;
    w->view.rbp_known = true;
    w->out->n = r->n;
    enum stack_end end = walk_on(w, &c);
    if (end == STACK_BROKEN) {
        w->view.rbp_known = false;
        w->out->n = r->n;
    }
    return end;
}

/* Whether A can be rbp: above it stands a return address behind a call of the function, or with
 * ANY behind any call: the function may have been jumped to by the one that was called. */
static bool is_candidate(struct walk *w, const struct recovery *r, uint64_t a, bool any)
{
    uint64_t ret, target;

    if (!word_at(w, a + 8, &ret))
        return false;
    enum call_kind kind = call_before(w, ret, &target);
    if (kind == CALL_NONE)
        return false;
    return any || callcode_reaches(w->space, kind, target, r->function);
}

static enum stack_end scan_for_rbp(struct walk *w, const struct recovery *r, bool any)
{
    uint64_t first = (r->sp + 7) & ~(uint64_t)7, ret;

    for (uint64_t a = first; a - first < FRAME_MAX && w->work < WALK_WORK_MAX; a += 8) {
        if (!word_at(w, a + 8, &ret))
            break;
        if (!is_candidate(w, r, a, any))
            continue;
        enum stack_end end = try_rbp(w, r, a);
        if (end != STACK_BROKEN)
            return end;
    }
    return STACK_BROKEN;
}

enum stack_end walk_without_rbp(struct walk *w, const unw_cursor_t *frame)
{
    struct recovery r = {.frame = frame, .n = w->out->n};
    unw_cursor_t c = *frame;
    unw_proc_info_t info;
    unw_word_t sp;
    uint64_t size;
    enum stack_end end = STACK_BROKEN;

    if (unw_get_proc_info(&c, &info) != 0 || unw_get_reg(&c, UNW_REG_SP, &sp) != 0)
        return STACK_BROKEN;
    r.function = info.start_ip;
    r.sp = sp;
    /* What the function itself says of its frame leaves only one place. */
    if (callcode_frame_size(w->space, r.function, &size) && is_candidate(w, &r, sp + size, true))
        end = try_rbp(w, &r, sp + size);
    if (end == STACK_BROKEN)
        end = scan_for_rbp(w, &r, false);
    if (end == STACK_BROKEN)
        end = scan_for_rbp(w, &r, true);
    return end;
}

/* Frames without a table ------------------------------------------------------------------- */

/* The way on if the caller of the frame is as in NEXT. */
static enum stack_end try_caller(struct walk *w, const struct view *next, bool exact)
{
    struct view before = w->view;
    size_t n = w->out->n;
    unw_cursor_t c;

    if (!walk_add_frame(w->out, next->pc, exact))
        return walk_end_full(w);
    w->view = *next;
    if (!exact)
        w->view.pc--; /* libunwind takes it for exact, and the call may end its function */
    if (unw_init_remote(&c, w->as, w) == 0) {
        enum stack_end end = walk_on(w, &c);
        if (end != STACK_BROKEN)
            return end;
    }
    w->view = before;
    w->out->n = n;
    return STACK_BROKEN;
}

/* Leaves a handler's frame of a C library without tables: behind its return address lie all
 * registers of the code that was interrupted. */
static enum stack_end leave_handler(struct walk *w, uint64_t sp)
{
    static const uint8_t order[GPRS] = {
        [UNW_X86_64_RAX] = REG_RAX, [UNW_X86_64_RDX] = REG_RDX, [UNW_X86_64_RCX] = REG_RCX,
        [UNW_X86_64_RBX] = REG_RBX, [UNW_X86_64_RSI] = REG_RSI, [UNW_X86_64_RDI] = REG_RDI,
        [UNW_X86_64_RBP] = REG_RBP, [UNW_X86_64_RSP] = REG_RSP, [UNW_X86_64_R8] = REG_R8,
        [UNW_X86_64_R9] = REG_R9,   [UNW_X86_64_R10] = REG_R10, [UNW_X86_64_R11] = REG_R11,
        [UNW_X86_64_R12] = REG_R12, [UNW_X86_64_R13] = REG_R13, [UNW_X86_64_R14] = REG_R14,
        [UNW_X86_64_R15] = REG_R15, [UNW_X86_64_RIP] = REG_RIP,
    };
    uint64_t saved[GPRS], gpr[GPRS];

    if (!walk_read(w, sp + offsetof(ucontext_t, uc_mcontext.gregs), saved, sizeof(saved)))
        return STACK_BROKEN;
    for (size_t i = 0; i < GPRS; i++)
        gpr[i] = saved[order[i]];
    struct view next = {.pc = gpr[UNW_X86_64_RIP], .sp = gpr[UNW_X86_64_RSP], .gpr = gpr};
    return walk_can_be_code(w, next.pc, true) ? try_caller(w, &next, true) : STACK_BROKEN;
}

/* Whether a caller can go on at PC. Interpreters push return addresses without a call; code in
 * files has one. */
static bool can_return_to(struct walk *w, uint64_t pc)
{
    uint64_t target;

    return space_find(w->space, pc - 1) ? call_before(w, pc, &target) != CALL_NONE
                                        : space_is_code(w->space, pc - 1);
}

/* The way on if the word at AT is the caller's rbp, and behind it stands where that goes on. */
static enum stack_end try_link(struct walk *w, uint64_t at)
{
    struct view next = {.sp = at + 16, .rbp_known = true};

    if (!word_at(w, at, &next.rbp) || !word_at(w, at + 8, &next.pc) || !can_return_to(w, next.pc))
        return STACK_BROKEN;
    w->sure++;
    return try_caller(w, &next, false);
}

/* Generated code may save rbp at the top of its frame and yet not have it point there. The lowest
 * place with RBP, or with 0 the lowest with any address further up, and with generated code behind
 * it. */
static enum stack_end scan_for_link(struct walk *w, uint64_t sp, uint64_t end, uint64_t rbp)
{
    uint64_t word, pc;

    for (uint64_t at = sp; at < end && w->work < WALK_WORK_MAX && word_at(w, at, &word); at += 8) {
        w->work++;
        if ((rbp ? word != rbp : word <= at || word - at > FRAME_MAX) || !word_at(w, at + 8, &pc) ||
            space_find(w->space, pc - 1) || !space_is_code(w->space, pc - 1))
            continue;
        enum stack_end found = try_link(w, at);
        if (found != STACK_BROKEN)
            return found;
    }
    return STACK_BROKEN;
}

/* Leaves a frame of code that is in no file. *RBP is NULL when it is not known. */
static enum stack_end leave_generated(struct walk *w, uint64_t sp, const uint64_t *rbp)
{
    bool near = rbp && *rbp >= sp && *rbp - sp <= FRAME_MAX;
    enum stack_end end = near ? scan_for_link(w, sp, *rbp, *rbp) : STACK_BROKEN;

    if (end == STACK_BROKEN && near)
        end = try_link(w, *rbp);
    return end == STACK_BROKEN ? scan_for_link(w, sp, sp + FRAME_MAX, 0) : end;
}

/* Whether a call to TARGET can have led to PC. */
static bool can_lead_to(const struct walk *w, enum call_kind kind, uint64_t target, uint64_t pc)
{
    if (kind != CALL_DIRECT)
        return kind != CALL_NONE;
    if (!space_find(w->space, pc))
        return true;
    return (target <= pc && pc - target < FAR_CALL) ||
           space_find(w->space, target) != space_find(w->space, pc);
}

static enum stack_end scan_for_caller(struct walk *w, uint64_t pc, uint64_t sp)
{
    for (uint64_t at = sp; at - sp < FRAME_MAX && w->work < WALK_WORK_MAX; at += 8) {
        struct view next = {.sp = at + 8};
        uint64_t target;

        if (!word_at(w, at, &next.pc))
            break;
        enum call_kind kind = call_before(w, next.pc, &target);
        if (!can_lead_to(w, kind, target, pc))
            continue;
        w->scanned = true;
        w->sure = 0;
        enum stack_end end = try_caller(w, &next, false);
        if (end != STACK_BROKEN)
            return end;
    }
    return STACK_BROKEN;
}

/* Whether nothing can have called the code at PC: it begins the program, or behind it the thread
 * ends. */
static bool is_outermost(const struct walk *w, uint64_t pc)
{
    const struct mapped *p = space_find(w->space, pc);
    uint64_t into = p ? pc - p->bias - p->module->entry : 0;

    return (p && p->module->entry && into > 0 && into <= START_MAX) ||
           callcode_ends_thread(w->space, pc);
}

/* Leaves a frame of Go code. */
static enum stack_end leave_go(struct walk *w, const struct mapped *p, uint64_t pc, uint64_t sp)
{
    const struct module *m = p->module;
    bool exact = w->out->exact[w->out->n - 1];
    struct go_frame frame;
    struct view next;

    if (!gotable_find(m->go_table, m->go_size, m->go_text, pc - p->bias - !exact, &frame))
        return STACK_BROKEN;
    if (frame.outermost)
        return STACK_COMPLETE;
    next = (struct view){.sp = sp + frame.size + 8};
    if (!word_at(w, sp + frame.size, &next.pc) || !walk_can_be_code(w, next.pc, false))
        return w->no_copy ? STACK_CUT : STACK_BROKEN;
    w->sure++;
    return try_caller(w, &next, false);
}

/* Leaves a frame of code in a file, or of none, without anything that tells how. */
static enum stack_end guess_caller(struct walk *w, uint64_t pc, uint64_t sp, const uint64_t *rbp)
{
    enum stack_end end = STACK_BROKEN;

    if (!space_find(w->space, pc))
        end = leave_generated(w, sp, rbp);
    else if (rbp && *rbp >= sp && *rbp - sp <= FRAME_MAX)
        end = try_link(w, *rbp);
    if (end == STACK_BROKEN)
        end = scan_for_caller(w, pc, sp);
    w->out->guessed |= end != STACK_BROKEN;
    /* The ABI has rbp 0 in the outermost frame; but code may have it so anywhere. */
    return end == STACK_BROKEN && rbp && *rbp == 0 ? STACK_COMPLETE : end;
}

enum stack_end walk_without_table(struct walk *w, unw_cursor_t *frame)
{
    unw_word_t sp = 0, rbp = 0;
    uint64_t pc = w->out->pc[w->out->n - 1];
    const struct mapped *p = space_find(w->space, pc);
    bool rbp_known = unw_get_reg(frame, UNW_X86_64_RBP, &rbp) == 0;
    enum stack_end end = STACK_BROKEN;

    unw_get_reg(frame, UNW_REG_SP, &sp);
    if (callcode_is_sigreturn(w->space, pc))
        return leave_handler(w, sp);
    if (is_outermost(w, pc))
        return STACK_COMPLETE;
    if (p && p->module->go_table)
        end = leave_go(w, p, pc, sp);
    return end == STACK_BROKEN ? guess_caller(w, pc, sp, rbp_known ? &rbp : NULL) : end;
}

#else

enum stack_end walk_without_rbp(struct walk *w UNUSED, const unw_cursor_t *frame UNUSED)
{
    return STACK_BROKEN;
}

enum stack_end walk_without_table(struct walk *w UNUSED, unw_cursor_t *frame UNUSED)
{
    return STACK_BROKEN;
}

#endif
