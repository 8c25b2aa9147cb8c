"""A training goes from the program to PyTorch and back, and networks become files."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from conftest import GOLDEN, network
from safetensors.torch import load_file, save_file
from torch import nn

import bregman
from bregman.torch import AdaBreg, Budget, LinBreg, export, load_run, save_run
from bregman.torch._export import program

NETWORKS = {
    "resnet": 'kind = "resnet"\nblocks = [1, 1, 1, 1]\nchannels = 4\nembedding = 16',
    "ecapa": 'kind = "ecapa"\nchannels = 16\nembedding = 16\nglobal_context = true',
}
METHODS = {
    "adabreg": 'target = 0.9\noptimizer = { kind = "adabreg" }',
    "layerwise": 'target = 0.9\noptimizer = { kind = "linbreg" }\nlayers = { sharing = "uniform" }\n'
    'law = { kind = "multiplicative" }\nperiod = 5',
}
EPOCHS = 60
"""So many that a training is not over before a busy machine has seen it begin and stopped it."""
SOURCE = GOLDEN / "model.pt"


class Shell(nn.Module):
    """A module with these parameters and buffers; it computes nothing."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        super().__init__()
        for name, values in tensors.items():
            *path, last = name.split(".")
            place: nn.Module = self
            for part in path:
                if part not in dict(place.named_children()):
                    place.add_module(part, nn.Module())
                place = getattr(place, part)
            buffer = last.startswith(("running_", "num_batches"))
            blank = torch.zeros_like(values)
            place.register_buffer(last, blank) if buffer else place.register_parameter(last, nn.Parameter(blank))


def run_program(*arguments: Any) -> str:
    done = subprocess.run([program(), *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def voices(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus") / "voices"
    run_program(
        "synth", "--out", folder, "--speakers", 5, "--utterances", 8, "--held-out", 1, "--seconds", 0.7, 0.8
    )
    return folder


def recipe(folder: Path, voices: Path, network: str, method: str) -> Path:
    file = folder / "recipe.toml"
    file.write_text(
        f"[model]\n{NETWORKS[network]}\n"
        f'[data]\nroot = "{voices}"\nseconds = 0.3\nvalidation = 0.2\nfeatures = {{ bins = 16 }}\n'
        f'[train]\nepochs = {EPOCHS}\nbatch = 4\n[method]\nkind = "adaptive"\n{METHODS[method]}\n'
    )
    return file


def optimizer_for(method: str, model: nn.Module) -> AdaBreg | LinBreg:
    if method == "adabreg":
        return AdaBreg(model, target=0.9)
    return LinBreg(model, target=0.9, law=bregman.torch.Multiplicative(), period=5, layers=Budget("uniform"))


def stop_after(run: Path, steps: int, *arguments: Any) -> None:
    """Trains until so many steps are logged, and stops with a checkpoint."""
    training = subprocess.Popen(
        [program(), "train", *map(str, arguments), "--out", str(run)], stdout=subprocess.DEVNULL
    )
    log, began = run / "metrics.jsonl", time.monotonic()
    while training.poll() is None and time.monotonic() - began < 60:
        if log.exists() and log.read_text().count('"step"') >= steps:
            training.send_signal(signal.SIGTERM)
            break
        time.sleep(0.002)
    assert training.wait(60) == 4, "stopped with a checkpoint"


@pytest.mark.parametrize(("network", "method"), [("resnet", "adabreg"), ("ecapa", "layerwise")])
def test_a_run_goes_to_pytorch_and_back(network: str, method: str, voices: Path, tmp_path: Path) -> None:
    file = recipe(tmp_path, voices, network, method)
    run_program("train", file, "--out", tmp_path / "unbroken")
    run = tmp_path / "run"
    stop_after(run, 3, file)
    state = json.loads((run / "last/state.json").read_text())

    model = Shell(load_file(run / "last/model.safetensors"))
    optimizer = optimizer_for(method, model)
    assert load_run(run, model, optimizer) == state["step"] > 0
    steered = [state["lambda"][state["parameters"].index(name)] for name, p in model.named_parameters() if p.dim() > 1]
    assert optimizer.lambda_ == pytest.approx(sum(steered) / len(steered))

    if method == "adabreg":  # in another precision nothing is lost either
        model = Shell(load_file(run / "last/model.safetensors"))
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
        optimizer = optimizer_for(method, model)
        load_run(run, model, optimizer)

    # straight back: the program goes on as if nothing had happened
    save_run(run, model, optimizer)
    after = json.loads((run / "last/state.json").read_text())
    assert after == state
    run_program("train", file, "--out", run, "--resume")
    ours, theirs = (load_file(folder / "last/model.safetensors") for folder in (run, tmp_path / "unbroken"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_steps_in_pytorch_are_steps_of_the_run(voices: Path, tmp_path: Path) -> None:
    file, run = recipe(tmp_path, voices, "resnet", "adabreg"), tmp_path / "run"
    stop_after(run, 3, file)
    model = Shell(load_file(run / "last/model.safetensors"))
    optimizer = AdaBreg(model, target=0.9)
    taken = load_run(run / "last", model, optimizer)
    torch.manual_seed(0)
    for _ in range(5):
        for parameter in model.parameters():
            parameter.grad = 0.01 * torch.randn_like(parameter)
        optimizer.step()
    save_run(run, model, optimizer, epoch=2)
    state = json.loads((run / "last/state.json").read_text())
    assert state["step"] == taken + 5 and state["position"] == {"epoch": 2, "batch": 0}
    assert state["sparsity"] == pytest.approx(optimizer.sparsity) and state["loops"][0]["lambda"] == optimizer.lambda_
    again = AdaBreg(Shell(model.state_dict()), target=0.9)
    with pytest.raises(ValueError, match="no step"):
        save_run(run, model, again)
    shutil.rmtree(run / "best", ignore_errors=True)
    shutil.copytree(run / "last", run / "best")
    further = {**state, "step": taken + 6}
    (run / "best/state.json").write_text(json.dumps(further))
    with pytest.raises(ValueError, match=f"best has {taken + 6} steps, the optimizer {taken + 5}: .* move it away"):
        save_run(run, model, optimizer, epoch=2)
    (run / "best/state.json").write_text(json.dumps(state))
    save_run(run, model, optimizer, epoch=2)
    run_program("train", file, "--out", run, "--resume")
    assert json.loads((run / "last/state.json").read_text())["finished"]


def steps_of(run: Path) -> int:
    return int(json.loads((run / "last/state.json").read_text())["step"])


def test_an_interrupted_save_is_taken_up_by_either_side(
    voices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, run = recipe(tmp_path, voices, "resnet", "adabreg"), tmp_path / "run"
    stop_after(run, 3, file)
    model = Shell(load_file(run / "last/model.safetensors"))
    optimizer = AdaBreg(model, target=0.9)
    taken = load_run(run, model, optimizer)
    train_once(model, optimizer)
    rename = Path.rename

    def failing(path: Path, to: Path) -> Path:
        if path.name == "last.new":
            raise OSError("no more")
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing)
        with pytest.raises(OSError, match="no more"):
            save_run(run, model, optimizer)
    assert steps_of(run) == taken and not {"last.new", "last.old"} & {path.name for path in run.iterdir()}

    (run / "last").rename(run / "last.old")  # killed between the two
    (run / "last.new").mkdir()
    assert load_run(run, model, optimizer) == taken and not (run / "last").exists()
    train_once(model, optimizer)
    save_run(run, model, optimizer)
    assert steps_of(run) == taken + 1 and not {"last.new", "last.old"} & {path.name for path in run.iterdir()}
    (run / "last").rename(run / "last.old")
    shutil.rmtree(run / "best", ignore_errors=True)
    done = subprocess.run([program(), "train", file, "--out", run, "--resume"], capture_output=True, text=True)
    assert f"steps: {taken + 1} of " in done.stderr, done.stderr


def test_frozen_parameters_of_a_run_are_refused_by_name(voices: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 1, recipe(tmp_path, voices, "resnet", "adabreg"))
    model = Shell(load_file(run / "last/model.safetensors"))
    optimizer = AdaBreg(model, target=0.9)
    load_run(run, model, optimizer)
    model.get_parameter("conv1.weight").requires_grad_(False)
    without = AdaBreg(model, target=0.9)
    with pytest.raises(ValueError, match=r"the run trains `conv1\.weight`, which the optimizer lacks: is it frozen"):
        load_run(run, model, without)
    train_once(model, without)
    with pytest.raises(ValueError, match=r"the run trains `conv1\.weight`, which the optimizer lacks: is it frozen"):
        save_run(run, model, without)
    save_run(run, model, optimizer)


def train_once(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def test_runs_of_others_are_refused_by_name(voices: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 1, recipe(tmp_path, voices, "resnet", "adabreg"))
    weights = load_file(run / "last/model.safetensors")
    other = network()
    with pytest.raises(ValueError, match=r"another network: the module has `0\.weight`"):
        load_run(run, other, AdaBreg(other, target=0.9))
    more = Shell({**weights, "extra.weight": torch.zeros(2, 2)})
    with pytest.raises(ValueError, match=r"`extra\.weight`, which it lacks"):
        load_run(run, more, AdaBreg(more, target=0.9))
    same = Shell(weights)
    save_file({"conv1.weight.p": weights["conv1.weight"].flatten()}, run / "last/optimizer.safetensors")
    with pytest.raises(ValueError, match="is it of another optimizer"):
        load_run(run, same, AdaBreg(same, target=0.9))
    with pytest.raises(FileNotFoundError, match="neither a run"):
        load_run(tmp_path, same, AdaBreg(same, target=0.9))


def known() -> Shell:
    """The golden checkpoint as a module."""
    model = Shell(torch.load(SOURCE, weights_only=True))
    model.load_state_dict(torch.load(SOURCE, weights_only=True))
    return model


def features(path: Path) -> dict[str, Any]:
    """The front end that a model file computes."""
    return json.loads(run_program("inspect", path, "--json"))["front_end"]


def test_a_known_network_becomes_a_model_file_and_onnx(tmp_path: Path) -> None:
    model = known()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter[torch.rand_like(parameter) < 0.8] = 0.0
    export(model, tmp_path / "model.breg", front_end="wespeaker")
    assert bregman.Model(tmp_path / "model.breg").sparsity == pytest.approx(0.8, abs=0.02)
    export(model, tmp_path / "model.onnx", front_end="wespeaker")
    assert (tmp_path / "model.onnx").stat().st_size > 1000
    with pytest.raises(ValueError, match="--force|exists"):
        export(model, tmp_path / "model.breg", front_end="wespeaker")
    export(model, tmp_path / "model.breg", front_end="wespeaker", overwrite=True)
    with pytest.raises(ValueError, match=r"\.breg or \.onnx"):
        export(model, tmp_path / "model.h5")
    with pytest.raises(ValueError):
        export(network(), tmp_path / "other.breg")


def test_a_model_file_has_the_front_end_and_the_threshold_that_are_given(tmp_path: Path) -> None:
    model, path = known(), tmp_path / "model.breg"
    export(model, path, front_end="3d-speaker", threshold=0.25)
    assert bregman.Model(path).threshold == 0.25
    assert (features(path)["waveform"], features(path)["front_end"]["window"]) == ("decoded", "povey")
    mine = {"front_end": "speechbrain", "bins": features(path)["bins"], "waveform": "decoded", "n_fft": 400}
    export(model, path, front_end=mine, overwrite=True)
    assert bregman.Model(path).threshold is None
    assert features(path)["front_end"] == {"kind": "speechbrain", "n_fft": 400, "top_db": 80.0}
    with pytest.warns(UserWarning, match="front end: wespeaker: assumed"):
        export(model, path, overwrite=True)
    assert (features(path)["waveform"], features(path)["front_end"]["window"]) == ("sixteen", "hamming")

    for settings, problem in (
        ({"front_end": "kaldi"}, "front_end = kaldi"),
        ({"front_end": {"windows": "povey"}}, "windows"),
        ({"front_end": {"bins": 7}}, "bins"),
        ({"front_end": "wespeaker", "threshold": 2.0}, "threshold 2"),
    ):
        with pytest.raises(ValueError, match=problem):
            export(model, tmp_path / "refused.breg", **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold"):
        export(model, tmp_path / "refused.onnx", threshold=0.25)
    assert not list(tmp_path.glob("refused*"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_any_network_goes_to_onnx_with_its_zeros(tmp_path: Path) -> None:
    model = bregman.torch.sparse_init_(network(), 0.9).eval()
    torch.onnx.export(model, (torch.randn(1, 4, 8),), tmp_path / "model.onnx", dynamo=False)
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(tmp_path / "model.onnx").graph.initializer]
    matrices = [weight for weight in weights if weight.ndim >= 2]
    zeros = sum(int((weight == 0).sum()) for weight in matrices)
    assert zeros / sum(weight.size for weight in matrices) == pytest.approx(bregman.torch.sparsity(model))


def test_torch_loads_what_the_program_writes_as_pt(voices: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    stop_after(run, 1, recipe(tmp_path, voices, "resnet", "adabreg"))
    trained = load_file(run / "last/model.safetensors")
    of_run = {name: values for name, values in trained.items() if not name.startswith("projection.")}
    for source, expected in ((SOURCE, torch.load(SOURCE, weights_only=True)), (run / "last", of_run)):
        run_program("export", source, "--pt", tmp_path / "avg_model.pt", "--force")
        written = torch.load(tmp_path / "avg_model.pt", weights_only=True)
        assert written.keys() == expected.keys()
        for name, values in expected.items():
            assert torch.equal(written[name], values.float() if values.is_floating_point() else values), name
