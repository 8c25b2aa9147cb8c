#!/usr/bin/env python3
"""Makes the numbers in golden/ by running public implementations; README.md here says how to call it.

No algorithm under test is written here: only inputs from a seed, the calls, and the reference's own rounding error.
"""

import argparse
import tempfile

import numpy as np
import torch

from references import REPOSITORIES, References
from sections import controller, features, loss, networks, optimizers, pruning, scoring, speechbrain
from store import Store

# Each with the number of its random stream: a section gives the same numbers whether made alone or with the others.
SECTIONS = {
    "optimizers": (1, optimizers),
    "controller": (2, controller),
    "networks": (3, networks),
    "loss": (4, loss),
    "features": (5, features),
    "scoring": (6, scoring),
    "pruning": (7, pruning),
    "speechbrain": (8, speechbrain),
}
# What they need is on PyPI.
WITHOUT_CHECKOUTS = {"speechbrain"}


def main():
    parser = argparse.ArgumentParser(description="Makes golden numbers from public implementations.")
    for name, repository in REPOSITORIES.items():
        parser.add_argument(f"--{name}", metavar="DIR", help=f"a checkout of {repository}")
    parser.add_argument("--out", required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=1234, help="golden/ has %(default)s")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    args = parser.parse_args()
    checkouts = {name: getattr(args, name) for name in REPOSITORIES}
    needed = not set(args.only) <= WITHOUT_CHECKOUTS
    missing = [f"--{name}" for name, path in checkouts.items() if path is None]
    if needed and missing:
        parser.error(f"these sections need {' '.join(missing)}")
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        references = References(checkouts, scratch) if needed else None
        store = Store(args.out, references.commits if needed else {}, args.seed)
        for name in args.only:
            print(f"making {name}")
            stream, section = SECTIONS[name]
            section.make(references, store, np.random.default_rng([args.seed, stream]))


if __name__ == "__main__":
    main()
