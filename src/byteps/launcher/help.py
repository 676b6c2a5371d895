"""What ``bpslaunch --help`` teaches."""

USAGE = """bpslaunch [-n N] [--workers W] [--servers M] [--dry-run] [COMMAND ...]
       bpslaunch -H HOST:N,... | --slurm | --ray | --k8s IMAGE | --nnodes N --node-rank R [...] COMMAND ..."""

DESCRIPTION = """\
Start a job, or one role of it. Its exit code is that of the first process that fails, 128+n after a signal n,
2 when it was called wrongly, 127 or 126 when the command cannot be found or run. Nothing is left behind."""

EXAMPLES = """\
several ranks on this machine; nothing else has to be started:
  bpslaunch -n 4 python train.py --epochs 3                            -np 4 is the same
  NVIDIA_VISIBLE_DEVICES=0,1,2,3 DMLC_NUM_WORKER=1 DMLC_ROLE=worker bpslaunch python train.py      the same

a job of several machines, played on this one:
  bpslaunch --workers 2 --servers 1 python train.py              two machines of one rank each, one server
  bpslaunch --workers 2 -n 2 --servers 2 python train.py         two machines of two ranks each
  bpslaunch --dry-run --workers 2 --servers 1 python train.py    what would be started, and how

the command alone, a job of one:
  bpslaunch python train.py

several machines by ssh: the same folder and the same interpreter on each, keys and no passwords:
  bpslaunch -H node1:4,node2:4 python train.py                                 a server on each of them too
  bpslaunch -H node1:4,node2:4 --server-hosts node3,node4 python train.py      servers on their own machines
  bpslaunch --hostfile hosts --env WANDB_API_KEY --chdir /data/me python train.py

Slurm: every task is a rank, every node gets a server:
  srun -N 4 --ntasks-per-node 8 bpslaunch --slurm python train.py
  sbatch -N 4 --ntasks-per-node 8 --wrap 'bpslaunch --slurm python train.py'   starts srun by itself

Ray, with the cluster that RAY_ADDRESS or --ray-address names:
  bpslaunch --ray --workers 4 -n 2 --servers 2 python train.py

Kubernetes, with JobSet:
  bpslaunch --k8s registry/me/train:1 --name job1 --workers 4 --servers 2 python train.py
  bpslaunch --k8s registry/me/train:1 --name job1 --workers 4 --dry-run python train.py > job1.yaml

the same command on every machine, as with torchrun:
  bpslaunch --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node 8 python train.py

one role on each machine, in any order; here two workers and one server, the scheduler on 10.0.0.1:
  export DMLC_PS_ROOT_URI=10.0.0.1 DMLC_PS_ROOT_PORT=9000 DMLC_NUM_WORKER=2 DMLC_NUM_SERVER=1
  DMLC_ROLE=scheduler bpslaunch
  DMLC_ROLE=server bpslaunch
  DMLC_ROLE=worker DMLC_WORKER_ID=0 bpslaunch python train.py
  DMLC_ROLE=worker DMLC_WORKER_ID=1 bpslaunch -n 2 python train.py                           two ranks here

Every variable is explained by: bps env"""
