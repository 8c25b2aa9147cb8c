"""Train neural networks to an exact sparsity, and use them.

- ``bregman.torch``: the optimizers LinBreg, AdaBreg and ProxSGD for PyTorch (imported by itself: it needs torch).
- ``bregman.Model``: speaker embeddings from a ``.breg`` file, on the CPU.
- the command ``bregman``: train, evaluate and export speaker-verification networks.
"""

from ._model import Model, load_audio

__all__ = ["Model", "load_audio"]
__version__ = "0.1.0"
