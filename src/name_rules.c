#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "namematch.h"
#include "signature.h"
#include "xalloc.h"

struct name_rule {
    struct pattern pattern;
    const char *name;
};

struct name_rules {
    struct arena arena; /* owns the strings */
    struct name_rule *rules;
    size_t n, cap;
};

struct name_rules *name_rules_new(const char *text, char *err, size_t size)
{
    struct name_rules *r = xcalloc(1, sizeof(*r));
    struct rule_line line = {.at = text};

    while (rule_next(&line)) {
        size_t len;
        const char *word = rule_word(&line, &len);
        if (line.len == 0) {
            snprintf(err, size, "line %d: no name behind the pattern '%.*s'", line.number,
                     (int)MIN(len, (size_t)80), word);
            name_rules_free(r);
            return NULL;
        }
        r->rules = xgrow(r->rules, &r->cap, r->n + 1, sizeof(*r->rules));
        const char *pattern = arena_printf(&r->arena, "%.*s", (int)len, word);
        r->rules[r->n++] = (struct name_rule){
            .pattern = pattern_of(pattern),
            .name = arena_printf(&r->arena, "%.*s", (int)line.len, line.text),
        };
    }
    return r;
}

void name_rules_free(struct name_rules *r)
{
    if (!r)
        return;
    arena_release(&r->arena);
    free(r->rules);
    free(r);
}

static bool matches(const struct pattern *p, const char *s)
{
    return s && pattern_matches(p, s);
}

const char *name_rules_find(const struct name_rules *r, const char *name, const char *site,
                            const char *address)
{
    char plain[512] = "";

    if (site && r->n)
        plain_name(plain, sizeof(plain), site);
    for (size_t i = 0; i < r->n; i++) {
        const struct pattern *p = &r->rules[i].pattern;
        if (matches(p, name) || matches(p, site) || (site && matches(p, plain)) ||
            matches(p, address))
            return r->rules[i].name;
    }
    return NULL;
}
