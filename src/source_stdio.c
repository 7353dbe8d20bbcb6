#include "source_stdio.h"

#include "libc_tid.h"
#include "xalloc.h"

/* What the map was read for may be the library's coming: then it is looked for anew. */
static bool find_offset(struct words *w, memory_reader read)
{
    if (w->tid_offset || w->tid_sought_at == w->maps_at)
        return w->tid_offset != 0;
    w->tid_sought_at = w->maps_at;
    for (size_t i = 0; i < w->maps.n; i++) {
        const struct map_entry *e = &w->maps.entries[i];
        if (e->offset == 0 && maps_path_is_glibc(e->path) &&
            libc_tid_offset(w->tid, e->start, read, &w->tid_offset))
            return true;
    }
    return false;
}

/* Only locks that somebody waits for, or may soon: their word is what locks of libc hold then. */
static bool names_descriptor(const struct word *word, bool late, uint64_t *descriptor)
{
    const struct word_view *view = late ? &word->late : &word->early;
    uint32_t value;

    return word->contended && word_u32(view, 0, &value) && (value == 1 || value == 2) &&
           word_stdio_owner(view, descriptor);
}

void stdio_read_owners(struct words *w, struct word **list, size_t n, memory_reader read, bool late)
{
    struct word_batch *b = &w->batch;
    uint64_t descriptor;
    size_t k = 0;

    for (size_t i = 0; i < n; i++) {
        pid_t *owner = late ? &list[i]->late_owner : &list[i]->early_owner;
        *owner = 0;
        if (w->libc != LIBC_GLIBC || !names_descriptor(list[i], late, &descriptor) ||
            !find_offset(w, read))
            continue;
        b->items = xgrow(b->items, &b->items_cap, k + 1, sizeof(*b->items));
        b->items[k++] = (struct remote_item){
            .addr = descriptor + w->tid_offset, .dst = owner, .len = sizeof(*owner)};
    }
    if (k)
        read(w->tid, b->items, k);
}
