"""The optimizer step as published: AdaBreg and LinBreg per tensor in eager PyTorch, the same tensor operations in the
same order, followed by the count of zeros.

Usage: peer.py SHAPES_JSON THREADS; prints one JSON object with medians in milliseconds.
"""

import json
import statistics
import sys
import time

import torch

REPEATS, WARMUP = 15, 3


def soft(x, threshold):
    return torch.sign(x) * torch.clamp(x.abs() - threshold, min=0)


class Reference:
    """Weights, gradients, duals and moments of every tensor. Tensors of two or more dimensions have an ℓ1 penalty."""

    def __init__(self, shapes, lam, device="cpu"):
        generator = torch.Generator(device).manual_seed(0)
        random = {"generator": generator, "device": device}
        self.lam = lam
        self.theta = [torch.randn(s, **random) * 0.05 * (torch.rand(s, **random) < 0.05) for s in shapes]
        self.grad = [torch.randn(shape, **random) * 1e-3 for shape in shapes]
        self.controlled = [len(shape) > 1 for shape in shapes]
        self.dual = [t + lam * torch.sign(t) if c else t.clone() for t, c in zip(self.theta, self.controlled)]
        self.mean = [torch.zeros_like(t) for t in self.theta]
        self.square = [torch.zeros_like(t) for t in self.theta]
        self.steps = 0

    def prox(self, i, delta=1.0):
        scaled = delta * self.dual[i]
        self.theta[i].copy_(soft(scaled, delta * self.lam) if self.controlled[i] else scaled)

    @torch.no_grad()
    def linbreg(self, lr=0.1):
        for i, grad in enumerate(self.grad):
            self.dual[i].add_(-lr * grad)
            self.prox(i)

    @torch.no_grad()
    def adabreg(self, lr=0.01, beta1=0.9, beta2=0.999, eps=1e-8):
        self.steps += 1
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for i, grad in enumerate(self.grad):
            self.mean[i].mul_(beta1).add_(grad, alpha=1 - beta1)
            self.square[i].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
            denominator = (self.square[i].sqrt() / correction2**0.5).add_(eps)
            self.dual[i].addcdiv_(self.mean[i], denominator, value=-lr / correction1)
            self.prox(i)

    @torch.no_grad()
    def quantile(self):
        magnitudes = torch.cat([p.abs().flatten() for p, c in zip(self.dual, self.controlled) if c])
        return magnitudes.kthvalue(int(0.95 * magnitudes.numel())).values.item()

    @torch.no_grad()
    def sparsity(self):
        zeros = sum((t.abs() <= 1e-12).sum().item() for t, c in zip(self.theta, self.controlled) if c)
        return zeros / sum(t.numel() for t, c in zip(self.theta, self.controlled) if c)


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def median_ms(call):
    times = []
    for i in range(WARMUP + REPEATS):
        wait()
        start = time.perf_counter()
        call()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times[WARMUP:])


def fused_adamw_ms(shapes, device="cpu"):
    parameters = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)
    return median_ms(optimizer.step)


def main():
    shapes, threads = json.loads(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(threads)
    result = {}
    for name, lam in (("linbreg", 0.01), ("adabreg", 1.0)):
        reference = Reference(shapes, lam)
        result[name] = median_ms(getattr(reference, name))
        result["count"] = median_ms(reference.sparsity)
    result["quantile"] = median_ms(reference.quantile)
    result["fused_adamw"] = fused_adamw_ms(shapes)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
