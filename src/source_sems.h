/*
 * source_sems.h - System V semaphores for which somebody waits: what semctl() says of them. Part of
 * source_proc; nothing else includes it.
 *
 * Sets are numbered in each IPC namespace apart, so only those of our own namespace are asked.
 */
#ifndef LT_SOURCE_SEMS_H
#define LT_SOURCE_SEMS_H

#include "sample.h"
#include "source_process.h"

#define SEMS_MAX 64

struct sems {
    struct sem_fact facts[SEMS_MAX]; /* those waited for in this sweep */
    size_t n;
    nsec_t asked_at;
    struct sem_fact known[SEMS_MAX]; /* those of the sweep before */
    size_t nknown;
    char ours[32]; /* our IPC namespace, as its link says; "": not read yet */
};

/* After the threads were looked at: which semaphores are waited for; asks for what they are at most
 * 20 times a second, and at once for new ones. ROOTFD is that of /proc. Reads nothing when nobody
 * waits. */
void sems_look(struct sems *s, struct process *const *procs, size_t n, int rootfd, nsec_t now);

/* Puts them into SAMPLE; the array lives until the next sems_look(). */
void sems_put(const struct sems *s, struct sample *sample);

#endif
