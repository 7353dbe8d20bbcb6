#include "remote.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <sys/uio.h>

#include "compiler.h"

/* One call for the items up to IOV_MAX of N; bytes read in a row, or -errno. */
static ssize_t read_batch(pid_t pid, const struct remote_item *items, size_t n)
{
    struct iovec local[IOV_MAX], remote[IOV_MAX];

    for (size_t i = 0; i < n; i++) {
        local[i] = (struct iovec){.iov_base = items[i].dst, .iov_len = items[i].len};
        remote[i] =
            (struct iovec){.iov_base = (void *)(uintptr_t)items[i].addr, .iov_len = items[i].len};
    }
    ssize_t got = process_vm_readv(pid, local, n, remote, n, 0);
    return got < 0 ? -errno : got;
}

/* Hands BYTES out to the items in order. Returns how many are settled: the whole ones and the
 * first that is not, where the transfer ended because its next page cannot be read. */
static size_t settle(struct remote_item *items, size_t n, size_t bytes, int *whole)
{
    for (size_t i = 0; i < n; i++) {
        items[i].got = (uint32_t)MIN(bytes, (size_t)items[i].len);
        bytes -= items[i].got;
        if (items[i].got < items[i].len)
            return i + 1;
        ++*whole;
    }
    return n;
}

static int give_up(struct remote_item *items, size_t n, int error)
{
    for (size_t i = 0; i < n; i++)
        items[i].got = 0;
    return error;
}

int remote_read(pid_t pid, struct remote_item *items, size_t n)
{
    int whole = 0;

    for (size_t done = 0; done < n;) {
        size_t batch = MIN(n - done, (size_t)IOV_MAX);
        ssize_t got = read_batch(pid, items + done, batch);

        if (got < 0 && got != -EFAULT)
            return give_up(items, n, (int)got);
        done += settle(items + done, batch, got < 0 ? 0 : (size_t)got, &whole);
    }
    return whole;
}
