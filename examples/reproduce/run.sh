#!/bin/bash
# Everything of this machine, for one job after the other: run.sh JOB...
# Started on all machines at once: pssh -i -t 0 -h hosts "$PWD/run.sh cifar100-onebit"
set -eu
here="$(dirname "$0")"
source "$here/cluster.sh"

# The number of this machine is the line of `hosts` with one of its addresses.
if [[ -z ${DMLC_WORKER_ID:-} ]]; then
  for index in "${!HOSTS[@]}"; do
    if ip -o address | grep -qwF "${HOSTS[$index]}"; then
      export DMLC_WORKER_ID=$index
    fi
  done
fi
: "${DMLC_WORKER_ID:?no line of $HOSTS_FILE is an address of this machine; set DMLC_WORKER_ID}"

started=()
# Ends what this script has started, and nothing else on this machine.
finish() { [[ ${#started[@]} == 0 ]] || kill "${started[@]}" 2>/dev/null || true; }
trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT

for job in "$@"; do
  echo "start $job, machine $DMLC_WORKER_ID of $DMLC_NUM_WORKER"
  started=()
  if [[ $DMLC_WORKER_ID == 0 ]]; then
    "$here/scheduler.sh" &
    started+=($!)
  fi
  for ((server = 0; server < SERVERS_PER_MACHINE; server++)); do
    "$here/server.sh" &
    started+=($!)
  done
  "$here/worker.sh" "$job" &
  started+=($!)
  for pid in "${started[@]}"; do
    wait "$pid" # with set -e, the first that fails ends all of them
  done
  started=()
  echo "$job done"
done
