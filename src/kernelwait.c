#include "kernelwait.h"

#include <string.h>

#include "compiler.h"

enum { MMAP, INODE, JOURNAL, NFS, FUSE, LEASE };

static const struct kernel_family families[] = {
    [MMAP] = {"mmap_lock", KERNEL_PROCESS, MMAP}, [INODE] = {"inode lock", KERNEL_FILE, INODE},
    [JOURNAL] = {"journal", KERNEL_ALL, JOURNAL}, [NFS] = {"NFS server", KERNEL_ALL, NFS},
    [FUSE] = {"FUSE daemon", KERNEL_ALL, FUSE},   [LEASE] = {"file lease", KERNEL_FILE, LEASE},
};

/* wchan leaves out the functions of the scheduler and of the locks themselves (__sched), so it
 * names who calls them. The first that fits counts. */
static const struct {
    const char *prefix;
    int family;
} by_wchan[] = {
    {"mmap_read_lock", MMAP},
    {"mmap_write_lock", MMAP},
    {"lock_mm_and_find_vma", MMAP},
    {"do_user_addr_fault", MMAP},
    {"vm_mmap_pgoff", MMAP},
    {"__vm_munmap", MMAP},
    {"do_mprotect_pkey", MMAP},
    {"do_madvise", MMAP},
    {"__do_sys_mremap", MMAP},
    {"__do_sys_brk", MMAP},
    {"ext4_file_write_iter", INODE},
    {"ext4_buffered_write_iter", INODE},
    {"ext4_dio_", INODE},
    {"ext4_file_read_iter", INODE},
    {"xfs_ilock", INODE},
    {"xfs_file_", INODE},
    {"btrfs_inode_lock", INODE},
    {"btrfs_ilock", INODE},
    {"generic_file_write_iter", INODE},
    {"inode_lock", INODE},
    {"lock_rename", INODE},
    {"filename_create", INODE},
    {"do_unlinkat", INODE},
    {"do_rmdir", INODE},
    {"iterate_dir", INODE},
    {"open_last_lookups", INODE},
    {"jbd2_", JOURNAL},
    {"wait_transaction_", JOURNAL},
    {"start_this_handle", JOURNAL},
    {"add_transaction_credits", JOURNAL},
    {"do_get_write_access", JOURNAL},
    {"xlog_", JOURNAL},
    {"xfs_log_", JOURNAL},
    {"btrfs_commit_transaction", JOURNAL},
    {"wait_current_trans", JOURNAL},
    {"__break_lease", LEASE}, /* in open() and the like: until its holder gives the lease back */
    {"nlmclnt_", NFS},
    {"nfs", NFS},
    {"rpc_wait_bit", NFS},
    {"request_wait_answer", FUSE},
    {"fuse_", FUSE},
    {"__fuse_", FUSE},
};

const struct kernel_family *kernelwait_of(const struct thread_fact *f)
{
    if (!f->wchan || (f->seen != SEEN_CALL && f->seen != SEEN_FAULT))
        return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(by_wchan); i++) {
        if (strncmp(f->wchan, by_wchan[i].prefix, strlen(by_wchan[i].prefix)) == 0)
            return &families[by_wchan[i].family];
    }
    return NULL;
}
