#!/bin/sh
# deps.sh [--test] [--real] [--bench] [--check] - installs what is missing for building
# lock-top, as root or through sudo, and shows each command that it runs. When nothing is
# missing it prints nothing.
#
# --test    and for its tests
# --real    and for its tests against real servers and runtimes; what the system does not
#           offer is left out with a note
# --bench   and for measuring
# --check   installs nothing: lists what is missing and exits 1 if anything is
#
# On a machine with systemd the packages of servers (--real) start their services, as they do
# whenever they are installed there.
set -u

me=contrib/deps.sh
want_test='' want_real='' want_bench='' check=''
for arg in "$@"; do
    case $arg in
    --test) want_test=1 ;;
    --real) want_real=1 ;;
    --bench) want_bench=1 ;;
    --check) check=1 ;;
    *)
        echo "usage: $me [--test] [--real] [--bench] [--check]" >&2
        exit 2
        ;;
    esac
done

# What is there --------------------------------------------------------------------------------
# Asked of the compiler, pkg-config and the shell: the package manager would take seconds, and
# does not know what was installed in another way.

have() {
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || [ -x "/usr/local/sbin/$1" ]
}

# The compiler as make takes it; only its first word, as in CC="ccache gcc".
cc=${CC:-gcc}
cc=${cc%% *}

# header LINE... : the compiler finds what the lines include.
header() {
    printf '#include <%s>\n' "$@" | "$cc" -E -x c - >/dev/null 2>&1
}

library() {
    "${PKGCONF:-pkg-config}" --exists "$1" 2>/dev/null
}

# runtime NAME... : gcc has these libraries of its own; it then gives a path.
runtime() {
    for lib in "$@"; do
        case $(gcc -print-file-name="lib$lib.so" 2>/dev/null) in
        /*) ;;
        *) return 1 ;;
        esac
    done
}

# module NAME... : one python3 has all of these modules. The system's counts as well: packages
# serve that one where PATH leads to another.
module() {
    for py in "${PYTHON:-python3}" python3 /usr/bin/python3; do
        "$py" -c 'import importlib.util as u, sys
sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))' "$@" 2>/dev/null && return
    done
    return 1
}

# The kernel's headers, and on x86 the call numbers of 32-bit programs.
kernel_headers() {
    case $(uname -m) in
    x86_64) header linux/futex.h asm/unistd_32.h ;;
    *) header linux/futex.h asm/unistd.h ;;
    esac
}

# It has no pkg-config file, and its header lies in one of two places.
libiberty() {
    printf '#if __has_include(<libiberty/demangle.h>)
#include <libiberty/demangle.h>
#else
#include <demangle.h>
#endif
int main(void) { return rust_demangle_callback("", 0, 0, 0); }\n' |
        "$cc" -x c - -o /dev/null -liberty >/dev/null 2>&1
}

postgres() {
    have postgres && return
    for prog in /usr/lib/postgresql/*/bin/postgres /usr/pgsql-*/bin/postgres; do
        [ -x "$prog" ] && return
    done
    return 1
}

missing=''
need() { # need NAME PROBE... : NAME is missing unless PROBE succeeds
    name=$1
    shift
    "$@" || missing="$missing $name"
}

probe() {
    missing=''
    need cc have "$cc"
    need libc header stdio.h
    need make have make
    need pkgconf have "${PKGCONF:-pkg-config}"
    need ncurses library ncursesw
    library libproc2 || need procps-lib library libprocps
    need jansson library jansson
    need uthash header uthash.h
    need libunwind library libunwind-generic
    need libdw library libdw
    need libelf library libelf
    need liblzma library liblzma
    need libiberty libiberty
    need kernel-headers kernel_headers
    [ -z "$want_test" ] || probe_test
    [ -z "$want_real" ] || probe_real
    [ -z "$want_bench" ] || probe_bench
}

probe_test() {
    need cmocka library cmocka
    need python have python3
    need pytest module pytest pyte xdist
    need tmux have tmux
    need gdb have gdb
    need procps have pgrep
    need clang have clang
    need sanitizers runtime asan ubsan tsan
    need bash have bash
}

probe_real() {
    need mariadb have mariadbd
    need mariadb-client have mariadb
    need redis have redis-server
    need postgresql postgres
    need php have php
    need java have javac
    need go have go
    need sqlite have sqlite3
    need busybox have busybox
    need musl have musl-gcc
}

probe_bench() {
    need strace have strace
    need perf have perf
    need gdb have gdb
    need htop have htop
    need sysstat have pidstat
    need elfutils have eu-stack
    need procps have pgrep
}

# What it is called ----------------------------------------------------------------------------

# The package of a need on each system; a|b: the first that the system offers; -: not a package
# there.
packages() {
    case $1 in #          apt                              dnf                 pacman             apk
    cc)             row   gcc                              gcc                 gcc                gcc ;;
    libc)           row   libc6-dev                        glibc-devel         glibc              musl-dev ;;
    make)           row   make                             make                make               make ;;
    pkgconf)        row   pkg-config                       pkgconf-pkg-config  pkgconf            pkgconf ;;
    ncurses)        row   libncurses-dev                   ncurses-devel       ncurses            ncurses-dev ;;
    procps-lib)     row   'libproc2-dev|libprocps-dev'     procps-ng-devel     procps-ng          'procps-ng-dev|procps-dev' ;;
    jansson)        row   libjansson-dev                   jansson-devel       jansson            jansson-dev ;;
    uthash)         row   uthash-dev                       uthash-devel        uthash             uthash-dev ;;
    libunwind)      row   libunwind-dev                    libunwind-devel     libunwind          libunwind-dev ;;
    libdw)          row   libdw-dev                        elfutils-devel      libelf             elfutils-dev ;;
    libelf)         row   libelf-dev                       elfutils-libelf-devel libelf           elfutils-dev ;;
    liblzma)        row   liblzma-dev                      xz-devel            xz                 xz-dev ;;
    libiberty)      row   libiberty-dev                    binutils-devel      binutils           binutils-dev ;;
    kernel-headers) row   linux-libc-dev                   kernel-headers      linux-api-headers  linux-headers ;;
    cmocka)         row   libcmocka-dev                    libcmocka-devel     cmocka             cmocka-dev ;;
    python)         row   python3                          python3             python             python3 ;;
    pytest)         row   'python3-pytest python3-pyte python3-pytest-xdist' 'python3-pytest python3-pyte python3-pytest-xdist' 'python-pytest python-pyte python-pytest-xdist' 'py3-pytest py3-pyte py3-pytest-xdist' ;;
    tmux)           row   tmux                             tmux                tmux               tmux ;;
    procps)         row   procps                           procps-ng           procps-ng          'procps-ng|procps' ;;
    clang)          row   clang                            clang               clang              clang ;;
    sanitizers)     row   gcc                              'libasan libubsan libtsan' gcc-libs    - ;;
    bash)           row   bash                             bash                bash               bash ;;
    mariadb)        row   mariadb-server                   mariadb-server      mariadb            mariadb ;;
    mariadb-client) row   mariadb-client                   mariadb             mariadb-clients    mariadb-client ;;
    redis)          row   redis-server                     'redis|valkey-compat-redis' 'redis|valkey' redis ;;
    postgresql)     row   postgresql                       postgresql-server   postgresql         'postgresql|postgresql17|postgresql16' ;;
    php)            row   php-cli                          php-cli             php                'php|php84|php83' ;;
    java)           row   default-jdk-headless             'java-latest-openjdk-devel|java-21-openjdk-devel' 'jdk-openjdk' 'openjdk21-jdk|openjdk17-jdk' ;;
    go)             row   golang-go                        golang              go                 go ;;
    sqlite)         row   sqlite3                          sqlite              sqlite             sqlite ;;
    busybox)        row   busybox                          busybox             busybox            busybox ;;
    musl)           row   musl-tools                       musl-gcc            musl               - ;;
    strace)         row   strace                           strace              strace             strace ;;
    perf)           row   'linux-perf|linux-tools-generic' perf                perf               perf ;;
    gdb)            row   gdb                              gdb                 gdb                gdb ;;
    htop)           row   htop                             htop                htop               htop ;;
    sysstat)        row   sysstat                          sysstat             sysstat            sysstat ;;
    elfutils)       row   elfutils                         elfutils            elfutils           elfutils ;;
    esac
}

row() {
    case $manager in
    apt-get) echo "$1" ;;
    dnf | yum) echo "$2" ;;
    pacman) echo "$3" ;;
    apk) echo "$4" ;;
    esac
}

# Does the system offer this package?
offered() {
    case $manager in
    apt-get) apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [^(]' ;;
    dnf | yum) "$manager" -q list "$1" >/dev/null 2>&1 ;;
    pacman) pacman -Si "$1" >/dev/null 2>&1 ;;
    apk) [ -n "$(apk search -eq "$1" 2>/dev/null)" ] ;;
    esac
}

# first A|B... : the first that is offered; A where none is, so that the message names it.
first() {
    rest=$1
    while :; do
        name=${rest%%|*}
        if offered "$name"; then
            echo "$name"
            return
        fi
        [ "$name" != "$rest" ] || break
        rest=${rest#*|}
    done
    echo "${1%%|*}"
    return 1
}

# What can be done without where the system does not offer it.
optional='mariadb mariadb-client redis postgresql php java go sqlite busybox musl perf'

optional() {
    case " $optional " in
    *" $1 "*) return 0 ;;
    esac
    return 1
}

# The packages for $missing, into $list.
choose() {
    list=''
    for need in $missing; do
        for entry in $(packages "$need"); do
            if [ "$entry" = - ]; then
                echo "$me: note: this system has no package for $need" >&2
                continue
            fi
            name=$entry
            case $entry in
            *\|*) name=$(first "$entry") ;;
            esac
            if optional "$need" && ! offered "$name"; then
                echo "$me: note: no package $name here; going on without $need" >&2
                continue
            fi
            case " $list " in
            *" $name "*) ;;
            *) list="$list $name" ;;
            esac
        done
    done
    list=${list# }
}

# Installing -----------------------------------------------------------------------------------

find_manager() {
    for manager in apt-get dnf yum pacman apk; do
        have "$manager" && return
    done
    manager=''
    return 1
}

# How to become root: into $root, empty for root itself.
find_root() {
    root=''
    [ "$(id -u)" -ne 0 ] || return 0
    for root in sudo doas; do
        have "$root" && return
    done
    root=''
    return 1
}

run() {
    printf '+ %s\n' "$*"
    "$@"
}

# as_root COMMAND... : shows and runs it; without a way to be root, says what to run.
as_root() {
    if find_root; then
        run ${root:+"$root"} "$@"
    else
        echo "$me: not root, and neither sudo nor doas is here; run as root:" >&2
        echo "    $*" >&2
        exit 1
    fi
}

apt_update() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q
}

apt_has_lists() {
    for file in /var/lib/apt/lists/*_Packages*; do
        [ -e "$file" ] && return
    done
    return 1
}

pacman_has_lists() {
    for file in /var/lib/pacman/sync/*.db; do
        [ -e "$file" ] && return
    done
    return 1
}

# Without lists of packages nothing can be chosen.
refresh() {
    case $manager in
    apt-get) apt_has_lists || apt_update ;;
    pacman) pacman_has_lists || as_root pacman -Sy ;;
    apk) [ -n "$(apk search -eq musl-dev 2>/dev/null)" ] || as_root apk update ;;
    esac
}

# shellcheck disable=SC2086 # $list is a list of words
install() {
    case $manager in
    apt-get)
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $list
        ;;
    dnf | yum) as_root "$manager" install -y $list ;;
    pacman) as_root pacman -S --needed --noconfirm $list ;;
    apk) as_root apk add $list ;;
    esac
}

# What else may help where an installation failed.
advise() {
    case $manager in
    dnf | yum) echo "$me: on RHEL and its kin some of these come from EPEL and CRB" >&2 ;;
    pacman) echo "$me: an old list of packages? pacman -Syu brings the system up to date" >&2 ;;
    esac
}

# Needs that are still open and that cannot be done without, into $open.
still_open() {
    open=''
    for need in $missing; do
        optional "$need" && continue
        [ "$(packages "$need")" = - ] && continue
        open="$open $need"
    done
}

probe
[ -n "$missing" ] || exit 0
if [ -n "$check" ]; then
    echo "missing:$missing"
    exit 1
fi
if ! find_manager; then
    echo "$me: no apt-get, dnf, yum, pacman or apk here; please install:$missing" >&2
    exit 1
fi

refresh
choose
[ -n "$list" ] || exit 0
if ! install; then
    # The lists may be older than what the servers keep.
    if [ "$manager" != apt-get ] || ! apt_update || ! install; then
        echo "$me: could not install: $list" >&2
        advise
        exit 1
    fi
fi
probe
still_open
if [ -n "$open" ]; then
    echo "$me: installed, but still not found:$open" >&2
    exit 1
fi
