#!/bin/bash
# The scheduler of the job, on the first machine. It ends when the workers have ended.
set -eu
source "$(dirname "$0")/cluster.sh"
export DMLC_ROLE=scheduler
exec bpslaunch
