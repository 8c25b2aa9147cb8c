"""PyTorch's side: one training step (forward, backward, AdaBreg) of ECAPA-TDNN or ResNet34 with AAM-softmax.

usage: peer.py NETWORK PRECISION THREADS BATCH FRAMES REPEATS  prints {"ms": median, "peak_mb": peak resident memory}
       peer.py NETWORK ddp PROCESSES BATCH FRAMES REPEATS  the same of DDP with gloo, a thread and a batch for each
       peer.py NETWORK cuda 0 BATCH FRAMES REPEATS [WORD…]
           prints {variant: {"gradients", "optimizer", "step": ms, "gb"}} of the variants that have all these words,
           such as `compiled`, or one of several: `f32,tf32`
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


def clip(parameters):
    """As every recipe of a Bregman method does, and our side here."""
    torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)


class AdaBreg:
    """Adam on the dual variable, then the soft threshold; multi-tensor operations, the fast way in PyTorch. On a GPU
    its fused Adam, and a prox that is multi-tensor too."""

    def __init__(self, parameters, lr=0.01, lam=1e-4, fused=False):
        self.parameters = list(parameters)
        self.sparse = [parameter.dim() > 1 for parameter in self.parameters]
        self.lam = lam
        dual = [
            p.detach() + lam * p.detach().sign() if s else p.detach().clone()
            for p, s in zip(self.parameters, self.sparse)
        ]
        self.dual = [nn.Parameter(d) for d in dual]
        self.fused = fused
        self.adam = torch.optim.Adam(self.dual, lr, **{"fused" if fused else "foreach": True})

    @torch.no_grad()
    def step(self):
        for dual, parameter in zip(self.dual, self.parameters):
            dual.grad = parameter.grad
        self.adam.step()
        if self.fused:
            return self.fused_prox()
        for dual, parameter, sparse in zip(self.dual, self.parameters, self.sparse):
            parameter.copy_(F.softshrink(dual, self.lam) if sparse else dual)
            parameter.grad = None

    def fused_prox(self):
        """x − clamp(x, −λ, λ) of all penalised tensors at once."""
        pairs = list(zip(self.dual, self.parameters, self.sparse))
        dual = [d.data for d, _, sparse in pairs if sparse]
        inner = torch._foreach_clamp_max(torch._foreach_clamp_min(dual, -self.lam), self.lam)
        torch._foreach_copy_([p.data for _, p, sparse in pairs if sparse], torch._foreach_sub(dual, inner))
        torch._foreach_copy_([p.data for _, p, s in pairs if not s], [d.data for d, _, s in pairs if not s])
        for parameter in self.parameters:
            parameter.grad = None

    def zeros(self):
        return torch.stack([(p == 0).sum() for p in self.parameters]).sum()


def on_gpu(network, batch, frames, repeats, words):
    """Eager and compiled, TF32 off, on, and bf16 autocast; the better memory format for maps is tried too. Zeros are
    counted after every step, and read at the end."""
    x, labels = torch.randn(batch, frames, 80, device="cuda"), (torch.arange(batch, device="cuda") * 23) % 5994
    torch.backends.cudnn.benchmark = True
    modes = {"eager": None, "compiled": "default", "max-autotune": "max-autotune"}

    def measure(precision, mode, channels_last):
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(0)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
        model = NETWORKS[network]().cuda()
        if channels_last:
            model = model.to(memory_format=torch.channels_last)
        head = AamSoftmax(model.dim).cuda()
        optimizer = AdaBreg([*model.parameters(), *head.parameters()], fused=True)

        def loss():
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                embedding = model(x)
            return head(embedding.float(), labels)

        run = torch.compile(loss, mode=modes[mode]) if modes[mode] else loss
        times = []
        for _ in range(5 + repeats):
            torch.cuda.synchronize()
            start = time.perf_counter()
            run().backward()
            torch.cuda.synchronize()
            between = time.perf_counter()
            optimizer.step()
            optimizer.zeros()
            torch.cuda.synchronize()
            times.append([(between - start) * 1e3, (time.perf_counter() - between) * 1e3])
        start = time.perf_counter()
        for _ in range(repeats):
            run().backward()
            clip(optimizer.parameters)
            optimizer.step()
            zeros = optimizer.zeros()
        assert zeros.item() >= 0
        step = (time.perf_counter() - start) * 1e3 / repeats
        gradients, update = [sorted(part)[repeats // 2] for part in zip(*times[5:])]
        gb = torch.cuda.max_memory_reserved() / 1e9
        return {"gradients": gradients, "optimizer": update, "step": step, "gb": gb}

    results = {}
    for precision in ("f32", "tf32", "bf16"):
        for mode in modes:
            for last in (False, True) if network == "resnet34" else (False,):
                name = f"{mode} {precision}" + (" channels-last" if last else "")
                if not all(any(one in name.split() for one in word.split(",")) for word in words):
                    continue
                try:
                    results[name] = measure(precision, mode, last)
                    print(name, results[name], file=sys.stderr, flush=True)
                except Exception as error:  # one variant that fails here does not hide the others
                    print(f"{name}: {error!r}"[:500], file=sys.stderr, flush=True)
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
        clip(optimizer.parameters)
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
    network, precision, threads, batch, frames, repeats = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:7])
    if precision == "ddp":
        return ddp(network, threads, batch, frames, repeats)
    if precision == "cuda":
        return on_gpu(network, batch, frames, repeats, sys.argv[7:])
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
        clip(optimizer.parameters)
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    times = sorted(times[2:])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"ms": times[len(times) // 2], "peak_mb": peak}))


if __name__ == "__main__":
    main()
