/*
 * inspect_files.h - the inspector's answers about locks on files and about sockets.
 */
#ifndef LT_INSPECT_FILES_H
#define LT_INSPECT_FILES_H

#include "inspector.h"

/* The answers to a job of INSPECT_FILES and INSPECT_SOCKET, below ROOTFD; the caller's to free. */
struct inspection *inspect_files(int rootfd, const struct inspect_job *job);
struct inspection *inspect_socket(int rootfd, const struct inspect_job *job);

#endif
