/*
 * gen_docs.c - prints what is made from the tables of options and columns:
 *
 *     gen_docs bash | zsh | fish    a completion script (kept in contrib/completion/)
 *     gen_docs man                  the list of options for the manual, as mdoc(7)
 *
 * Needs nothing but the tables: cc -o gen_docs contrib/gen_docs.c
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct option_row {
    char ch; /* 0: no short form */
    const char *name;
    const char *arg; /* NULL: takes no value */
    const char *help;
};

static const struct option_row options[] = {
#define OPT(id, ch, name, arg, group, help) {ch, name, arg, help},
#include "../src/options.def"
#undef OPT
};
#define OPTIONS (sizeof(options) / sizeof(options[0]))

static const struct {
    const char *name, *help;
} columns[] = {
#define COLUMN(id, name, header, width, type, help) {name, help},
#include "../src/columns.def"
#undef COLUMN
};
#define COLUMNS (sizeof(columns) / sizeof(columns[0]))

/* What a value may be completed from. */
enum source {
    FROM_NOTHING,
    FROM_PIDS,
    FROM_NAMES,
    FROM_COLUMNS,
    FROM_COLUMN,
    FROM_STACKS,
    FROM_STOPS,
    FROM_FILES,
    FROM_USERS,
};

static enum source source_of(const struct option_row *o)
{
    static const struct {
        const char *arg;
        enum source source;
    } known[] = {
        {"PID[,PID...]", FROM_PIDS},
        {"NAME", FROM_NAMES},
        {"LIST", FROM_COLUMNS},
        {"COL", FROM_COLUMN},
        {"WHICH", FROM_STACKS},
        {"WHEN", FROM_STOPS},
        {"FILE", FROM_FILES},
        {"PATH", FROM_FILES},
        {"USER", FROM_USERS},
    };

    for (size_t i = 0; o->arg && i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(o->arg, known[i].arg) == 0)
            return known[i].source;
    return FROM_NOTHING;
}

/* TEXT for the inside of single quotes, QUOTE standing for each quote in it. */
static void quoted(const char *text, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, stdout);
        else
            putchar(*text);
}

static void lines(const char *const *text)
{
    for (; *text; text++)
        puts(*text);
}

static void origin(void)
{
    puts("# Made by contrib/gen_docs.c from src/options.def and src/columns.def.");
}

/* bash -------------------------------------------------------------------------------- */

static const char *const bash_actions[] = {
    [FROM_NOTHING] = "return",
    [FROM_PIDS] = "_lock_top_list \"$(ps -e -o pid=)\"; return",
    [FROM_NAMES] = "_lock_top_names; return",
    [FROM_COLUMNS] = "_lock_top_list \"$columns\"; return",
    [FROM_COLUMN] = "_lock_top_words \"$columns\"; return",
    [FROM_STACKS] = "_lock_top_words 'off auto all'; return",
    [FROM_STOPS] = "_lock_top_words 'never needed'; return",
    [FROM_FILES] = "_lock_top_files; return",
    [FROM_USERS] = "_lock_top_words \"$(compgen -u)\"; return",
};

static const char *const bash_head[] = {
    "",
    "_lock_top_words()",
    "{",
    "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")",
    "}",
    "",
    "_lock_top_files()",
    "{",
    "    compopt -o filenames 2>/dev/null",
    "    mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")",
    "}",
    "",
    "# Not through compgen, which would run a $(command) in a name.",
    "_lock_top_names()",
    "{",
    "    local name",
    "    while IFS= read -r name; do",
    "        [[ $name == \"$cur\"* ]] && COMPREPLY+=(\"$(printf '%q' \"$name\")\")",
    "    done < <(ps -e -o comm= | sort -u)",
    "}",
    "",
    "# Completes the last item of a list with commas.",
    "_lock_top_list()",
    "{",
    "    local before=",
    "    [[ $cur == *,* ]] && before=${cur%,*},",
    "    mapfile -t COMPREPLY < <(compgen -P \"$before\" -W \"$1\" -- \"${cur##*,}\")",
    "}",
    "",
    "_lock_top()",
    "{",
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i",
    NULL,
};

static const char *const bash_middle[] = {
    "",
    "    COMPREPLY=()",
    "    for ((i = 1; i < COMP_CWORD; i++)); do",
    "        if [[ ${COMP_WORDS[i]} == -- ]]; then # a command and its words",
    "            if declare -F _command_offset >/dev/null; then",
    "                _command_offset $((i + 1))",
    "            elif ((i + 1 == COMP_CWORD)); then",
    "                mapfile -t COMPREPLY < <(compgen -c -- \"$cur\")",
    "            else",
    "                mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")",
    "            fi",
    "            return",
    "        fi",
    "    done",
    "    if [[ $cur == = ]]; then",
    "        cur=",
    "    elif [[ $prev == = ]]; then",
    "        prev=${COMP_WORDS[COMP_CWORD-2]}",
    "    fi",
    "    case $prev in",
    NULL,
};

static void bash_case(const struct option_row *o)
{
    fputs("    ", stdout);
    if (o->ch)
        printf("-%c | ", o->ch);
    printf("--%s) %s ;;\n", o->name, bash_actions[source_of(o)]);
}

static void print_bash(void)
{
    puts("# bash completion for lock-top");
    origin();
    lines(bash_head);
    fputs("    local columns='help", stdout);
    for (size_t i = 0; i < COLUMNS; i++)
        printf(" %s", columns[i].name);
    puts("'");
    lines(bash_middle);
    for (size_t i = 0; i < OPTIONS; i++)
        if (options[i].arg)
            bash_case(&options[i]);
    puts("    esac");
    fputs("    _lock_top_words '", stdout);
    for (size_t i = 0; i < OPTIONS; i++) {
        if (options[i].ch)
            printf("-%c ", options[i].ch);
        printf("--%s ", options[i].name);
    }
    puts("--'\n}\n\ncomplete -F _lock_top lock-top");
}

/* zsh --------------------------------------------------------------------------------- */

static const char *const zsh_actions[] = {
    [FROM_NOTHING] = " ",
    [FROM_PIDS] = "_sequence _pids",
    [FROM_NAMES] = "{compadd -- ${(fu)\"$(ps -e -o comm=)\"}}",
    [FROM_COLUMNS] = "_values -s , column $columns",
    [FROM_COLUMN] = "_values column $columns",
    [FROM_STACKS] = "(off auto all)",
    [FROM_STOPS] = "(never needed)",
    [FROM_FILES] = "_files",
    [FROM_USERS] = "_users",
};

static void zsh_option(const struct option_row *o)
{
    const char *repeats = source_of(o) == FROM_PIDS ? "*" : NULL;

    if (repeats)
        printf("    '%s'", repeats);
    else if (o->ch)
        printf("    '(-%c --%s)'", o->ch, o->name);
    else
        printf("    '(--%s)'", o->name);
    if (o->ch)
        printf("{-%c,--%s%s}", o->ch, o->name, o->arg ? "=" : "");
    else
        printf("--%s%s", o->name, o->arg ? "=" : "");
    fputs("'[", stdout);
    quoted(o->help, "'\\''");
    fputs("]", stdout);
    if (o->arg)
        printf(":%s:%s", o->arg, zsh_actions[source_of(o)]);
    puts("' \\");
}

static void print_zsh(void)
{
    puts("#compdef lock-top");
    origin();
    puts("\nlocal -a columns\ncolumns=(\n    'help[list the columns]'");
    for (size_t i = 0; i < COLUMNS; i++) {
        printf("    '%s[", columns[i].name);
        quoted(columns[i].help, "'\\''");
        puts("]'");
    }
    puts(")\n\n_arguments -s -S \\");
    for (size_t i = 0; i < OPTIONS; i++)
        zsh_option(&options[i]);
    puts("    '*:::command:_normal'");
}

/* fish -------------------------------------------------------------------------------- */

static const char *const fish_actions[] = {
    [FROM_NOTHING] = " -x",
    [FROM_PIDS] = " -x -a '(__fish_complete_list , __fish_complete_pids)'",
    [FROM_NAMES] = " -x -a '(ps -e -o comm= | sort -u)'",
    [FROM_COLUMNS] = " -x -a '(__fish_complete_list , __lock_top_columns)'",
    [FROM_COLUMN] = " -x -a '(__lock_top_columns)'",
    [FROM_STACKS] = " -x -a 'off auto all'",
    [FROM_STOPS] = " -x -a 'never needed'",
    [FROM_FILES] = " -r -F",
    [FROM_USERS] = " -x -a '(__fish_complete_users)'",
};

/* The comment gives the name as the user types it, for those who search for it. */
static void fish_option(const struct option_row *o)
{
    fputs("complete -c lock-top", stdout);
    if (o->ch)
        printf(" -s %c", o->ch);
    printf(" -l %s%s -d '", o->name, o->arg ? fish_actions[source_of(o)] : "");
    quoted(o->help, "\\'");
    printf("' # --%s\n", o->name);
}

static void print_fish(void)
{
    puts("# fish completion for lock-top");
    origin();
    puts("\nfunction __lock_top_columns\n    printf '%s\\t%s\\n' help 'list the columns' \\");
    for (size_t i = 0; i < COLUMNS; i++) {
        printf("        %s '", columns[i].name);
        quoted(columns[i].help, "\\'");
        puts(i + 1 < COLUMNS ? "' \\" : "'");
    }
    puts("end\n\ncomplete -c lock-top -f");
    puts("complete -c lock-top -n 'contains -- -- (commandline -opc)' -F "
         "-a '(__fish_complete_command)'");
    for (size_t i = 0; i < OPTIONS; i++)
        fish_option(&options[i]);
}

/* man --------------------------------------------------------------------------------- */

static void man_option(const struct option_row *o)
{
    fputs(".It Fl ", stdout);
    if (o->ch)
        printf("%c , Fl ", o->ch);
    printf("-%s", o->name);
    if (o->arg)
        printf(" Ar %s", o->arg);
    /* A line of text must not begin as a request does. */
    printf("\n%s", strchr(".'", o->help[0]) ? "\\&" : "");
    putchar(o->help[0] >= 'a' && o->help[0] <= 'z' ? o->help[0] - 'a' + 'A' : o->help[0]);
    printf("%s.\n", o->help + 1);
}

static void print_man(void)
{
    puts(".Bl -tag -width Ds");
    for (size_t i = 0; i < OPTIONS; i++)
        man_option(&options[i]);
    puts(".El");
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } kinds[] = {
        {"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}, {"man", print_man}};

    for (size_t i = 0; argc == 2 && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(argv[1], kinds[i].name) == 0) {
            kinds[i].print();
            return fflush(stdout) || ferror(stdout) ? 1 : 0;
        }
    fputs("usage: gen_docs bash|zsh|fish|man\n", stderr);
    return 2;
}
