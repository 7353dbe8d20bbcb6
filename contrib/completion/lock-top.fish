# fish completion for lock-top
# Made by contrib/gen_docs.c from src/options.def and src/columns.def.

function __lock_top_columns
    printf '%s\t%s\n' help 'list the columns' \
        wait 'threads waiting now' \
        1s 'mean waiters over the last second' \
        10s 'mean waiters over 10 s' \
        60s 'mean waiters over 60 s' \
        max 'most waiters seen at once in 60 s' \
        busy 'share of looks that found it held' \
        share 'part of all thread-time spent waiting here, in percent' \
        age 'longest sleep of a thread that waits now, at least' \
        sleep 'mean time of one wait (file locks, semaphores)' \
        tries 'attempts at a file lock per second (--events)' \
        refused 'of these, refused as it was held (--events)' \
        class 'lock, filelock, kernel or sync' \
        kind 'kind of lock; \'?\' when that is a guess' \
        pid 'process it lives in' \
        holder 'who holds it and what it is doing; \'?\' when not confirmed' \
        lock 'name, file or address, and the function that waits for it'
end

complete -c lock-top -f
complete -c lock-top -n 'contains -- -- (commandline -opc)' -F -a '(__fish_complete_command)'
complete -c lock-top -s p -l pid -x -a '(__fish_complete_list , __fish_complete_pids)' -d 'watch these processes' # --pid
complete -c lock-top -s c -l comm -x -a '(ps -e -o comm= | sort -u)' -d 'watch the processes of this name (or quoted pattern)' # --comm
complete -c lock-top -s u -l user -x -a '(__fish_complete_users)' -d 'watch the processes of this user (name or number)' # --user
complete -c lock-top -s f -l file -r -F -d 'watch those that hold or want a lock on this file' # --file
complete -c lock-top -s a -l all -d 'watch all processes that may be looked at' # --all
complete -c lock-top -s d -l delay -x -d 'time between refreshes, 0.1 or more (default 1)' # --delay
complete -c lock-top -s n -l iterations -x -d 'end after N refreshes' # --iterations
complete -c lock-top -s b -l batch -d 'plain text (the default when stdout is no terminal)' # --batch
complete -c lock-top -l json -d 'one JSON object per refresh and line' # --json
complete -c lock-top -s o -l columns -x -a '(__fish_complete_list , __lock_top_columns)' -d 'columns of the lock list; +COL adds, \'help\' lists' # --columns
complete -c lock-top -s s -l sort -x -a '(__lock_top_columns)' -d 'sort the lock list by this column (default 10s)' # --sort
complete -c lock-top -l rate -x -d 'looks at all threads a second, 1 to 1000 (default 50)' # --rate
complete -c lock-top -l budget -x -d 'own CPU at most, in percent of one CPU (default 5)' # --budget
complete -c lock-top -l stacks -x -a 'off auto all' -d 'stacks taken: off, auto or all (default auto)' # --stacks
complete -c lock-top -l stop -x -a 'never needed' -d 'stopping a thread for them: never or needed (default)' # --stop
complete -c lock-top -l events -d 'count attempts at file locks (needs root)' # --events
complete -c lock-top -l names -r -F -d 'names for locks, from this file' # --names
complete -c lock-top -l signatures -r -F -d 'more functions that wait for locks, or idle' # --signatures
complete -c lock-top -l no-color -d 'no colours (also: NO_COLOR in the environment)' # --no-color
complete -c lock-top -l ascii -d 'plain ASCII only' # --ascii
complete -c lock-top -s h -l help -d 'print this help and end' # --help
complete -c lock-top -s V -l version -d 'print the version and end' # --version
