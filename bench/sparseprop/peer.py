"""sparseprop's side: one sparse layer, forward and backward, medians in milliseconds as one JSON line.

Its C++ functions are called directly, on the layouts they work on, without the transpositions of its modules.
usage: peer.py THREADS REPEATS OUT CHANNELS SIDE HEIGHT WIDTH PERCENT_ZEROS
"""

import json
import os
import statistics
import sys
import time

threads, repeats, out, channels, side, height, width, percent = map(int, sys.argv[1:])
os.environ["OMP_NUM_THREADS"] = str(threads)

import backend  # noqa: E402  (sparseprop's extension; it reads the number of threads when it is loaded)
import torch  # noqa: E402
from sparseprop.modules.utils import to_csr_2d, to_sparse_format_conv2d  # noqa: E402

ITEMS = 8


def median_ms(call):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


torch.manual_seed(0)
shape = (out, channels) if side == 1 else (out, channels, side, side)
weight = torch.randn(shape) * (torch.rand(shape) >= percent / 100)
if side == 1:
    batch = ITEMS * height * width
    values, (rows, columns) = to_csr_2d(weight)
    x, y, dy = torch.randn(channels, batch), torch.zeros(out, batch), torch.randn(out, batch)
    dx, dw = torch.zeros(channels, batch), torch.zeros_like(values)
    forward = lambda: backend.sparse_linear_vectorized_forward(x, rows, columns, values, y)  # noqa: E731
    backward = lambda: backend.sparse_linear_vectorized_backward(  # noqa: E731
        x, rows, columns, values, dy, dx, dw
    )
else:
    values, index = to_sparse_format_conv2d(weight)
    pad = side // 2
    x, y = torch.randn(ITEMS, channels, height, width), torch.zeros(ITEMS, out, height, width)
    dy, dx, dw = torch.randn_like(y), torch.zeros_like(x), torch.zeros_like(values)
    forward = lambda: backend.sparse_conv2d_vectorized_forward_over_on_stride_1(  # noqa: E731
        x, *index, values, y, side, pad
    )
    backward = lambda: backend.sparse_conv2d_vectorized_backward_over_on_stride_1(  # noqa: E731
        x, *index, values, dy, dx, dw, side, pad
    )
print(json.dumps({"forward": median_ms(forward), "backward": median_ms(backward)}))
