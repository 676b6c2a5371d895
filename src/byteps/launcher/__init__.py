"""The command ``bpslaunch``: from arguments and environment to the processes of a job, and to their end.

    cli        arguments, and which way they ask for; help: what --help teaches
    spec       data only: the vocabulary of a plan
    plan       pure: which processes, with which environment; parts: what all plans are made from
    dry_run    pure: a plan as text
    single     runs a plan on this machine
    topology   what this machine is made of: cores, threads, nodes, limits
    binding    pure: which cores each rank gets
    memory_policy  the node that a rank's memory comes from
    gdb        a rank's command under gdb
    guard      two processes that watch each other, so that nothing outlives the launcher
    here       starts one process on this machine
    supervise  the event loop around the processes of a job
    display    their output, from pipes to the screen
    ending     pure: when a job ends, who gets which signal, and the exit code
    output     pure: labelled lines and progress displays of several processes on one screen
    log_files  a file for the output of each process
    sink       writes without ever blocking the event loop
    reap       finds and ends descendants

Several machines, each way with its options in the module of its name:

    ssh        hosts (pure), layout (pure: who runs what where)
    slurm      slurm_env (pure: what a task runs), user_key (a secret without a common parent)
    ray_cluster  ray_agents: the same agents in actors of Ray; ray_bundles: what Ray reserves
    k8s        k8s_manifest (pure)
    nodes      torchrun's options
    share      a part of a job that is started here: for slurm and nodes
    fleet      the supervisor of a job whose processes are elsewhere; agent_connection: one of its lines
    agent      the processes of one host; frames: what it and the fleet say to each other
"""
