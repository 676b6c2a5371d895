#!/bin/bash --login
which python3
export NVIDIA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export DMLC_WORKER_ID=0
export DMLC_NUM_WORKER=8
export DMLC_ROLE=worker 
export DMLC_NUM_SERVER=16
export DMLC_PS_ROOT_URI=192.168.80.230 
export DMLC_PS_ROOT_PORT=1234        
export BYTEPS_LOG_LEVEL=WARNING
export OMP_WAIT_POLICY=PASSIVE
export OMP_NUM_THREADS=4
export BYTEPS_THREADPOOL_SIZE=16
export BYTEPS_PARTITION_BYTES=4096000
export BYTEPS_MIN_COMPRESS_BYTES=1024000
export BYTEPS_NUMA_ON=1

if [ $1 == "baseline" ]; then
  export BYTEPS_THREADPOOL_SIZE=0
  nohup bpslaunch python3 example/mxnet/gradient_compression/train_gluon_imagenet_byteps_gc.py --model resnet50_v2 --mode hybrid --rec-train ~/data/ILSVRC2012/train.rec --rec-train-idx ~/data/ILSVRC2012/train.idx --rec-val ~/data/ILSVRC2012/val.rec --rec-val-idx ~/data/ILSVRC2012/val.idx --use-rec --batch-size 64 --num-gpus 1 --num-epochs 120 -j 2 --warmup-epochs 5 --warmup-lr 0.2 --lr 0.2 --lr-mode cosine --logging-file baseline >>/dev/null 2>&1 &
elif [ $1 == "onebit" ]; then
  nohup bpslaunch python3 example/mxnet/gradient_compression/train_gluon_imagenet_byteps_gc.py --model resnet50_v2 --mode hybrid --rec-train ~/data/ILSVRC2012/train.rec --rec-train-idx ~/data/ILSVRC2012/train.idx --rec-val ~/data/ILSVRC2012/val.rec --rec-val-idx ~/data/ILSVRC2012/val.idx --use-rec --batch-size 64 --num-gpus 1 --num-epochs 120 -j 2 --warmup-epochs 5 --warmup-lr 0.1 --lr 0.1 --lr-mode cosine  --logging-file onebit --compressor onebit --onebit-scaling --ef vanilla --compress-momentum nesterov >>/dev/null 2>&1 &
else
  echo "unsupport compressor"
fi
