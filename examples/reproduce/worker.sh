#!/bin/bash
# The ranks of this machine: worker.sh JOB [more options of train.py]
# JOB is a name of the table in README.md: cifar100-onebit, imagenet-resnet50-baseline, ...
set -eu
source "$(dirname "$0")/cluster.sh"
job="${1:?which job? see README.md}"
shift

CIFAR100="${CIFAR100:-$HOME/data/cifar-100-python}"
IMAGENET="${IMAGENET:-$HOME/data/imagenet}"
export DMLC_ROLE=worker
export DMLC_WORKER_ID="${DMLC_WORKER_ID:?the number of this machine, from 0; run.sh finds it}"
export BYTEPS_PARTITION_BYTES="${BYTEPS_PARTITION_BYTES:-4096000}"
export BYTEPS_MIN_COMPRESS_BYTES="${BYTEPS_MIN_COMPRESS_BYTES:-1024000}"

case "$job" in
  cifar100-*)
    options=(--dataset cifar100 --data "$CIFAR100" --model resnet18_v2 --batch-size 32 --epochs 200
      --warmup-epochs 10 --lr 0.1 --lr-decay-epoch 100,150) ;;
  imagenet-resnet50-*)
    lr=0.1
    [[ $job == *-baseline ]] && lr=0.2
    options=(--dataset imagenet --data "$IMAGENET" --model resnet50_v2 --batch-size 64 --epochs 120
      --warmup-epochs 5 --lr "$lr" --lr-mode cosine) ;;
  imagenet-vgg16-*)
    options=(--dataset imagenet --data "$IMAGENET" --model vgg16 --batch-size 32 --epochs 100
      --warmup-epochs 5 --lr 0.01 --lr-decay-epoch 50,80) ;;
  *)
    echo "worker.sh: no job $job; README.md has a table of them" >&2
    exit 2 ;;
esac

case "$job" in
  *-baseline) ;;
  *-fp16) options+=(--fp16-pushpull) ;;
  *-onebit) options+=(--compressor onebit --onebit-scaling --ef vanilla --compress-momentum nesterov) ;;
  *-topk) options+=(--compressor topk --k 0.001 --ef vanilla) ;;
  *-randomk) options+=(--compressor randomk --k 0.001 --ef vanilla) ;;
  *-dithering) options+=(--compressor dithering --k 2 --normalize l2) ;;
  *)
    echo "worker.sh: no compressor in $job; README.md has a table of them" >&2
    exit 2 ;;
esac

program=("$PYTHON" "$HERE/train.py")
if [[ -n ${PROGRAM:-} ]]; then
  read -ra program <<<"$PROGRAM"
fi
read -ra more <<<"${OPTIONS:-}"
exec bpslaunch --nproc "$RANKS_PER_MACHINE" "${program[@]}" "${options[@]}" --log "$job.log" "${more[@]}" "$@"
