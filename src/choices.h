/*
 * choices.h - what the command line refers to, looked up and read before anything is started or
 * the terminal touched.
 */
#ifndef LT_CHOICES_H
#define LT_CHOICES_H

#include <stddef.h>

#include "column.h"
#include "options.h"
#include "signature.h"

/* A file that the user names is text of at most so many bytes. */
#define CHOICES_FILE_MAX (1 << 20)

struct choices {
    enum column sort;
    struct name_rules *names;      /* of --names, owned; NULL: none given */
    struct signatures *signatures; /* those built in and of --signatures, owned */
};

/*
 * Fills C. Returns 0, or EXIT_USAGE with a message in ERR that says what is wrong and where
 * (option, file, line): a column does not exist, a file cannot be read or is no text, or a line of
 * it is wrong. C is to be released after either result.
 */
int choices_make(struct choices *c, const struct options *opt, char *err, size_t size);
void choices_release(struct choices *c);

#endif
