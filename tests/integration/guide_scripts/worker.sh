#!/bin/bash --login
which python
export NVIDIA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
export DMLC_WORKER_ID=0
export DMLC_NUM_WORKER=1
export DMLC_ROLE=worker
export DMLC_NUM_SERVER=2
export DMLC_PS_ROOT_URI=192.168.80.230
export DMLC_PS_ROOT_PORT=1234         
export BYTEPS_LOG_LEVEL=WARNING
export OMP_WAIT_POLICY=PASSIVE
export OMP_NUM_THREADS=4
export BYTEPS_THREADPOOL_SIZE=16
export BYTEPS_PARTITION_BYTES=4096000
export BYTEPS_MIN_COMPRESS_BYTES=1024000
export BYTEPS_NUMA_ON=1

if [[ $1 == *"baseline"* ]]; then
  export BYTEPS_THREADPOOL_SIZE=0
  cmd="bpslaunch python example/mxnet/gradient_compression/train_cifar100_byteps_gc.py --model resnet18_v2 --mode hybrib --batch-size 32 --num-gpus 1 --num-epochs 20 -j 2 --warmup-epochs 10 --warmup-lr 0.1 --lr 0.1 --logging-file ${1}"
elif [[ $1 == *"onebit"* ]]; then
  cmd="bpslaunch python example/mxnet/gradient_compression/train_cifar100_byteps_gc.py --model resnet18_v2 --mode hybrib --batch-size 32 --num-gpus 1 --num-epochs 200 -j 2 --warmup-epochs 10 --warmup-lr 0.1 --lr 0.1 --logging-file ${1} --compressor onebit --onebit-scaling --ef vanilla --compress-momentum nesterov"
elif [[ $1 == *"topk"* ]]; then
  cmd="bpslaunch python example/mxnet/gradient_compression/train_cifar100_byteps_gc.py --model resnet18_v2 --mode hybrib --batch-size 32 --num-gpus 1 --num-epochs 200 -j 2 --warmup-epochs 10 --warmup-lr 0.1 --lr 0.1 --logging-file ${1} --compressor topk --k 0.001"
elif [[ $1 == *"randomk"* ]]; then
  cmd="bpslaunch python example/mxnet/gradient_compression/train_cifar100_byteps_gc.py --model resnet18_v2 --mode hybrib --batch-size 32 --num-gpus 1 --num-epochs 200 -j 2 --warmup-epochs 10 --warmup-lr 0.1 --lr 0.1 --logging-file ${1} --compressor randomk --k 0.001"
elif [[ $1 == *"dithering"* ]]; then
  cmd="bpslaunch python example/mxnet/gradient_compression/train_cifar100_byteps_gc.py --model resnet18_v2 --mode hybrib --batch-size 32 --num-gpus 1 --num-epochs 200 -j 2 --warmup-epochs 10 --warmup-lr 0.1 --lr 0.1 --logging-file ${1} --compressor dithering --k 2 --normalize l2"
else
  echo "unsupport compressor"
  exit
fi

if [[ $1 == *"fp16"* ]]; then
  cmd="${cmd} --fp16-pushpull"
fi

cmd="${cmd} 2>&1 >>/dev/null"

echo $cmd

exec $cmd
