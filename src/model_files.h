/*
 * model_files.h - the model's part for what is waited for outside a process's memory: files, System
 * V semaphores, locks inside the kernel.
 */
#ifndef LT_MODEL_FILES_H
#define LT_MODEL_FILES_H

#include "model_internal.h"

/* Takes what a sweep says of files, semaphores and sockets; after threads were made known. */
void model_take_files(struct model *m, const struct sample *s);

/* The row that TH waits for, whose call is no futex wait, and in which mode; NULL: none. */
struct lock_row *model_file_row(struct model *m, const struct process_fact *p,
                                const struct thread *th, enum lock_mode *mode);

/* At the end of a sweep (which began at the time MONO of its sample): utilisation, sleeps. */
void model_end_files(struct model *m, nsec_t mono);

/* Takes a second look at waiting threads. */
void model_take_relook(struct model *m, const struct sample *s);

/* What the source should look at, behind the N requests in OUT; returns how many there are then. */
size_t model_request_files(struct model *m, struct request *out, size_t n, size_t max);

#endif
