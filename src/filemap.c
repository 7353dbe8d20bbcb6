#include "filemap.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>

#include "xalloc.h"

/* The mappings, for a handler that may take no lock: nodes are only ever added, and used again.
 * Global, as a signal's handler is. */
struct range {
    _Atomic uintptr_t start, end; /* 0: free */
    struct range *next;
};
static _Atomic(struct range *) ranges;
static struct sigaction before;

static bool is_ours(uintptr_t addr)
{
    for (struct range *r = atomic_load(&ranges); r; r = r->next) {
        uintptr_t start = atomic_load(&r->start);
        if (start && addr >= start && addr < atomic_load(&r->end))
            return true;
    }
    return false;
}

static void pass_on(int sig, siginfo_t *info, void *context)
{
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(sig, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(sig);
    else
        sigaction(sig, &before, NULL); /* comes again, and then ends the program */
}

bool filemap_mend(const siginfo_t *info)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)info->si_addr / page * page;

    return info->si_code > 0 && is_ours(at) &&
           mmap((void *)at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
               MAP_FAILED;
}

static void on_bus_error(int sig, siginfo_t *info, void *context)
{
    if (!filemap_mend(info))
        pass_on(sig, info, context);
}

/* At every mapping: the screen's handlers may have gone in between. */
static void guard(void)
{
    struct sigaction now, action = {
                              .sa_sigaction = on_bus_error,
                              .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER,
                          };

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) != 0 ||
        ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus_error))
        return;
    before = now;
    sigaction(SIGBUS, &action, NULL);
}

static void add_range(uintptr_t start, uintptr_t end)
{
    for (struct range *r = atomic_load(&ranges); r; r = r->next) {
        if (atomic_load(&r->end) == 0) {
            atomic_store(&r->end, end);
            atomic_store(&r->start, start);
            return;
        }
    }
    struct range *r = xcalloc(1, sizeof(*r));
    atomic_init(&r->start, start);
    atomic_init(&r->end, end);
    r->next = atomic_load(&ranges);
    while (!atomic_compare_exchange_weak(&ranges, &r->next, r))
        continue;
}

const uint8_t *filemap_new(int fd, size_t size)
{
    if (size == 0)
        return NULL;
    void *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    guard();
    add_range((uintptr_t)p, (uintptr_t)p + size);
    return p;
}

void filemap_free(const uint8_t *image, size_t size)
{
    if (!image)
        return;
    for (struct range *r = atomic_load(&ranges); r; r = r->next) {
        if (atomic_load(&r->start) == (uintptr_t)image) {
            atomic_store(&r->start, 0);
            atomic_store(&r->end, 0);
        }
    }
    munmap((void *)(uintptr_t)image, size);
}
