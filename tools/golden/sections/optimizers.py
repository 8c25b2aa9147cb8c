"""LinBreg, AdaBreg and ProxSGD with every penalty, step by step; and with the λ controller on top."""

import itertools

import torch

from store import f32, f64, largest_difference

SHAPES = {"linear": [16, 8], "conv1d": [8, 4, 3], "conv2d": [8, 4, 3, 3]}
STEPS, SNAPSHOTS = 50, [1, 2, 10, 50]
RATES = {"linbreg": 0.1, "linbreg_m09": 0.1, "adabreg": 0.01, "proxsgd": 0.1}
PENALTIES = {"l1": ("RegL1", "reg_l1"), "l1l2conv": ("RegL1L2Conv", "reg_l1_l2_conv"), "l1l2": ("RegL1L2", "reg_l1_l2")}
LAMBDAS, DELTAS = [0.05, 0.5], [1.0, 2.0]
STEERED = {"target": 0.9, "alpha": 1.0, "lambda": {"linbreg": 0.5, "adabreg": 0.05}, "zero": 1e-12}


def make(references, store, rng):
    start, gradients = inputs(rng)
    tensors = {f"init.{name}": start[name] for name in SHAPES} | {f"grad.{name}": gradients[name] for name in SHAPES}
    runs, worst_rounding, worst_first = {}, {}, {}

    for optimizer, penalty, lam in itertools.product(RATES, PENALTIES, LAMBDAS):
        for delta in DELTAS if optimizer != "proxsgd" else [None]:
            names = [name for name in SHAPES if len(SHAPES[name]) == 2] if penalty == "l1l2" else list(SHAPES)

            def run(dtype, first):
                weights = [torch.nn.Parameter(start[name].to(dtype).clone()) for name in names]
                stepper, rule = build(references, optimizer, penalty, lam, delta, weights, first)
                values = [rule(weight.detach()) for weight in weights]
                seen = {}
                for step in range(1, STEPS + 1):
                    for name, weight in zip(names, weights):
                        weight.grad = gradients[name][step - 1].to(dtype).clone()
                    stepper.step()
                    for name, weight in zip(names, weights) if step in SNAPSHOTS else ():
                        seen[name, step, "param"] = weight.detach().clone()
                        if "sub_grad" in stepper.state[weight]:
                            seen[name, step, "subgrad"] = stepper.state[weight]["sub_grad"].clone()
                return seen, values

            single, values = run(torch.float32, first=False)
            double, _ = run(torch.float64, first=False)
            other, other_values = run(torch.float32, first=True)
            rounding = max(largest_difference(single[at], double[at]) for at in single)
            against_first = max(largest_difference(single[at], other[at]) for at in single)
            closest = None
            if penalty == "l1" and delta is not None:
                duals = [dual for at, dual in double.items() if at[2] == "subgrad"]
                closest = min(float((dual.abs() - lam).abs().min()) for dual in duals)
            key = f"{optimizer}.{penalty}.lam{lam:g}" + (f".delta{delta:g}" if delta is not None else "")
            tensors |= {f"{key}.{name}.step{step}.{what}": value for (name, step, what), value in single.items()}
            zeros = lambda name, step: int((single[name, step, "param"] == 0).sum())
            runs[key] = {
                "lr": RATES[optimizer],
                "lambda": lam,
                "delta": delta,
                "regularizer": penalty,
                "tensors": names,
                "regularizer_value_at_init": dict(zip(names, values)),
                "zeros_after": {str(step): {name: zeros(name, step) for name in names} for step in SNAPSHOTS},
                "closest_subgrad_to_threshold": closest,
                "max_abs_f32_minus_f64": rounding,
                "support_mismatch_f32_f64": sum(
                    int(((single[at] == 0) != (double[at] == 0)).sum()) for at in single if at[2] == "param"
                ),
                "max_abs_authors_minus_roith": against_first,
                "max_abs_regvalue_authors_minus_roith": max(abs(a - b) for a, b in zip(values, other_values)),
            }
            worst_rounding[optimizer] = max(worst_rounding.get(optimizer, 0), rounding)
            worst_first[optimizer] = max(worst_first.get(optimizer, 0), against_first)

    steered = {}
    for optimizer in STEERED["lambda"]:
        key = f"coupled.{optimizer}.l1"
        series, steered[key] = steer(references, optimizer, start, gradients)
        tensors |= {f"{key}.{name}": value for name, value in series.items()}

    store.save(
        "optimizers",
        "Produced by stepping LinBreg/AdaBreg/ProxSGD with RegL1/RegL1L2Conv/RegL1L2 of "
        "ahmad-aloradi/adversarial-robustness-for-sr; TimRoith/BregmanLearning run on the same input as a cross-check.",
        {
            "shapes": SHAPES,
            "steps": STEPS,
            "snapshots": SNAPSHOTS,
            "adabreg": {"betas": [0.9, 0.999], "eps": 1e-8},
            "runs": runs,
            "coupled": steered,
            "worst_f32_minus_f64": worst_rounding,
            "worst_authors_minus_roith": worst_first,
        },
        tensors,
    )


def inputs(rng):
    """Half of the weights zero, in whole rows and kernels too; gradients with a drift, so that duals travel."""
    start, gradients = {}, {}
    for name, shape in SHAPES.items():
        weight = rng.normal(0, 0.3, shape)
        if len(shape) == 2:
            weight *= rng.random(shape) < 0.5
            weight[shape[0] // 2] = 0.0
        else:
            weight *= (rng.random(shape[:2]) < 0.5).reshape(shape[:2] + [1] * (len(shape) - 2))
            weight *= rng.random(shape) < 0.8
        start[name] = f32(weight)
        drift = rng.normal(0, 0.5, shape)
        gradients[name] = f32(rng.normal(0, 0.6, [STEPS] + shape) + drift)
    return start, gradients


def build(references, optimizer, penalty, lam, delta, weights, first):
    """An optimizer with its penalty: the paper's authors', or those of the first publication."""
    optimizers = references.first_optimizers if first else references.optimizers
    penalties = references.first_penalties if first else references.penalties
    rule = getattr(penalties, PENALTIES[penalty][first])(lamda=lam)
    rate = RATES[optimizer]
    if optimizer == "proxsgd":
        return optimizers.ProxSGD(weights, lr=rate, reg=rule), rule
    if optimizer == "adabreg":
        return optimizers.AdaBreg(weights, lr=rate, reg=rule, delta=delta), rule
    momentum = 0.9 if optimizer == "linbreg_m09" else 0.0
    return optimizers.LinBreg(weights, lr=rate, reg=rule, delta=delta, momentum=momentum), rule


def steer(references, optimizer, start, gradients):
    """As the authors' callback does: after each step count zeros, ask the controller, set λ for the next step."""
    first = STEERED["lambda"][optimizer]
    weights = [torch.nn.Parameter(start[name].clone()) for name in SHAPES]
    stepper, rule = build(references, optimizer, "l1", first, 1.0, weights, first=False)
    controller = references.controller.LambdaScheduler(
        initial_lambda=first, target_sparsity=STEERED["target"], acceleration_factor=STEERED["alpha"]
    )
    used, after, sparsity, distance = [], [], [], []
    for step in range(STEPS):
        for name, weight in zip(SHAPES, weights):
            weight.grad = gradients[name][step].clone()
        used.append(rule.lamda)
        stepper.step()
        duals = [stepper.state[weight]["sub_grad"] for weight in weights]
        distance.append(min(float((dual.abs() - rule.lamda).abs().min()) for dual in duals))
        sparsity.append(references.sparsity.compute_sparsity(weights, threshold=STEERED["zero"]))
        rule.lamda = controller.step(sparsity[-1], None, step + 1)
        after.append(rule.lamda)
    series = {"lambda_used": f64(used), "lambda_after": f64(after), "sparsity": f64(sparsity)}
    for name, weight in zip(SHAPES, weights):
        series[f"{name}.step{STEPS}.param"] = weight.detach().clone()
        series[f"{name}.step{STEPS}.subgrad"] = stepper.state[weight]["sub_grad"].clone()
    return series, {
        "lr": RATES[optimizer],
        "delta": 1.0,
        "target_sparsity": STEERED["target"],
        "alpha": STEERED["alpha"],
        "initial_lambda": first,
        "sparsity_threshold": STEERED["zero"],
        "closest_distance_of_any_subgrad_to_threshold": min(distance),
        "note": "subgradient is NOT reset when lambda changes",
    }
