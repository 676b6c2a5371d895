#!/bin/bash
# One server of the job. It ends when the workers have ended.
set -eu
source "$(dirname "$0")/cluster.sh"
export DMLC_ROLE=server
exec bpslaunch
