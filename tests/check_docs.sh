#!/bin/sh
# check_docs.sh LOCK_TOP - the documents say what the program does: options, keys, columns,
# states and kinds stand in the man page, and no others; the man page is clean mdoc.
# Prints "ok - ...", "not ok - ..." or "skip - ..." lines; exit 0 when nothing is wrong.
set -u
export LC_ALL=C.UTF-8

prog=${1:?usage: check_docs.sh LOCK_TOP}
case $prog in
/*) ;;
*) prog=$PWD/$prog ;;
esac
cd "$(dirname "$0")/.." || exit 1
man=man/lock-top.1
bad=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/lock-top-docs.XXXXXX") || exit 1
trap 'rm -rf "$tmp"' EXIT

# same TITLE WANTED FOUND : two sorted lists are equal and not empty.
same() {
    if [ -s "$2" ] && cmp -s "$2" "$3"; then
        echo "ok - $1"
        return
    fi
    bad=1
    echo "not ok - $1"
    [ -s "$2" ] || echo "    the program lists nothing"
    comm -23 "$2" "$3" | sed 's/^/    missing: /'
    comm -13 "$2" "$3" | sed 's/^/    not in the program: /'
}

# The lines of one section of the man page.
section() {
    awk -v want="$1" '/^\.Sh / { on = ($0 == ".Sh " want) } /^\.Ss / { on = ($0 == ".Ss " want) } on' \
        "$man"
}

# The first argument of each ".It Cm WORD" of a section.
items() {
    section "$1" | sed -n 's/^\.It Cm \([^ ]*\).*/\1/p' | sort
}

# The names in the table FILE: second argument of each MACRO(...) line, quoted.
table() {
    sed -n "s/^$2([^,]*, *\"\\([^\"]*\\)\".*/\\1/p" "$1" | sort
}

# Options: "-p, --pid" of --help against ".It Fl p , Fl -pid" of the man page.
"$prog" --help >"$tmp/help" || exit 1
grep -oE '^ +(-[a-zA-Z], )?--[a-z][-a-z]*' "$tmp/help" | tr -d ' ' | sort >"$tmp/opt.help"
section OPTIONS | sed -n 's/^\.It Fl //p' |
    sed -E 's/^([a-zA-Z]) , Fl -([-a-z]+).*/-\1,--\2/; t; s/^-([-a-z]+).*/--\1/' | sort >"$tmp/opt.man"
same "options of --help and man page" "$tmp/opt.help" "$tmp/opt.man"

# Completions, where there are any: every long option is named.
for file in contrib/completion/*; do
    [ -f "$file" ] || continue
    sed 's/^-[a-zA-Z],//' "$tmp/opt.help" | sort >"$tmp/long"
    grep -oE -e '--[a-z][-a-z]*' "$file" | sort -u >"$tmp/long.found"
    same "options of --help and $file" "$tmp/long" "$tmp/long.found"
done

table src/columns.def COLUMN >"$tmp/want"
items COLUMNS >"$tmp/found"
same "columns and man page" "$tmp/want" "$tmp/found"

table src/states.def STATE >"$tmp/want"
items "Thread states" >"$tmp/found"
same "thread states and man page" "$tmp/want" "$tmp/found"

table src/kinds.def KIND | grep -vx none >"$tmp/want"
items "Kinds of lock" >"$tmp/found"
same "kinds of lock and man page" "$tmp/want" "$tmp/found"

sed -n 's/^KEY([^"]*"\([^"]*\)".*/\1/p' ui/keys.def | sort -u >"$tmp/want"
section KEYS | sed -n 's/^\.It Ic //p' | sed 's/\\&//g' | sort -u >"$tmp/found"
same "keys and man page" "$tmp/want" "$tmp/found"

version=$(sed -n 's/^VERSION *:= *//p' Makefile)
if "$prog" --version | grep -qF "$version"; then
    echo "ok - --version says $version"
else
    bad=1
    echo "not ok - --version does not say $version"
fi

# Links inside the tree that the README makes.
missing=$(grep -oE '\]\([^)#:]+\)' README.md | sed 's/^](//; s/)$//' | while read -r file; do
    [ -e "$file" ] || echo "$file"
done)
if [ -z "$missing" ]; then
    echo "ok - files named in README.md exist"
else
    bad=1
    echo "not ok - files named in README.md exist"
    echo "$missing" | sed 's/^/    /'
fi

if command -v mandoc >/dev/null; then
    # Whether the manuals that it refers to are installed here is no fault of ours.
    mandoc -T lint man/*.[1-9] 2>&1 | grep -v -e 'referenced manual not found' -e 'mandoc\.db' \
        >"$tmp/lint"
    if [ ! -s "$tmp/lint" ]; then
        echo "ok - mandoc finds nothing to say about the manual"
    else
        bad=1
        echo "not ok - mandoc finds nothing to say about the manual"
        sed 's/^/    /' "$tmp/lint"
    fi
else
    echo "skip - mandoc is not installed: the man page is not linted"
fi
exit $bad
