/*
 * sockets.h - what a socket is connected to: /proc/PID/net/{tcp,tcp6,udp,udp6,unix}. The parsers
 * are pure functions of a text.
 */
#ifndef LT_SOCKETS_H
#define LT_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Finds the socket INODE in the text of such a file (PROTO "tcp", "tcp6", ...) and writes what it
 * is connected to into DST: "tcp 127.0.0.1:5432" (the peer), "tcp [::1]:5432", "tcp listening on
 * 0.0.0.0:80", "udp bound to 0.0.0.0:68", "unix /run/x.sock" (its own path; a peer's stands
 * nowhere), "unix (no name)". A path is raw bytes of the target. False when it is not in there. */
bool sockets_find_in(const char *text, const char *proto, uint64_t inode, char *dst, size_t size);

/* Reads the files of the process below DIRFD (of its network namespace) one after the other.
 * Returns 0, -ENOENT when no file has it, or -errno. Costs as much as there are sockets: not for
 * each look. */
int sockets_find(int dirfd, uint64_t inode, char *dst, size_t size);

/* The inode of "socket:[12345]"; 0 when PATH is something else. */
uint64_t sockets_inode(const char *path);

#endif
