/*
 * symbol.h - names of addresses: functions with file and line, data.
 *
 * With libdw: .symtab, .dynsym, .gnu_debugdata, debug files by build-id and debug link (the
 * target's own first), /tmp/perf-PID.map for code that is in no file. An address outside every
 * symbol's size has no name: the nearest one would be a guess. C++ and Rust names are demangled.
 * Nothing is ever fetched from a network (DEBUGINFOD_URLS is ignored).
 *
 * Strings live as long as the module they were asked of; those of perf maps until symbol_forget()
 * or until the process's number belongs to another process. Not thread-safe: one thread asks.
 * Demangling a hostile name may need 1 MiB of stack.
 */
#ifndef LT_SYMBOL_H
#define LT_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "module.h"

/* The name of one frame of a stack. */
struct frame_name {
    const char *name;   /* demangled, without version; NULL unknown */
    uint64_t into;      /* bytes into the function; 0 when NAME is NULL */
    bool exported;      /* the symbol is one of the dynamic ones: API of its library */
    const char *module; /* file name, "[vdso]"; NULL: code that is in no file */
    enum module_kind kind;
    uint64_t offset; /* address in the module's file (as in its symbol table), or PC itself */
    /* Of the function's own source: where code was inlined, of its call. NULL, 0: not known, or not
     * sought (the C library's). */
    const char *file;
    int line;
};

/* Of the code at PC. EXACT as in stack.h: when false, the instruction before PC is meant. */
void symbol_function(struct space *s, uint64_t pc, bool exact, struct frame_name *out);

/*
 * The name of the data at ADDR: "name" or "name+0x40" within a data symbol's size,
 * "libfoo.so+0x1234" in a module without such a symbol, "/path+0x40" in another mapped file,
 * "[heap]+0x40", "[stack]+..." of the main thread. NULL for anonymous memory and when
 * nothing is mapped there. The caller frees it.
 */
char *symbol_data(struct space *s, uint64_t addr);

/* Demangles RAW (Itanium C++, Rust legacy and v0); NULL when it is no mangled name. The caller
 * frees it. */
char *symbol_demangle(const char *raw);

/* Process PID is not watched any more: the names of its perf map go. */
void symbol_forget(pid_t pid);

#endif
