/*
 * hash.h - uthash, with a want of memory ending the program as everywhere else (die hook, exit 1).
 * The hash tables of lock-top include this, never uthash.h itself.
 */
#ifndef LT_HASH_H
#define LT_HASH_H

#include "err.h"

#define uthash_fatal(msg) die(EXIT_FAILED, "%s (hash table)", msg)

#include <uthash.h>

#endif
