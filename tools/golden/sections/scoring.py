"""Cosine scores, AS-norm, EER and minDCF of WeSpeaker's scripts, and of the authors' pipeline beside them."""

import contextlib
import io
import tempfile
from pathlib import Path

import numpy as np
import torch
from sklearn.metrics.pairwise import cosine_similarity

from store import f32, f64, largest_difference

SPEAKERS, UTTERANCES, SIZE, COHORT, TRIALS, TOP = 20, 5, 16, 300, 600, 50
SCORES, TARGETS, P_TARGET, TIE_DECIMALS = 5000, 500, 0.01, 2
CENTRED = {"": False, "_centered": True}


def make(references, store, rng):
    embeddings, cohort, speaker, trials, labels = inputs(rng)
    tensors = {
        "embeddings": f32(embeddings),
        "cohort": f32(cohort),
        "speaker": torch.from_numpy(speaker.astype(np.int64)),
        "trials": torch.from_numpy(trials),
        "trial_labels": torch.from_numpy(labels),
    }
    tensors |= wespeaker(references, embeddings, cohort, trials, labels)
    of_authors, cross_check = authors(references, tensors, trials)
    tensors |= of_authors

    scores, score_labels = made_up_scores(rng)
    ties = np.round(scores, TIE_DECIMALS)
    tensors |= {
        "metric_scores": f64(scores),
        "metric_labels": torch.from_numpy(score_labels),
        "metric_scores_ties": f64(ties),
    }
    rates = lambda scores, labels: error_rates(references, scores, labels)
    sliver = 1e-9  # decides the order within tied scores: the worst and the best that a sort may choose
    metrics = {
        "no_ties": rates(scores, score_labels),
        "ties": rates(ties, score_labels),
        "ties_targets_sorted_first": rates(ties - sliver * score_labels, score_labels),
        "ties_targets_sorted_last": rates(ties + sliver * score_labels, score_labels),
        "trials_cosine": rates(tensors["cosine"].numpy(), labels),
        "trials_asnorm": rates(tensors["asnorm"].numpy(), labels),
        "trials_asnorm_centered": rates(tensors["asnorm_centered"].numpy(), labels),
        "separable": rates(np.array([0.1, 0.2, 0.3, 0.7, 0.8]), np.array([0, 0, 0, 1, 1])),
    }
    for p_target in (P_TARGET, 1 - P_TARGET, 0.5):
        metric = references.metrics.VerificationMetrics(P_target=p_target)
        metric.update(torch.from_numpy(scores).float(), torch.from_numpy(score_labels).float())
        result = metric.compute()
        cross_check[f"VerificationMetrics(P_target={p_target:g})"] = {
            key: float(result[key]) for key in ("eer", "minDCF", "eer_threshold")
        }
    rounded = [kind + tag for tag in CENTRED for kind in ("cosine", "asnorm")]
    store.save(
        "scoring",
        "Produced by wenet-e2e/wespeaker bin/score.py, bin/score_norm.py (get_mean_std and main) and "
        "utils/score_metrics.py; authors_* by ahmad-aloradi/adversarial-robustness-for-sr src/modules/scoring.py and "
        "metrics.py.",
        {
            "top_n": TOP,
            "p_target": P_TARGET,
            "c_miss": 1,
            "c_fa": 1,
            "metrics": metrics,
            "authors_cross_check": cross_check,
            "file_vs_full_precision": {
                key: float(np.abs(tensors[f"{key}_file"].numpy() - tensors[key].numpy()).max()) for key in rounded
            },
        },
        tensors,
    )


def inputs(rng):
    count = SPEAKERS * UTTERANCES
    centre = rng.normal(0, 0.6, SIZE)
    voices = rng.normal(0, 1.0, (SPEAKERS, SIZE))
    embeddings = (centre + np.repeat(voices, UTTERANCES, 0) + rng.normal(0, 0.8, (count, SIZE))).astype(np.float32)
    cohort = (centre + rng.normal(0, 1.1, (COHORT, SIZE))).astype(np.float32)
    speaker = np.repeat(np.arange(SPEAKERS), UTTERANCES)
    pairs = {}
    while len(pairs) < TRIALS:
        first = int(rng.integers(0, count))
        anyone = rng.random() < 0.7
        second = (
            int(rng.integers(0, count)) if anyone else int(speaker[first] * UTTERANCES + rng.integers(0, UTTERANCES))
        )
        if first != second:
            pairs[first, second] = None
    trials = np.array(list(pairs), dtype=np.int64)
    labels = (speaker[trials[:, 0]] == speaker[trials[:, 1]]).astype(np.int64)
    return embeddings, cohort, speaker, trials, labels


def wespeaker(references, embeddings, cohort, trials, labels):
    """Its scripts as they are, through files; and the same in float64, without the rounding of the files."""
    import kaldiio

    tensors = {}
    names = [f"u{row:04d}" for row in range(len(embeddings))]
    word = {0: "nontarget", 1: "target"}
    quiet = io.StringIO()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        folder = Path(folder)
        vectors, others = folder / "e.scp", folder / "coh" / "xvector.scp"
        others.parent.mkdir()
        kaldiio.save_ark(str(folder / "e.ark"), dict(zip(names, embeddings)), scp=str(vectors))
        of_cohort = {f"c{row:04d}": vector for row, vector in enumerate(cohort)}
        kaldiio.save_ark(str(others.parent / "c.ark"), of_cohort, scp=str(others))
        rows = [f"{names[a]} {names[b]} {word[label]}\n" for (a, b), label in zip(trials, labels)]
        (folder / "trials").write_text("".join(rows))
        for tag, centred in CENTRED.items():
            out = folder / f"exp{tag}"
            raw, normed, mean_file = out / "scores" / "trials.score", out / "n.score", others.parent / "mean_vec.npy"
            references.score.main(str(out), str(vectors), centred, str(others.parent), str(folder / "trials"))
            references.score_norm.main(
                "asnorm", TOP, str(raw), str(normed), str(others), str(vectors), str(mean_file) if centred else None
            )
            for kind, file in (("cosine", raw), ("asnorm", normed)):
                tensors[f"{kind}{tag}_file"] = f64([float(line.split()[2]) for line in file.read_text().splitlines()])
            mean = np.load(mean_file) if centred else np.float32(0)
            own, against = (embeddings - mean).astype(np.float64), (cohort - mean).astype(np.float64)
            means, deviations = references.score_norm.get_mean_std(own, against, TOP)
            first, second = trials.T
            cosine = cosine_similarity(own)[first, second]
            z = lambda side: (cosine - means[side]) / deviations[side]
            tensors |= {
                f"cosine{tag}": f64(cosine),
                f"asnorm{tag}": f64(0.5 * (z(first) + z(second))),
                f"cohort_mean{tag}": f64(means),
                f"cohort_std{tag}": f64(deviations),
            }
            if centred:
                tensors["mean_vector"] = f32(mean)
    return tensors


def authors(references, tensors, trials):
    build = references.scoring.build_scoring_pipeline
    embeddings, cohort = tensors["embeddings"], tensors["cohort"]
    found, cross_check = {}, {}
    for tag, centred in CENTRED.items():
        pipeline = build(
            {
                "enrollment_aggregation": "mean",
                "mean_source": "cohort" if centred else "none",
                "norm_method": "as_norm",
                "cohort": {"speaker_level": False, "topk_speakers": TOP, "min_size": 1},
            }
        )
        pipeline.set_cohort(cohort)
        normed, raw = pipeline.score_batch(embeddings[trials[:, 0]], embeddings[trials[:, 1]])
        found[f"authors_cosine{tag}"], found[f"authors_asnorm{tag}"] = raw, normed
        cross_check["authors_minus_wespeaker" + (tag or "_uncentered")] = {
            "cosine_max_abs": largest_difference(raw, tensors[f"cosine{tag}"]),
            "asnorm_max_abs": largest_difference(normed, tensors[f"asnorm{tag}"]),
            "asnorm_mean_abs": float((normed.double() - tensors[f"asnorm{tag}"]).abs().mean()),
        }
    pipeline = build(
        {
            "enrollment_aggregation": "mean",
            "mean_source": "none",
            "norm_method": "none",
            "cohort": {"speaker_level": False},
        }
    )
    of_speaker = embeddings.split(UTTERANCES)
    found["authors_enrollment_mean"] = torch.stack([pipeline.aggregate_enrollment(rows) for rows in of_speaker])
    return found, cross_check


def made_up_scores(rng):
    """Two overlapping normal distributions in random order, no two scores equal."""
    scores = np.concatenate([rng.normal(0.55, 0.15, TARGETS), rng.normal(0.1, 0.13, SCORES - TARGETS)])
    labels = np.concatenate([np.ones(TARGETS, np.int64), np.zeros(SCORES - TARGETS, np.int64)])
    order = rng.permutation(SCORES)
    scores, labels = scores[order].astype(np.float32).astype(np.float64), labels[order]
    scores += np.arange(SCORES) * 1e-12
    assert len(np.unique(scores)) == SCORES
    return scores, labels


def error_rates(references, scores, labels):
    metrics = references.score_metrics
    scores, labels = np.asarray(scores, np.float64), np.asarray(labels).astype(bool)
    missed, accepted = metrics.compute_pmiss_pfa_rbst(scores, labels)
    eer, threshold = metrics.compute_eer(missed, accepted, scores)
    cost = lambda p_target: float(metrics.compute_c_norm(missed, accepted, p_target=p_target, c_miss=1, c_fa=1))
    return {
        "eer": float(eer),
        "eer_threshold": float(threshold),
        "min_dcf": cost(P_TARGET),
        "min_dcf_p0.001": cost(0.001),
        "min_dcf_p0.05": cost(0.05),
    }
