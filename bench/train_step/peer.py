"""PyTorch's side: one training step (forward, backward, AdaBreg) of ECAPA-TDNN or ResNet34 with AAM-softmax.

usage: peer.py NETWORK PRECISION THREADS BATCH FRAMES REPEATS  prints {"ms": median, "peak_mb": peak resident memory}
       peer.py NETWORK cuda 0 BATCH FRAMES REPEATS  prints {variant: {"gradients", "optimizer", "step": ms, "gb"}}
"""

import json
import math
import resource
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class ConvReluNorm(nn.Module):
    def __init__(self, inputs, outputs, kernel, dilation=1):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, dilation=dilation, padding=dilation * (kernel // 2))
        self.bn = nn.BatchNorm1d(outputs)

    def forward(self, x):
        return self.bn(F.relu(self.conv(x)))


class Res2(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.width = channels // 8
        self.parts = nn.ModuleList(ConvReluNorm(self.width, self.width, 3, dilation) for _ in range(7))

    def forward(self, x):
        pieces = torch.split(x, self.width, 1)
        outputs = [self.parts[0](pieces[0])]
        for part, piece in zip(self.parts[1:], pieces[1:]):
            outputs.append(part(piece + outputs[-1]))
        return torch.cat([*outputs, pieces[-1]], 1)


class SeRes2Block(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.body = nn.Sequential(
            ConvReluNorm(channels, channels, 1), Res2(channels, dilation), ConvReluNorm(channels, channels, 1)
        )
        self.gate = nn.Sequential(nn.Linear(channels, 128), nn.ReLU(), nn.Linear(128, channels), nn.Sigmoid())

    def forward(self, x):
        y = self.body(x)
        return x + y * self.gate(y.mean(2)).unsqueeze(2)


class Ecapa(nn.Module):
    dim = 192

    def __init__(self, channels=1024):
        super().__init__()
        self.first = ConvReluNorm(80, channels, 5)
        self.blocks = nn.ModuleList(SeRes2Block(channels, dilation) for dilation in (2, 3, 4))
        self.conv = nn.Conv1d(3 * channels, 1536, 1)
        self.hidden = nn.Conv1d(3 * 1536, 128, 1)
        self.logits = nn.Conv1d(128, 1536, 1)
        self.bn = nn.BatchNorm1d(2 * 1536)
        self.linear = nn.Linear(2 * 1536, self.dim)

    def forward(self, x):
        x = self.first(x.transpose(1, 2))
        outputs = []
        for block in self.blocks:
            x = block(x)
            outputs.append(x)
        x = F.relu(self.conv(torch.cat(outputs, 1)))
        std = torch.sqrt(x.var(2, keepdim=True) + 1e-7)
        context = torch.cat([x, x.mean(2, keepdim=True).expand_as(x), std.expand_as(x)], 1)
        attention = torch.softmax(self.logits(torch.tanh(self.hidden(context))), 2)
        mean = (attention * x).sum(2)
        std = torch.sqrt(((attention * x**2).sum(2) - mean**2).clamp(min=1e-7))
        return self.linear(self.bn(torch.cat([mean, std], 1)))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


class ResNet34(nn.Module):
    dim = 256

    def __init__(self, channels=32):
        super().__init__()
        layers = [nn.Conv2d(1, channels, 3, 1, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()]
        inputs = channels
        for stage, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                layers.append(Block(inputs, channels << stage, 2 if stage and not i else 1))
                inputs = channels << stage
        self.body = nn.Sequential(*layers)
        self.linear = nn.Linear(2 * inputs * 10, self.dim)

    def forward(self, x):
        x = self.body(x.transpose(1, 2).unsqueeze(1))
        std = torch.sqrt(x.var(3) + 1e-7)
        return self.linear(torch.cat([x.mean(3).flatten(1), std.flatten(1)], 1))


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
        model = {"ecapa": Ecapa, "resnet34": ResNet34}[network]().cuda()
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


def main():
    network, precision, threads, batch, frames, repeats = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    if precision == "cuda":
        return on_gpu(network, batch, frames, repeats)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = {"ecapa": Ecapa, "resnet34": ResNet34}[network]()
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


main()
