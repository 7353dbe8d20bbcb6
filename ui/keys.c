#include "keys.h"

#include <curses.h>

#include "../src/compiler.h"

#define ON_LOCKS  (1u << PAGE_LOCKS)
#define ON_LOCK   (1u << PAGE_LOCK)
#define ON_CHAINS (1u << PAGE_CHAINS)
#define ON_SORT   (1u << PAGE_SORT)
#define ON_HELP   (1u << PAGE_HELP)
#define ON_PAGE   (ON_LOCK | ON_CHAINS | ON_SORT | ON_HELP)
#define ON_ANY    (ON_LOCKS | ON_PAGE)

static const struct key table[] = {
#define KEY(action, pages, shown, bar_key, bar_label, help, ...)                                   \
    {ACTION_##action, pages, shown, bar_key, bar_label, help, {__VA_ARGS__}},
#include "keys.def"
#undef KEY
};

static const struct key_place places[] = {
    {ON_ANY, "Keys on every page"},
    {ON_LOCKS, "Keys on the list of locks"},
    {ON_CHAINS, "Keys on the list of chains"},
    {ON_SORT, "Keys on the list of columns to sort by"},
    {ON_PAGE, "Keys on every page but the list of locks"},
};

const struct key_place *keys_places(size_t *n)
{
    *n = ARRAY_SIZE(places);
    return places;
}

const struct key *keys_table(size_t *n)
{
    *n = ARRAY_SIZE(table);
    return table;
}

static bool has_code(const struct key *k, int code)
{
    for (size_t i = 0; i < ARRAY_SIZE(k->codes) && k->codes[i]; i++)
        if (k->codes[i] == code)
            return true;
    return false;
}

enum action keys_action(enum page page, int code)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if ((table[i].pages & 1u << page) && has_code(&table[i], code))
            return table[i].action;
    return ACTION_NONE;
}
