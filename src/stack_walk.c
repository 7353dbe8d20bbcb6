#include "stack_walk.h"

#include <string.h>

#include "callcode.h"
#include "compiler.h"
#include "err.h"
#include "stack_leave.h"

#define CACHED_IPS  1024                /* per process */
#define SURE_FRAMES 8                   /* not found by scanning: these prove a scan right */
#define ONE_ENTRY   (UINT64_MAX - 4095) /* no address of a program */

/* libunwind's own search in an .eh_frame_hdr; exported, but in no header of it. */
#define search_unwind_table UNW_OBJ(dwarf_search_unwind_table)
extern int search_unwind_table(unw_addr_space_t as, unw_word_t ip, unw_dyn_info_t *di,
                               unw_proc_info_t *pi, int need_unwind_info, void *arg);

/* Memory ------------------------------------------------------------------------------- */

static bool in_copy(const struct stack_copy *c, uint64_t addr, size_t len)
{
    return addr >= c->base && addr - c->base <= c->len && len <= c->len - (addr - c->base);
}

static bool read_block(struct walk *w, uint64_t addr, void *dst, size_t len)
{
    uint64_t start = addr / WALK_BLOCK * WALK_BLOCK;

    if (addr + len > start + WALK_BLOCK)
        return space_read(w->space, addr, dst, len);
    if (w->block != start) {
        w->block_len = space_read(w->space, start, w->bytes, WALK_BLOCK) ? WALK_BLOCK : 0;
        w->block = start;
    }
    if (w->block_len)
        memcpy(dst, w->bytes + (addr - start), len);
    return w->block_len != 0;
}

bool walk_is_stack(const struct walk *w, uint64_t addr)
{
    return w->stack && addr >= w->stack->start && addr < w->stack->end;
}

bool walk_read(struct walk *w, uint64_t addr, void *dst, size_t len)
{
    const void *p;

    if (in_copy(w->copy, addr, len)) {
        memcpy(dst, w->copy->bytes + (addr - w->copy->base), len);
        return true;
    }
    p = space_at(w->space, addr, len);
    if (p) {
        memcpy(dst, p, len);
        return true;
    }
    /* Code stays as it is; the rest counts only if the thread has not gone on. */
    bool code = space_is_code(w->space, addr);
    w->no_copy = w->stopped ? !code : walk_is_stack(w, addr);
    if ((w->stopped && !code) || !read_block(w, addr, dst, len))
        return false;
    w->out->live |= !code;
    return true;
}

/* libunwind's side ---------------------------------------------------------------------- */

/* The entry for IP as a table of one, which libunwind then reads at ONE_ENTRY: its own search in
 * the whole table asks for each word. */
static int search_one(struct walk *w, const struct mapped *p, unw_word_t ip, unw_proc_info_t *pi,
                      int need)
{
    const struct module *m = p->module;
    unw_dyn_info_t di = {
        .format = UNW_INFO_FORMAT_REMOTE_TABLE,
        .start_ip = p->start,
        .end_ip = p->end,
        .u.rti = {.segbase = p->bias + m->eh_base, .table_data = ONE_ENTRY, .table_len = 1},
    };

    if (!ehframe_find(m->eh_table, m->eh_entries, (int64_t)(ip - di.u.rti.segbase), &w->entry))
        return -UNW_ENOINFO;
    w->searching = true;
    int rc = search_unwind_table(w->as, ip, &di, pi, need, w);
    w->searching = false;
    return rc;
}

static int find_proc_info(unw_addr_space_t as UNUSED, unw_word_t ip, unw_proc_info_t *pi, int need,
                          void *arg)
{
    struct walk *w = arg;
    const struct mapped *p = space_find(w->space, ip);
    int rc = p && p->module->eh_entries ? search_one(w, p, ip, pi, need) : -UNW_ENOINFO;

    w->no_table |= rc == -UNW_ENOINFO;
    return rc;
}

static void put_unwind_info(unw_addr_space_t as UNUSED, unw_proc_info_t *pi UNUSED,
                            void *arg UNUSED)
{
}

static int get_dyn_info_list(unw_addr_space_t as UNUSED, unw_word_t *addr UNUSED, void *arg UNUSED)
{
    return -UNW_ENOINFO;
}

/* What libunwind asks for while it searches an entry: the entry, its table, and through an address
 * in it the function that runs C++ cleanups. That one stands in a segment that the loader wrote to,
 * and no walk needs it: what the file has there will do, or nothing. */
static int read_while_searching(struct walk *w, unw_word_t addr, unw_word_t *value)
{
    const struct mapped *p = space_find(w->space, addr);
    const void *bytes = addr == ONE_ENTRY ? &w->entry : NULL;
    size_t len = sizeof(*value);

    if (!bytes && p)
        bytes = module_at(p->module, addr - p->bias, len);
    if (!bytes && p && (bytes = module_at(p->module, addr - p->bias, 4)) != NULL)
        len = 4; /* tables end in the middle of what libunwind takes for a word */
    *value = 0;
    if (bytes)
        memcpy(value, bytes, len);
    return bytes || p ? 0 : -UNW_EINVAL;
}

static int access_mem(unw_addr_space_t as UNUSED, unw_word_t addr, unw_word_t *value, int write,
                      void *arg)
{
    struct walk *w = arg;
    const void *half;

    if (write)
        return -UNW_EINVAL;
    if (w->searching)
        return read_while_searching(w, addr, value);
    *value = 0;
    if (!in_copy(w->copy, addr, 4) && !space_at(w->space, addr, sizeof(*value)) &&
        (half = space_at(w->space, addr, 4)) != NULL) {
        memcpy(value, half, 4); /* tables end in the middle of what libunwind takes for a word */
        return 0;
    }
    return walk_read(w, addr, value, sizeof(*value)) ? 0 : -UNW_EINVAL;
}

#if defined(__x86_64__)
static bool rbp_of_view(struct walk *w, unw_regnum_t reg, unw_word_t *value)
{
    if (reg != UNW_X86_64_RBP)
        return false;
    w->no_rbp = !w->view.rbp_known;
    *value = w->view.rbp;
    return w->view.rbp_known;
}
#else
static bool rbp_of_view(struct walk *w UNUSED, unw_regnum_t reg UNUSED, unw_word_t *value UNUSED)
{
    return false;
}
#endif

static int access_reg(unw_addr_space_t as UNUSED, unw_regnum_t reg, unw_word_t *value, int write,
                      void *arg)
{
    struct walk *w = arg;

    if (write)
        return -UNW_EREADONLYREG;
    if (reg == UNW_REG_IP)
        *value = w->view.pc;
    else if (reg == UNW_REG_SP)
        *value = w->view.sp;
    else if (w->view.gpr && reg >= 0 && (size_t)reg < GPRS)
        *value = w->view.gpr[reg];
    else if (!rbp_of_view(w, reg, value))
        return -UNW_EBADREG; /* never 0: the walk must not go on with it */
    return 0;
}

static int access_fpreg(unw_addr_space_t as UNUSED, unw_regnum_t reg UNUSED,
                        unw_fpreg_t *value UNUSED, int write UNUSED, void *arg UNUSED)
{
    return -UNW_EBADREG;
}

static int resume(unw_addr_space_t as UNUSED, unw_cursor_t *c UNUSED, void *arg UNUSED)
{
    return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t as UNUSED, unw_word_t addr UNUSED, char *buf UNUSED,
                         size_t size UNUSED, unw_word_t *offset UNUSED, void *arg UNUSED)
{
    return -UNW_ENOINFO;
}

unw_addr_space_t walk_addr_space_new(void)
{
    static unw_accessors_t accessors = {
        .find_proc_info = find_proc_info,
        .put_unwind_info = put_unwind_info,
        .get_dyn_info_list_addr = get_dyn_info_list,
        .access_mem = access_mem,
        .access_reg = access_reg,
        .access_fpreg = access_fpreg,
        .resume = resume,
        .get_proc_name = get_proc_name,
    };
    unw_addr_space_t as = unw_create_addr_space(&accessors, 0);

    if (!as)
        die(EXIT_FAILED, "out of memory (unwinding)");
    unw_set_caching_policy(as, UNW_CACHE_GLOBAL);
    unw_set_cache_size(as, CACHED_IPS, 0);
    return as;
}

/* The walk ------------------------------------------------------------------------------- */

/* What one step did. */
enum step {
    STEP_ON,       /* a frame was added */
    STEP_START,    /* the frame was the thread's first */
    STEP_FULL,     /* no room for another frame */
    STEP_NO_TABLE, /* the frame's code is in no table */
    STEP_NO_RBP,   /* the frame is found through rbp, which is not known */
    STEP_NO_COPY,  /* the frame is not in the copy */
    STEP_FAILED,
};

bool walk_add_frame(struct stack *out, uint64_t pc, bool exact)
{
    if (out->n == STACK_MAX_FRAMES)
        return false;
    out->pc[out->n] = pc;
    out->exact[out->n++] = exact;
    return true;
}

bool walk_can_be_code(const struct walk *w, uint64_t pc, bool exact)
{
    return space_is_code(w->space, exact ? pc : pc - 1);
}

static enum step why_not(const struct walk *w)
{
    if (w->no_rbp)
        return STEP_NO_RBP;
    return w->no_copy ? STEP_NO_COPY : STEP_FAILED;
}

/* Leaves the frame at C by its table. */
static enum step step(struct walk *w, unw_cursor_t *c)
{
    bool handler = callcode_is_sigreturn(w->space, w->out->pc[w->out->n - 1]);
    unw_word_t sp = 0, ip = 0, next = 0;
    int rc;

    w->no_table = w->no_rbp = w->no_copy = false;
    w->work += WALK_WORK_STEP;
    if (w->work >= WALK_WORK_MAX)
        return STEP_FAILED;
    unw_get_reg(c, UNW_REG_SP, &sp);
    rc = unw_step(c);
    if (w->no_table)
        return STEP_NO_TABLE; /* libunwind's own guess is not what is wanted */
    if (rc < 0)
        return why_not(w);
    unw_get_reg(c, UNW_REG_IP, &ip);
    unw_get_reg(c, UNW_REG_SP, &next);
    /* A frame at an address near 0 looks to libunwind as if it were nowhere: the last one. */
    if ((next <= sp && !handler) || sp < WALK_BLOCK)
        return STEP_FAILED;
    if (rc == 0)
        return STEP_START;
    if (!walk_can_be_code(w, ip, handler))
        return STEP_FAILED;
    w->sure++;
    return walk_add_frame(w->out, ip, handler) ? STEP_ON : STEP_FULL;
}

enum stack_end walk_end_full(const struct walk *w)
{
    return w->scanned && w->sure < SURE_FRAMES ? STACK_BROKEN : STACK_CUT;
}

enum stack_end walk_on(struct walk *w, unw_cursor_t *c)
{
    unw_cursor_t frame;
    enum step did;

    do {
        frame = *c;
        did = step(w, c);
    } while (did == STEP_ON);
    switch (did) {
    case STEP_START:
        return STACK_COMPLETE;
    case STEP_FULL:
    case STEP_NO_COPY:
        return walk_end_full(w);
    case STEP_NO_RBP:
        return walk_without_rbp(w, &frame);
    case STEP_NO_TABLE:
        return walk_without_table(w, &frame);
    default:
        return STACK_BROKEN;
    }
}
