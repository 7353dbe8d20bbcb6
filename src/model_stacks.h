/*
 * model_stacks.h - what the model asks of the inspector, and what it makes of the answers. Part of
 * the model; model.c alone includes it.
 */
#ifndef LT_MODEL_STACKS_H
#define LT_MODEL_STACKS_H

#include "model_internal.h"

/* Takes the sample's stacks and names; its threads are known already. */
void model_take_answers(struct model *m, const struct sample *s);

/* TH is blocked, on th->row if that is not NULL: what its stack says of that, as far as one is
 * known. May give it another row: that of the code that waits, where each waiter sleeps on a word of its
 * own. */
void model_apply_stack(struct model *m, const struct process_fact *p, struct thread *th);

/* Sees to it that R has the name that the user gives it, if any. */
void model_name_row(const struct model *m, struct lock_row *r);

/* Waiters come to R through the function SITE (copied; NULL: not known, R keeps what it has). */
void model_set_site(const struct model *m, struct lock_row *r, const char *site);

/* At the end of a sweep: from time to time, what nobody needs any more goes. */
void model_expire_stacks(struct model *m);

/* Appends requests to OUT (N of MAX are there); returns how many there are then. */
size_t model_request_stacks(struct model *m, struct request *out, size_t n, size_t max);

#endif
