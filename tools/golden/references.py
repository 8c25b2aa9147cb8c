"""The public implementations, imported from checkouts; a bare git directory is unpacked first.

Their packages import training frameworks at the top. Empty packages stand in for those `__init__` files, so that only
the modules with the arithmetic run.
"""

import importlib
import importlib.util
import io
import logging
import subprocess
import sys
import tarfile
import types
from pathlib import Path

REPOSITORIES = {
    "bregman": "TimRoith/BregmanLearning",
    "authors": "ahmad-aloradi/adversarial-robustness-for-sr",
    "wespeaker": "wenet-e2e/wespeaker",
}


class References:
    def __init__(self, paths, scratch):
        self.commits, roots = {}, {}
        for name, path in paths.items():
            roots[name], self.commits[REPOSITORIES[name]] = unpack(Path(path).resolve(), Path(scratch) / name)
        self.import_bregman(roots["bregman"])
        self.import_authors(roots["authors"] / "src")
        self.import_wespeaker(roots["wespeaker"] / "wespeaker")

    def import_bregman(self, root):
        """The first publication of LinBreg and AdaBreg: two flat files."""
        sys.path.insert(0, str(root))
        self.first_optimizers = importlib.import_module("optimizers")
        self.first_penalties = importlib.import_module("regularizers")
        sys.path.pop(0)
        assert self.first_optimizers.__file__.startswith(str(root)), "another module is called `optimizers`"

    def import_authors(self, src):
        """The code of the paper on steering λ."""
        package("src", src)
        package("src.utils", src / "utils", get_pylogger=lambda name=None: logging.getLogger(name))
        for name in ("callbacks", "callbacks.pruning", "callbacks.pruning.bregman", "modules", "modules.metrics"):
            package(f"src.{name}", src / Path(*name.split(".")))
        if importlib.util.find_spec("pytorch_lightning") is None:
            anything = type("Anything", (), {})
            package("pytorch_lightning", "", Trainer=anything, Callback=anything, LightningModule=anything)
            package(
                "pytorch_lightning.callbacks", "", Callback=anything, EarlyStopping=anything, ModelCheckpoint=anything
            )
        bregman = "src.callbacks.pruning.bregman."
        self.optimizers = importlib.import_module(bregman + "bregman_optimizers")
        self.penalties = importlib.import_module(bregman + "bregman_regularizers")
        self.controller = importlib.import_module(bregman + "lambda_scheduler")
        self.sparsity = importlib.import_module("src.callbacks.pruning.shared_prune_utils")
        self.pruning = importlib.import_module("src.callbacks.pruning.scheduler")
        self.margin = importlib.import_module("src.callbacks.margin_scheduler")
        self.lambdas = importlib.import_module("src.utils.bregman_utils")
        self.scoring = importlib.import_module("src.modules.scoring")
        self.metrics = importlib.import_module("src.modules.metrics.metrics")

    def import_wespeaker(self, root):
        package("wespeaker", root)
        for name in ("models", "utils", "bin"):
            package(f"wespeaker.{name}", root / name)
        self.ecapa = importlib.import_module("wespeaker.models.ecapa_tdnn")
        self.resnet = importlib.import_module("wespeaker.models.resnet")
        self.projections = importlib.import_module("wespeaker.models.projections")
        self.score = importlib.import_module("wespeaker.bin.score")
        self.score_norm = importlib.import_module("wespeaker.bin.score_norm")
        self.score_metrics = importlib.import_module("wespeaker.utils.score_metrics")


def unpack(path, target):
    """The files of a checkout's last commit, and its hash."""
    git = ["git", "--git-dir", str(path if (path / "HEAD").exists() else path / ".git")]
    run = lambda *words: subprocess.run([*git, *words], check=True, capture_output=True).stdout
    archive = run("archive", "HEAD")
    target.mkdir()
    tarfile.open(fileobj=io.BytesIO(archive)).extractall(target, filter="data")
    return target, run("rev-parse", "HEAD").decode().strip()


def package(name, path, **attributes):
    """An empty package of this name whose modules are found at `path`."""
    module = types.ModuleType(name)
    module.__path__ = [str(path)]
    for key, value in attributes.items():
        setattr(module, key, value)
    sys.modules[name] = module
    parent, _, leaf = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], leaf, module)
