"""PyTorch's side: one training step (forward, backward, AdaBreg) of ECAPA-TDNN or ResNet34 with AAM-softmax.

usage: peer.py NETWORK PRECISION THREADS BATCH FRAMES REPEATS  prints {"ms": median, "peak_mb": peak resident memory}
       peer.py NETWORK ddp PROCESSES BATCH FRAMES REPEATS  the same of DDP with gloo, a thread and a batch for each
       peer.py NETWORK cuda 0 BATCH FRAMES REPEATS  prints {variant: {"gradients", "optimizer", "step": ms, "gb"}}
"""

import json
import math
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from networks import NETWORKS  # noqa: E402


class AamSoftmax(nn.Module):
    def __init__(self, dim, classes=5994, scale=32.0, margin=0.2):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, dim))
        nn.init.xavier_uniform_(self.weight)
        self.scale, self.margin = scale, margin

    def forward(self, x, labels):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight)).float()
        sine = torch.sqrt((1 - cosine**2).clamp(min=1e-7))
        shifted = cosine * math.cos(self.margin) - sine * math.sin(self.margin)
        threshold = math.cos(math.pi - self.margin)
        shifted = torch.where(cosine > threshold, shifted, cosine - 1 - threshold)
        target = F.one_hot(labels, cosine.shape[1]).bool()
        return F.cross_entropy(self.scale * torch.where(target, shifted, cosine), labels)


class AdaBreg:
    """Adam on the dual variable, then the soft threshold; multi-tensor operations, the fast way in PyTorch."""

    def __init__(self, parameters, lr=0.01, lam=1e-4):
        self.parameters = list(parameters)
        self.sparse = [parameter.dim() > 1 for parameter in self.parameters]
        self.lam = lam
        dual = [
            p.detach() + lam * p.detach().sign() if s else p.detach().clone()
            for p, s in zip(self.parameters, self.sparse)
        ]
        self.dual = [nn.Parameter(d) for d in dual]
        self.adam = torch.optim.Adam(self.dual, lr, foreach=True)

    @torch.no_grad()
    def step(self):
        for dual, parameter in zip(self.dual, self.parameters):
            dual.grad = parameter.grad
        self.adam.step()
        for dual, parameter, sparse in zip(self.dual, self.parameters, self.sparse):
            parameter.copy_(F.softshrink(dual, self.lam) if sparse else dual)
            parameter.grad = None


def on_gpu(network, batch, frames, repeats):
    """Eager in f32 and bf16 (channels last for ResNet34), and compiled; zeros are counted after every step."""
    x, labels = torch.randn(batch, frames, 80, device="cuda"), (torch.arange(batch, device="cuda") * 23) % 5994

    def measure(autocast, compiled, channels_last):
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        model = NETWORKS[network]().cuda()
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        head = AamSoftmax(model.dim).cuda()
        optimizer = AdaBreg([*model.parameters(), *head.parameters()])

        def loss():
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                embedding = model(x)
            return head(embedding.float(), labels)

        run = torch.compile(loss) if compiled else loss
        times = []
        for _ in range(5 + repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run().backward()
            torch.cuda.synchronize()
            between = time.perf_counter()
            optimizer.step()
            zeros = torch.stack([(p == 0).sum() for p in optimizer.parameters]).sum().item()
            end = time.perf_counter()
            times.append([(between - start) * 1e3, (end - between) * 1e3, (end - start) * 1e3])
        assert zeros >= 0
        middle = [sorted(part)[repeats // 2] for part in zip(*times[5:])]
        return dict(zip(("gradients", "optimizer", "step"), middle), gb=torch.cuda.max_memory_reserved() / 1e9)

    results = {"eager f32": measure(False, False, False), "eager bf16": measure(True, False, network == "resnet34")}
    results["compiled bf16"] = measure(True, True, network == "resnet34")
    print(json.dumps(results))


def one_of_several(rank, processes, network, batch, frames, repeats):
    """A process of DDP, or all there is of one process without it."""
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    torch.manual_seed(0)
    model = NETWORKS[network]()
    whole = WithHead(model, AamSoftmax(model.dim))
    if processes > 1:
        torch.distributed.init_process_group("gloo", rank=rank, world_size=processes)
        whole = nn.parallel.DistributedDataParallel(whole)
    optimizer = AdaBreg(whole.parameters())
    x, labels = torch.randn(batch, frames, 80), torch.arange(batch)
    times = []
    for _ in range(2 + repeats):
        start = time.perf_counter()
        whole(x, labels).backward()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    if rank == 0:
        print(json.dumps({"ms": sorted(times[2:])[repeats // 2]}), flush=True)
    if processes > 1:
        torch.distributed.destroy_process_group()


class WithHead(nn.Module):
    def __init__(self, model, head):
        super().__init__()
        self.model, self.head = model, head

    def forward(self, x, labels):
        return self.head(self.model(x), labels)


def ddp(network, processes, batch, frames, repeats):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    work = (processes, network, batch, frames, repeats)
    torch.multiprocessing.spawn(one_of_several, work, nprocs=processes)


def main():
    network, precision, threads, batch, frames, repeats = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    if precision == "ddp":
        return ddp(network, threads, batch, frames, repeats)
    if precision == "cuda":
        return on_gpu(network, batch, frames, repeats)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = NETWORKS[network]()
    head = AamSoftmax(model.dim)
    optimizer = AdaBreg([*model.parameters(), *head.parameters()])
    x, labels = torch.randn(batch, frames, 80), torch.arange(batch)
    times = []
    for _ in range(2 + repeats):
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            embedding = model(x)
        head(embedding.float(), labels).backward()
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    times = sorted(times[2:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": times[len(times) // 2], "peak_mb": peak}))


if __name__ == "__main__":
    main()
