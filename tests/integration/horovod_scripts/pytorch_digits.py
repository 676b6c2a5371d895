"""Digits with PyTorch, as people write it for Horovod; the import is all that says otherwise."""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import byteps.torch as hvd

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--lr", type=float, default=0.02)
parser.add_argument("--momentum", type=float, default=0.9)
parser.add_argument("--fp16-allreduce", action="store_true")
parser.add_argument("--use-adasum", action="store_true")
parser.add_argument("--gradient-predivide-factor", type=float, default=1.0)
parser.add_argument("--batches-per-allreduce", type=int, default=1)
parser.add_argument("--num-groups", type=int, default=0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3)
        self.norm = hvd.SyncBatchNorm(16)
        self.hidden = nn.Linear(16 * 36, 64)
        self.out = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        x = F.relu(self.hidden(x.flatten(1)))
        return F.log_softmax(self.out(x), dim=1)


class Metric:
    def __init__(self, name):
        self.name = name
        self.sum = torch.tensor(0.0)
        self.n = torch.tensor(0.0)

    def update(self, value):
        self.sum += hvd.allreduce(value.detach(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return (self.sum / self.n).item()


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def main(args):
    hvd.init()
    torch.manual_seed(42)
    torch.set_num_threads(1)
    if hvd.rank() == 0:
        print(f"nccl: {hvd.nccl_built()}, mpi: {hvd.mpi_enabled()}, {hvd.size()} processes")

    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    train, test = TensorDataset(images[:1400], labels[:1400]), TensorDataset(images[1400:], labels[1400:])
    train_sampler = DistributedSampler(train, num_replicas=hvd.size(), rank=hvd.rank())
    train_loader = DataLoader(train, batch_size=args.batch_size, sampler=train_sampler)
    test_sampler = DistributedSampler(test, num_replicas=hvd.size(), rank=hvd.rank())
    test_loader = DataLoader(test, batch_size=args.batch_size, sampler=test_sampler)

    model = Net()
    lr_scaler = args.batches_per_allreduce * hvd.size() if not args.use_adasum else 1
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * lr_scaler, momentum=args.momentum)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    compression = hvd.Compression.fp16 if args.fp16_allreduce else hvd.Compression.none
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=compression,
        backward_passes_per_step=args.batches_per_allreduce,
        op=hvd.Adasum if args.use_adasum else hvd.Average,
        gradient_predivide_factor=args.gradient_predivide_factor,
        num_groups=args.num_groups,
    )

    for epoch in range(args.epochs):
        model.train()
        train_sampler.set_epoch(epoch)
        train_loss = Metric("train_loss")
        for batch, target in train_loader:
            optimizer.zero_grad()
            for i in range(0, len(batch), -(-len(batch) // args.batches_per_allreduce)):
                part = slice(i, i + -(-len(batch) // args.batches_per_allreduce))
                loss = F.nll_loss(model(batch[part]), target[part])
                (loss / args.batches_per_allreduce).backward()
            train_loss.update(loss)
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            with optimizer.skip_synchronize():
                optimizer.step()

        model.eval()
        correct = total = 0.0
        predictions = []
        with torch.no_grad():
            for batch, target in test_loader:
                guess = model(batch).argmax(1)
                predictions.append(guess)
                correct += (guess == target).float().sum().item()
                total += len(target)
        accuracy = metric_average(correct / total, "avg_accuracy")
        everybody = hvd.allgather(torch.cat(predictions), name="predictions")
        if hvd.rank() == 0:
            print(
                f"epoch {epoch}: loss {train_loss.avg:.4f}, accuracy {accuracy:.4f}, {len(everybody)} guesses"
            )
    best = hvd.broadcast_object({"accuracy": accuracy, "epoch": epoch}, root_rank=0)
    assert best["accuracy"] == accuracy


if __name__ == "__main__":
    main(parser.parse_args())
