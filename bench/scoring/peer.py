"""CN-Celeb-E scored in vectorised numpy: AS-norm of every model against every test, then EER and minDCF. Scores are
float32.

Usage: peer.py FOLDER THREADS MODELS TESTS COHORT DIM TOP_N ROUNDS; prints one JSON object with milliseconds (best
round) and rates.
FOLDER holds models.f32, tests.f32, cohort.f32 (row-major) and speakers.i32 (of models, then of tests).
"""

import json
import os
import sys
import time

folder, threads = sys.argv[1:3]
models_n, tests_n, cohort_n, dim, top_n, rounds = map(int, sys.argv[3:])
os.environ["OPENBLAS_NUM_THREADS"] = threads

import numpy as np

load = lambda name, rows: np.fromfile(os.path.join(folder, name), dtype=np.float32).reshape(rows, dim)
models, tests, cohort = load("models.f32", models_n), load("tests.f32", tests_n), load("cohort.f32", cohort_n)
speakers = np.fromfile(os.path.join(folder, "speakers.i32"), dtype=np.int32)
# The trial list holds row numbers; here every model is tested against every test.
enroll, test = np.repeat(np.arange(models_n), tests_n), np.tile(np.arange(tests_n), models_n)
labels = speakers[:models_n][enroll] == speakers[models_n:][test]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def statistics(embeddings, cohort, block=1024):
    means, stds = [], []
    for start in range(0, len(embeddings), block):  # scores in cache: faster than one product of 18 k × 2.8 k
        scores = embeddings[start : start + block] @ cohort.T
        top = np.partition(scores, cohort.shape[0] - top_n, axis=1)[:, cohort.shape[0] - top_n :]
        means.append(top.mean(axis=1))
        stds.append(top.std(axis=1))
    return np.concatenate(means), np.concatenate(stds)


def as_norm():
    e, t, c = unit(models), unit(tests), unit(cohort)
    (me, se), (mt, st) = statistics(e, c), statistics(t, c)
    cosine = (e @ t.T)[enroll, test]
    return 0.5 * ((cosine - me[enroll]) / se[enroll] + (cosine - mt[test]) / st[test])


def rates(scores):
    order = np.argsort(scores)
    targets = labels[order]
    fnr = np.cumsum(targets) / targets.sum()
    fpr = 1 - np.cumsum(~targets) / (~targets).sum()
    x1 = np.flatnonzero(fnr >= fpr)[0]
    x2 = np.flatnonzero(fnr < fpr)[-1]
    share = (fnr[x1] - fpr[x1]) / (fpr[x2] - fpr[x1] - (fnr[x2] - fnr[x1]))
    return [fnr[x1] + share * (fnr[x2] - fnr[x1])] + [np.min(p * fnr + (1 - p) * fpr) / p for p in (0.01, 0.05)]


def best(call):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = call()
        times.append((time.perf_counter() - start) * 1e3)
    return min(times), result


as_norm_ms, scores = best(as_norm)
rates_ms, values = best(lambda: rates(scores))
print(
    json.dumps(
        {"as_norm": as_norm_ms, "rates": rates_ms, "eer": values[0], "min_dcf": values[1], "min_dcf_0.05": values[2]}
    )
)
