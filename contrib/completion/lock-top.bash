# bash completion for lock-top
# Made by contrib/gen_docs.c from src/options.def and src/columns.def.

_lock_top_words()
{
    mapfile -t COMPREPLY < <(compgen -W "$1" -- "$cur")
}

_lock_top_files()
{
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
}

# Not through compgen, which would run a $(command) in a name.
_lock_top_names()
{
    local name
    while IFS= read -r name; do
        [[ $name == "$cur"* ]] && COMPREPLY+=("$(printf '%q' "$name")")
    done < <(ps -e -o comm= | sort -u)
}

# Completes the last item of a list with commas.
_lock_top_list()
{
    local before=
    [[ $cur == *,* ]] && before=${cur%,*},
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$1" -- "${cur##*,}")
}

_lock_top()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} i
    local columns='help wait 1s 10s 60s max busy share age sleep tries refused class kind pid holder lock'

    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        if [[ ${COMP_WORDS[i]} == -- ]]; then # a command and its words
            if declare -F _command_offset >/dev/null; then
                _command_offset $((i + 1))
            elif ((i + 1 == COMP_CWORD)); then
                mapfile -t COMPREPLY < <(compgen -c -- "$cur")
            else
                mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            fi
            return
        fi
    done
    if [[ $cur == = ]]; then
        cur=
    elif [[ $prev == = ]]; then
        prev=${COMP_WORDS[COMP_CWORD-2]}
    fi
    case $prev in
    -p | --pid) _lock_top_list "$(ps -e -o pid=)"; return ;;
    -c | --comm) _lock_top_names; return ;;
    -u | --user) _lock_top_words "$(compgen -u)"; return ;;
    -f | --file) _lock_top_files; return ;;
    -d | --delay) return ;;
    -n | --iterations) return ;;
    -o | --columns) _lock_top_list "$columns"; return ;;
    -s | --sort) _lock_top_words "$columns"; return ;;
    --rate) return ;;
    --budget) return ;;
    --stacks) _lock_top_words 'off auto all'; return ;;
    --stop) _lock_top_words 'never needed'; return ;;
    --names) _lock_top_files; return ;;
    --signatures) _lock_top_files; return ;;
    esac
    _lock_top_words '-p --pid -c --comm -u --user -f --file -a --all -d --delay -n --iterations -b --batch --json -o --columns -s --sort --rate --budget --stacks --stop --events --names --signatures --no-color --ascii -h --help -V --version --'
}

complete -F _lock_top lock-top
