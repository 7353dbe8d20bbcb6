#include "source_events.h"

#define READ_EVERY (250 * NSEC_PER_MSEC)

void events_open(struct events *e)
{
    e->counters = lockevents_open(&e->why);
}

static void follow(struct events *e, const struct file_fact *files, size_t n)
{
    struct file_id ids[LOCKEVENTS_FILES];
    size_t wanted = 0;

    for (size_t i = 0; i < n && wanted < LOCKEVENTS_FILES; i++) {
        if (files[i].fs == FS_LOCAL)
            ids[wanted++] = files[i].file;
    }
    lockevents_follow(e->counters, ids, wanted);
}

void events_look(struct events *e, struct sample *s, nsec_t now, struct self_fact *self)
{
    self->attempts_counted = e->counters != NULL;
    self->attempts_why = e->why;
    e->n = 0;
    if (e->counters && (!e->read_at || now - e->read_at >= READ_EVERY)) {
        e->read_at = now;
        follow(e, s->files, s->nfiles);
        e->n = lockevents_read(e->counters, now, e->facts, LOCKEVENTS_FILES);
    }
    s->attempts = e->facts;
    s->nattempts = e->n;
}

void events_close(struct events *e)
{
    lockevents_close(e->counters);
    *e = (struct events){0};
}
