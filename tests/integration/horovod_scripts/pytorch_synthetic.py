"""The usual synthetic benchmark with a ResNet-50, as people write it for Horovod."""

import argparse
import sys
import timeit
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import byteps.torch as hvd

sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "torch"))
import models  # in place of torchvision.models

parser = argparse.ArgumentParser()
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--model", default="resnet50")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--image-size", type=int, default=224)
parser.add_argument("--width", type=float, default=1.0)
parser.add_argument("--num-warmup-batches", type=int, default=10)
parser.add_argument("--num-batches-per-iter", type=int, default=10)
parser.add_argument("--num-iters", type=int, default=10)
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
args = parser.parse_args()

hvd.init()
cuda = not args.no_cuda and torch.cuda.is_available()
if cuda:
    torch.cuda.set_device(hvd.local_rank())
model = getattr(models, args.model)(classes=10, width=args.width)
lr_scaler = hvd.size() if not args.use_adasum else 1
if args.use_adasum and hvd.nccl_built():
    lr_scaler = hvd.local_size()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * lr_scaler)
compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
optimizer = hvd.DistributedOptimizer(
    optimizer,
    named_parameters=model.named_parameters(),
    compression=compression,
    op=hvd.Adasum if args.use_adasum else hvd.Average,
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)

data = torch.randn(args.batch_size, 3, args.image_size, args.image_size)
target = torch.randint(0, 10, (args.batch_size,))


def benchmark_step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()


def log(text):
    if hvd.rank() == 0:
        print(text)


log(f"Model: {args.model}")
log(f"Batch size: {args.batch_size}")
timeit.timeit(benchmark_step, number=args.num_warmup_batches)
img_secs = []
for x in range(args.num_iters):
    seconds = timeit.timeit(benchmark_step, number=args.num_batches_per_iter)
    img_secs.append(args.batch_size * args.num_batches_per_iter / seconds)
    log(f"Iter #{x}: {img_secs[-1]:.1f} img/sec per CPU")
mean = hvd.allreduce(torch.tensor(np.mean(img_secs)), op=hvd.Sum).item()
log(f"Total img/sec on {hvd.size()} CPU(s): {mean:.1f}")
