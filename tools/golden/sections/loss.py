"""AAM-softmax of WeSpeaker and of SpeechBrain: logits, loss and gradients; and the schedule of the margin."""

import itertools
import math

import numpy as np
import torch
from torch.nn.functional import cross_entropy, linear, normalize, one_hot

from store import f32, largest_difference

BATCH, SIZE, CLASSES, SCALE = 8, 192, 20, 32.0
MARGINS = [0.0, 0.1, 0.2]
# The first two lie beyond cos(π − m), where the implementations switch to another formula.
COSINES = (-0.990, -0.9993, 0.95, 0.3, -0.4)
PARTS = ("logits", "loss", "grad_embeddings", "grad_weight")

DIFFERENCES = (
    "When cos <= cos(pi-m) and easy_margin is off, WeSpeaker ArcMarginProduct uses cos - "
    "(1+cos(pi-m)) (continuous) and "
    "SpeechBrain uses cos - m*sin(pi-m) (the original ArcFace form, not continuous). SpeechBrain also clamps cos to "
    "[-1+1e-7, 1-1e-7] before the square root; WeSpeaker does not, so its gradient is infinite at |cos|=1. Their "
    "gradients agree even there (the two forms differ by a constant); everything else agrees to rounding. Both default "
    "to easy_margin off."
)


def make(references, store, rng):
    embeddings, weight, labels = inputs(rng)
    tensors, cases, between = {"embeddings": embeddings, "weight": weight, "labels": labels}, {}, {}
    for margin, easy in itertools.product(MARGINS, (False, True)):
        case = f"m{margin:g}.easy{int(easy)}"
        ours = wespeaker(references, embeddings, weight, labels, margin, easy)
        exact = wespeaker(references, embeddings.double(), weight.double(), labels, margin, easy)
        other = speechbrain(embeddings, weight, labels, margin, easy)
        for name, results in (("wespeaker", ours), ("speechbrain", other)):
            tensors |= {f"{name}.{case}.{part}": result for part, result in zip(PARTS, results)}
            cases[f"{name}.{case}"] = {"margin": margin, "easy_margin": easy, "loss": float(results[1])}
        rounding = {part: largest_difference(a, b) for part, a, b in zip(PARTS, ours, exact)}
        sizes = {part: float(b.abs().max()) for part, b in zip(PARTS, exact)}
        cases[f"wespeaker.{case}"] |= {"max_abs_f32_minus_f64": rounding, "absmax": sizes}
        between[case] = {part: largest_difference(a, b) for part, a, b in zip(PARTS, ours, other)}
    tensors["cosine"] = cosine = linear(normalize(embeddings), normalize(weight))
    schedules = {kind: margins(references, kind) for kind in ("exp", "linear")}
    store.save(
        "aam_loss",
        "Produced by wenet-e2e/wespeaker ArcMarginProduct + torch cross_entropy (mean) and by speechbrain "
        "AdditiveAngularMargin + LogSoftmaxWrapper; margin_schedule by ProgressiveMarginScheduler of "
        "ahmad-aloradi/adversarial-robustness-for-sr.",
        {
            "scale": SCALE,
            "target_cosines": [float(cosine[row, labels[row]]) for row in range(BATCH)],
            "cases": cases,
            "max_abs_wespeaker_minus_speechbrain": between,
            "margin_schedule": {
                "initial": 0.0,
                "final": 0.2,
                "start_epoch": 6,
                "warmup_epochs": 6,
                "epochs_0_to_19": schedules,
            },
            "differences": DIFFERENCES,
        },
        tensors,
    )


def inputs(rng):
    weight = rng.normal(0, 0.1, (CLASSES, SIZE))
    labels = rng.integers(0, CLASSES, BATCH)
    embeddings = rng.normal(0, 1.0, (BATCH, SIZE))
    for row, cosine in enumerate(COSINES):
        target = weight[labels[row]] / np.linalg.norm(weight[labels[row]])
        away = rng.normal(0, 1, SIZE)
        away -= away.dot(target) * target
        away /= np.linalg.norm(away)
        embeddings[row] = 5.0 * (cosine * target + math.sqrt(1 - cosine**2) * away)
    return f32(embeddings), f32(weight), torch.from_numpy(labels.astype(np.int64))


def wespeaker(references, embeddings, weight, labels, margin, easy):
    embeddings = embeddings.clone().requires_grad_()
    head = references.projections.ArcMarginProduct(SIZE, CLASSES, scale=SCALE, margin=0.0, easy_margin=easy)
    head.weight = torch.nn.Parameter(weight.clone())
    head.update(margin)
    logits = head(embeddings, labels)
    loss = cross_entropy(logits, labels)
    return logits.detach(), loss.detach(), *torch.autograd.grad(loss, [embeddings, head.weight])


def speechbrain(embeddings, weight, labels, margin, easy):
    from speechbrain.nnet.losses import AdditiveAngularMargin, LogSoftmaxWrapper

    embeddings, weight = embeddings.clone().requires_grad_(), weight.clone().requires_grad_()
    cosine = linear(normalize(embeddings), normalize(weight))
    head = AdditiveAngularMargin(margin=margin, scale=SCALE, easy_margin=easy)
    logits = head(cosine, one_hot(labels, CLASSES).float())
    loss = LogSoftmaxWrapper(head)(cosine.unsqueeze(1), labels.unsqueeze(1))
    return logits.detach(), loss.detach(), *torch.autograd.grad(loss, [embeddings, weight])


def margins(references, kind):
    schedule = references.margin.ProgressiveMarginScheduler(
        initial_margin=0.0, final_margin=0.2, warmup_epochs=6, start_epoch=6, increase_type=kind
    )
    return [schedule._get_margin(epoch) for epoch in range(20)]
