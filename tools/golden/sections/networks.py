"""ECAPA-TDNN and ResNet34 of WeSpeaker: embeddings, gradients and running statistics of narrow networks.

Expected values are the reference's float64 run, rounded to float32; the error of its own float32 run is kept beside
them. A ReLU input within rounding of zero may fall on either side of it and move a gradient by a percent, in any
float32 program. So weights are drawn until the reference's own float32 gradients are good, and gradients are also kept
for a short piece of the input where no ReLU is near its kink.
"""

import copy
import math

import numpy as np
import torch

from store import f32, largest_difference, relative_difference

BATCH, FRAMES, MELS, SHORT = 4, 200, 80, 24
NETWORKS = {
    "ecapa_c64_glob": (
        "ecapa",
        {"channels": 64, "feat_dim": MELS, "embed_dim": 192, "pooling_func": "ASTP", "global_context_att": True},
    ),
    "ecapa_c32_noglob": (
        "ecapa",
        {"channels": 32, "feat_dim": MELS, "embed_dim": 192, "pooling_func": "ASTP", "global_context_att": False},
    ),
    "resnet34_m8": ("resnet", {"num_blocks": [3, 4, 6, 3], "m_channels": 8, "feat_dim": MELS, "embed_dim": 256}),
    "model_pt": (
        "ecapa",
        {"channels": 8, "feat_dim": MELS, "embed_dim": 16, "pooling_func": "ASTP", "global_context_att": False},
    ),
}
# Gradients of at most so many elements are kept whole, of larger ones so many evenly spaced elements.
WHOLE, SAMPLE = 384, 256
GOOD, ATTEMPTS, CANDIDATES = 2e-4, 20, 6
# Softmax over time does not see them: their gradients are zero but for rounding.
WITHOUT_GRADIENT = ("pool.linear2.bias", "asp.conv.conv.bias")
CLASSES = 5994  # speakers of VoxCeleb2


def make(references, store, rng):
    features, others = batches(rng)
    store.save(
        "model_input",
        "Seeded synthetic feature batch made with numpy by make_golden.py.",
        {"shape": list(features.shape)},
        {"x": features},
    )
    for at, (name, (kind, settings)) in enumerate(NETWORKS.items()):
        where = "ecapa_tdnn.ECAPA_TDNN" if kind == "ecapa" else "resnet.ResNet(BasicBlock)"
        builder = lambda: build(references, kind, settings)
        where = f"wenet-e2e/wespeaker wespeaker.models.{where}"
        network(store, features, others, at, name, kind, settings, builder, where)
    full_size(references, store)


def batches(rng):
    """The features, and what batch norm's running statistics come from: each shorter and louder than the one before."""
    features = f32(inputs(rng, FRAMES))
    return features, [f32(inputs(rng, FRAMES - 17 * at) * (1 + 0.2 * at)) for at in range(3)]


def inputs(rng, frames):
    """Something like log-mel features: smooth over time, each bin at its own level."""
    values = rng.normal(0, 1.0, (BATCH, frames, MELS))
    for row in range(BATCH):
        for mel in range(MELS):
            values[row, :, mel] = np.convolve(values[row, :, mel], [0.25, 0.5, 0.25], mode="same")
    return 1.5 * values + rng.normal(0, 0.7, (BATCH, 1, MELS))


def drawn(builder, others, seeds, adjust=None):
    """A network with random weights and the running statistics of other batches."""
    single = builder()
    fill(single, np.random.default_rng(seeds))
    single.train()
    with torch.no_grad():
        for other in others:
            single(other.clone())
        if adjust:
            adjust(single)
    return single.eval()


def network(store, features, others, at, name, kind, settings, builder, where, adjust=None):
    rejected = []
    for attempt in range(ATTEMPTS):
        single = drawn(builder, others, [store.origin["seed"], 100 + at, attempt], adjust)
        double = copy.deepcopy(single).double()
        trained, gradients, _ = train(single, features)
        exact, exact_gradients, exact_buffers = train(double, features.double())
        errors = compare(gradients, exact_gradients)
        if worst(errors) < GOOD:
            break
        rejected.append(worst(errors))
        print(f"{name}: attempt {attempt} rejected, a gradient is off by {rejected[-1]:.1e}")

    statistics, hooks = {}, []
    for path, module in double.named_modules():
        if path and not isinstance(module, (torch.nn.ModuleList, torch.nn.Identity)):
            hooks.append(module.register_forward_hook(observe(statistics, path)))
    with torch.no_grad():
        evaluated, exact_evaluated = embed(single, features), embed(double, features.double())
        for hook in hooks:
            hook.remove()
        halved = embed(double, features[:1, : FRAMES // 2].double())
    short = short_piece(single, double, features)
    expected = {
        "eval_embedding": exact_evaluated.float(),
        "eval_embedding_short": halved.float(),
        "train_embedding": exact.float(),
        "short.train_embedding": short["exact"].float(),
    }
    facts = {
        "kind": kind,
        "constructor": settings,
        "parameters": sum(weight.numel() for weight in single.parameters()),
        "weights_attempt": attempt,
        "gradient_error_of_rejected_attempts": rejected,
        "short": {
            "first_frame": short["first"],
            "frames": SHORT,
            "least_relu_input": short["least"],
            "worst_f32_rel_err_max": worst(short["errors"]),
            "train_max_abs_f32_minus_f64": largest_difference(short["single"], short["exact"]),
        },
        "eval_max_abs_f32_minus_f64": largest_difference(evaluated, exact_evaluated),
        "eval_absmax": float(exact_evaluated.abs().max()),
        "train_max_abs_f32_minus_f64": largest_difference(trained, exact),
        "train_absmax": float(exact.abs().max()),
        "grad_worst_f32_rel_err_max": worst(errors),
        "grad_worst_f32_rel_err_l2": worst(errors, 1),
        "eval_activation_shape_mean_std": statistics,
    }
    weights = {key: value.clone() for key, value in single.state_dict().items()}
    made_by = (
        f"Produced by {where} with seeded weights, after 3 "
        "train-mode forward passes "
        "on other seeded batches; expected values are its float64 run rounded to float32."
    )
    if name == "model_pt":
        kept = {
            key: value.half() if key.startswith("pool.linear") and value.dim() > 1 else value
            for key, value in weights.items()
        }
        assert same(kept, weights)
        torch.save(kept, str(store.folder / "model.pt"))
        facts |= {"file": "model.pt", "tensors_in_pt": {key: describe(value) for key, value in kept.items()}}
        store.save("model_pt_expected", made_by + " model.pt is torch.save of its state_dict.", facts, expected)
        return

    kept = {
        key: value.half() if value.is_floating_point() and value.dim() >= 2 else value for key, value in weights.items()
    }
    assert same(kept, weights)
    shapes = {key: [list(value.shape), type_name(value)] for key, value in kept.items()}
    store.save(name, made_by, {"kind": kind, "constructor": settings, "tensors": shapes}, kept)
    expected |= samples("", exact_gradients) | samples("short.", short["gradients"])
    for key, value in exact_buffers.items():
        if key.endswith(("running_mean", "running_var")):
            expected[f"after_train.{key}"] = value.float()
    facts["grad"] = {}
    for key, gradient in exact_gradients.items():
        count, brief = gradient.numel(), short["gradients"][key]
        facts["grad"][key] = (
            {"numel": count}
            | sizes("", gradient)
            | sizes("short_", brief)
            | {"f32_rel_err_max_l2": errors[key], "short_f32_rel_err_max_l2": short["errors"][key]}
            | ({"sample_stride": count // SAMPLE} if count > WHOLE else {})
        )
    store.save(f"{name}_expected", made_by, facts, expected)


def build(references, kind, settings):
    if kind == "ecapa":
        return references.ecapa.ECAPA_TDNN(**settings)
    others = {key: value for key, value in settings.items() if key != "num_blocks"}
    return references.resnet.ResNet(references.resnet.BasicBlock, settings["num_blocks"], **others)


def fill(network, rng):
    """Weights that float16 holds exactly, which halves the files; norms and biases away from 1 and 0."""
    norms = {
        id(weight)
        for module in network.modules()
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm)
        for weight in module.parameters(recurse=False)
    }
    with torch.no_grad():
        for name, weight in network.named_parameters():
            shape = list(weight.shape)
            if weight.dim() >= 2:
                gain = 1.0 if name.endswith(("linear.weight", "seg_1.weight")) else 2.0
                values = rng.normal(0, math.sqrt(gain / int(np.prod(shape[1:]))), shape)
                weight.copy_(f32(values).half().float())
            elif id(weight) in norms and name.endswith("weight"):
                weight.copy_(f32(rng.uniform(0.6, 1.4, shape)))
            else:
                weight.copy_(f32(rng.normal(0, 0.1, shape)))


def embed(network, features):
    return network(features.clone())[-1]


def train(network, features):
    """The embedding in training mode, the gradients of the sum of its squares, and the buffers after it."""
    network = copy.deepcopy(network).train()
    network.zero_grad(set_to_none=True)
    embedding = embed(network, features)
    (embedding**2).sum().backward()
    gradients = {name: weight.grad.detach() for name, weight in network.named_parameters()}
    return embedding.detach(), gradients, {name: buffer.detach().clone() for name, buffer in network.named_buffers()}


def compare(gradients, exact):
    """Of each tensor the relative error: the largest, and of the ℓ2 norm."""
    norm = lambda name: float((gradients[name].double() - exact[name]).norm() / max(float(exact[name].norm()), 1e-300))
    return {name: (relative_difference(gradients[name], exact[name]), norm(name)) for name in gradients}


def worst(errors, which=0):
    return max(error[which] for name, error in errors.items() if name not in WITHOUT_GRADIENT)


def observe(statistics, path):
    def hook(_module, _inputs, output):
        if torch.is_tensor(output):
            statistics[path] = [list(output.shape), float(output.mean()), float(output.std(unbiased=False))]

    return hook


class NearestKink(torch.overrides.TorchFunctionMode):
    """The smallest |input| of any ReLU while it is active."""

    least = float("inf")

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.nn.functional.relu, torch.relu):
            self.least = min(self.least, float(args[0].detach().abs().min()))
        return function(*args, **(kwargs or {}))


def short_piece(single, double, features):
    """Of the pieces that keep furthest from a ReLU's kink, the one with the best float32 gradients."""
    distances = []
    for first in range(FRAMES - SHORT + 1):
        network = copy.deepcopy(double).train()
        with torch.no_grad(), NearestKink() as kink:
            embed(network, features[:, first : first + SHORT].double())
        distances.append((kink.least, first))
    pieces = []
    for least, first in sorted(distances, reverse=True)[:CANDIDATES]:
        piece = features[:, first : first + SHORT]
        embedding, gradients, _ = train(single, piece)
        exact, exact_gradients, _ = train(double, piece.double())
        pieces.append(
            {
                "first": first,
                "least": least,
                "single": embedding,
                "exact": exact,
                "gradients": exact_gradients,
                "errors": compare(gradients, exact_gradients),
            }
        )
    return min(pieces, key=lambda piece: worst(piece["errors"]))


def samples(prefix, gradients):
    kept = {}
    for name, gradient in gradients.items():
        flat = gradient.float().reshape(-1)
        if flat.numel() <= WHOLE:
            kept[f"{prefix}grad.{name}"] = gradient.float()
        else:
            kept[f"{prefix}grad_sample.{name}"] = flat[:: flat.numel() // SAMPLE][:SAMPLE].clone()
    return kept


def sizes(prefix, gradient):
    return {
        f"{prefix}l2": float(gradient.norm()),
        f"{prefix}absmax": float(gradient.abs().max()),
        f"{prefix}sum": float(gradient.sum()),
    }


def same(kept, weights):
    return all(torch.equal(kept[key].to(weights[key].dtype), weights[key]) for key in weights)


def type_name(tensor):
    return str(tensor.dtype).replace("torch.", "")


def describe(tensor):
    return {
        "shape": list(tensor.shape),
        "dtype": type_name(tensor),
        "sum": float(tensor.double().sum()),
        "l2": float(tensor.double().norm()),
    }


def full_size(references, store):
    """Names and shapes of the networks at the paper's size."""
    networks = {
        "ECAPA_TDNN_GLOB_c1024(feat_dim=80, embed_dim=192)": (references.ecapa.ECAPA_TDNN_GLOB_c1024(80, 192), 192),
        "ResNet34(feat_dim=80, embed_dim=256)": (references.resnet.ResNet34(80, 256), 256),
    }
    facts = {}
    for name, (network, embedding) in networks.items():
        count = sum(weight.numel() for weight in network.parameters())
        facts[name] = {
            "total_parameters": count,
            "total_buffers": sum(buffer.numel() for buffer in network.buffers()),
            "weights_2d_or_more": sum(weight.numel() for weight in network.parameters() if weight.dim() > 1),
            f"with_{CLASSES}_class_classifier": count + CLASSES * embedding,
            "parameters": {
                key: {"shape": list(weight.shape), "numel": weight.numel()}
                for key, weight in network.named_parameters()
            },
            "buffers": {key: list(buffer.shape) for key, buffer in network.named_buffers()},
        }
    made_by = "Produced by constructing the full-size WeSpeaker models and listing named_parameters()."
    store.save("fullsize_parameter_counts", made_by, facts)
