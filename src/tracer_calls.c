#include "tracer.h"

#include <linux/futex.h>
#include <sys/socket.h>

#ifndef FUTEX_LOCK_PI2 /* Linux 5.14 */
#define FUTEX_LOCK_PI2 13
#endif

/* FUTEX_WAIT_REQUEUE_PI is no wait in this sense: interrupted, it returns EAGAIN. */
static bool futex_op_restarts(uint64_t op)
{
    switch (op & FUTEX_CMD_MASK & UINT32_MAX) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
    case FUTEX_LOCK_PI:
    case FUTEX_LOCK_PI2:
        return true;
    default:
        return false;
    }
}

bool tracer_may_stop(enum abi abi, const struct procfs_syscall *c)
{
    if (c->kind != SYSCALL_BLOCKED)
        return false;
    switch (syscalls_lookup(abi, c->nr)) {
    case CALL_futex:
    case CALL_futex_time64:
        return futex_op_restarts(c->arg[1]);
    case CALL_futex_wait:
    case CALL_futex_waitv:
    case CALL_restart_syscall: /* of a call that restarts */
    case CALL_poll:
    case CALL_nanosleep:
    case CALL_clock_nanosleep:
    case CALL_clock_nanosleep_time64:
    case CALL_pause:
    case CALL_rt_sigsuspend:
    case CALL_msgrcv:
    case CALL_mq_timedreceive:
    case CALL_wait4:
    case CALL_waitpid:
    case CALL_waitid:
        return true;
    /* These write back how much of the time-out is left, and return EINTR where they cannot: it
     * may lie in read-only memory. */
    case CALL_ppoll:
    case CALL_ppoll_time64:
        return c->arg[2] == 0;
    case CALL_select:
    case CALL__newselect:
    case CALL_pselect6:
    case CALL_pselect6_time64:
        return c->arg[4] == 0;
    default:
        return false;
    }
}

bool tracer_cuts_short(enum abi abi, const struct procfs_syscall *c)
{
    if (c->kind != SYSCALL_BLOCKED)
        return false;
    switch (syscalls_lookup(abi, c->nr)) {
    case CALL_write:
    case CALL_writev:
    case CALL_pwrite64:
    case CALL_pwritev:
    case CALL_pwritev2:
    case CALL_sendto:
    case CALL_sendmsg:
    case CALL_sendmmsg:
    case CALL_socketcall:
    case CALL_splice:
    case CALL_tee:
    case CALL_vmsplice:
    case CALL_sendfile:
    case CALL_sendfile64:
    case CALL_copy_file_range:
    case CALL_recvmmsg: /* so many messages */
    case CALL_recvmmsg_time64:
        return true;
    case CALL_io_getevents: /* at least so many events: of one, no part can be done */
    case CALL_io_pgetevents:
        return c->arg[1] > 1;
    case CALL_io_uring_enter: /* submits, then waits */
        return c->arg[1] > 0 && c->arg[2] > 0;
    case CALL_recv:
    case CALL_recvfrom:
        return c->arg[3] & MSG_WAITALL;
    case CALL_recvmsg:
        return c->arg[2] & MSG_WAITALL;
    default:
        return false;
    }
}

/* Not close, whose descriptor is gone even so, nor calls that make something (open, mkdir). */
bool tracer_can_restart(enum call call)
{
    switch (call) {
    case CALL_epoll_wait:
    case CALL_epoll_pwait:
    case CALL_epoll_pwait2:
    case CALL_select:
    case CALL__newselect:
    case CALL_pselect6:
    case CALL_pselect6_time64:
    case CALL_ppoll:
    case CALL_ppoll_time64:
    case CALL_semop:
    case CALL_semtimedop:
    case CALL_semtimedop_time64:
    case CALL_ipc:
    case CALL_rt_sigtimedwait:
    case CALL_rt_sigtimedwait_time64:
    case CALL_io_getevents:
    case CALL_io_pgetevents:
    case CALL_io_uring_enter:
    case CALL_read:
    case CALL_readv:
    case CALL_write:
    case CALL_writev:
    case CALL_recv:
    case CALL_recvfrom:
    case CALL_recvmsg:
    case CALL_recvmmsg:
    case CALL_recvmmsg_time64:
    case CALL_sendto:
    case CALL_sendmsg:
    case CALL_sendmmsg:
    case CALL_accept:
    case CALL_accept4:
    case CALL_connect:
    case CALL_socketcall:
    case CALL_flock:
    case CALL_fcntl:
    case CALL_fcntl64:
    case CALL_fallocate:
        return true;
    default:
        return false;
    }
}
