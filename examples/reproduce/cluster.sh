# The numbers of the cluster, read by the other scripts. Whatever is set before wins.
# One line of `hosts` for each machine, its address first; the first one has the scheduler too.

HERE="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
HOSTS_FILE="${HOSTS_FILE:-$HERE/hosts}"
if [[ ! -r $HOSTS_FILE ]]; then
  echo "$0: no file $HOSTS_FILE; write the address of one machine in each line" >&2
  exit 2
fi
mapfile -t HOSTS < <(sed -E 's/#.*//; s/^[[:space:]]+//; s/[[:space:]].*//' "$HOSTS_FILE" | grep .)

SERVERS_PER_MACHINE="${SERVERS_PER_MACHINE:-2}"
RANKS_PER_MACHINE="${RANKS_PER_MACHINE:-8}" # one for each GPU
PYTHON="${PYTHON:-python3}"

export DMLC_NUM_WORKER="${DMLC_NUM_WORKER:-${#HOSTS[@]}}"
export DMLC_NUM_SERVER="${DMLC_NUM_SERVER:-$((DMLC_NUM_WORKER * SERVERS_PER_MACHINE))}"
export DMLC_PS_ROOT_URI="${DMLC_PS_ROOT_URI:-${HOSTS[0]}}"
export DMLC_PS_ROOT_PORT="${DMLC_PS_ROOT_PORT:-1234}"
export BYTEPS_LOG_LEVEL="${BYTEPS_LOG_LEVEL:-WARNING}"
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
