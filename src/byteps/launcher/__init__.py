"""The command ``bpslaunch``: from arguments and environment to the processes of a job, and to their end.

    cli        arguments, --help, --dry-run
    spec       data only: the vocabulary of a plan
    plan       pure: which processes, with which environment
    dry_run    pure: a plan as text
    topology   what this machine is made of: cores, threads, nodes, limits
    binding    pure: which cores each rank gets
    memory_policy  the node that a rank's memory comes from
    gdb        a rank's command under gdb
    guard      two processes that watch each other, so that nothing outlives the launcher
    local      starts one process on this machine
    supervise  the event loop around the processes of a job
    display    their output, from pipes to the screen
    ending     pure: when a job ends, who gets which signal, and the exit code
    output     pure: labelled lines and progress displays of several processes on one screen
    log_files  a file for the output of each process
    sink       writes without ever blocking the event loop
    reap       finds and ends descendants

Everything but ``plan`` and ``dry_run`` is about this machine only.
"""
