#!/bin/bash --login
export DMLC_NUM_WORKER=8
export DMLC_ROLE=server
export DMLC_NUM_SERVER=16
export DMLC_PS_ROOT_URI=192.168.80.230
export DMLC_PS_ROOT_PORT=1234
export OMP_NUM_THREADS=4
export OMP_WAIT_POLICY=PASSIVE
export BYTEPS_LOG_LEVEL=WARNING

nohup bpslaunch >>/dev/null 2>&1 &
