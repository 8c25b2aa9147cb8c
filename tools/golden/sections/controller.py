"""The λ controller alone, on made-up readings of the sparsity."""

import itertools

import numpy as np
import torch

from store import f64

READINGS, START, LOW = 400, 0.99, 0.70
GAINS, PERIODS = [1.0, 0.25], [1, 50]
TARGETS, FIRST = [0.75, 0.9, 0.95], [1e-5, 1e-3, 0.5]
LEAST, MOST = 1e-6, 1e3
WARMUP_EPOCHS, STEPS_PER_EPOCH = 2, 10
TABLE = (0.3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.92, 0.95, 0.97, 0.99, 0.995)


def make(references, store, rng):
    readings = sparsities(rng)
    tensors = {"sparsity": f64(readings), "step": torch.arange(1, READINGS + 1, dtype=torch.int64)}
    runs = {}

    def run(alpha, period, target, first, first_step=1, **settings):
        controller = references.controller.LambdaScheduler(
            min_lambda=LEAST,
            max_lambda=MOST,
            initial_lambda=first,
            target_sparsity=target,
            acceleration_factor=alpha,
            update_frequency=period,
            **settings,
        )
        if settings:
            controller.resolve_warmup_steps(STEPS_PER_EPOCH)
        return [controller.step(float(reading), None, first_step + at) for at, reading in enumerate(readings)]

    def keep(prefix, case, lambdas, facts):
        alpha, period, target, first = case
        key = f"{prefix}alpha{alpha:g}.freq{period}.target{target:g}.init{first:g}"
        tensors[key] = f64(lambdas)
        runs[key] = {"alpha": alpha, "update_frequency": period, "target": target, "initial": first} | facts

    for case in itertools.product(GAINS, PERIODS, TARGETS, FIRST):
        lambdas = run(*case)
        keep(
            "", case, lambdas, {"final": lambdas[-1], "hit_min": min(lambdas) == LEAST, "hit_max": max(lambdas) == MOST}
        )
    case = (GAINS[0], 1, TARGETS[1], FIRST[1])
    facts = {"warmup_epochs": WARMUP_EPOCHS, "steps_per_epoch": STEPS_PER_EPOCH}
    keep("warmup.", case, run(*case, warmup_epochs=WARMUP_EPOCHS), facts)
    case = (GAINS[0], PERIODS[-1], TARGETS[1], FIRST[1])
    keep("zero_based.", case, run(*case, first_step=0), {"first_step": 0})

    default = references.lambdas.get_bregman_lambda
    kinds = ("initial_lambda", "min_lambda", "fixed_lambda")
    table = {
        optimizer: {str(share): {kind: default(optimizer, share, kind) for kind in kinds} for share in TABLE}
        for optimizer in ("AdaBreg", "LinBreg")
    }
    store.save(
        "lambda_controller",
        "Produced by LambdaScheduler.step (and get_bregman_lambda for default_lambda_table) of "
        "ahmad-aloradi/adversarial-robustness-for-sr.",
        {"min_lambda": LEAST, "max_lambda": MOST, "runs": runs, "default_lambda_table": table},
        tensors,
    )


def sparsities(rng):
    """Down and up again with noise, once exactly on a target: there λ must not move."""
    half = READINGS // 2
    way = np.concatenate([np.linspace(START, LOW, half), np.linspace(LOW, START, READINGS - half)])
    walk = np.cumsum(rng.normal(0, 0.004, READINGS))
    walk -= np.linspace(0, walk[-1], READINGS)
    readings = np.clip(way + walk + rng.normal(0, 0.002, READINGS), 0.0, 1.0)
    readings[0], readings[60] = START, TARGETS[1]
    return readings
