"""`bregman.Model` on the committed model file."""

from __future__ import annotations

import json
import subprocess
import wave
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import ROOT

import bregman

FILE = ROOT / "crates/bregman-runtime/tests/data/version1-resnet-int8.breg"


def voice(seed: int, seconds: float = 2.0) -> np.ndarray:
    """A vowel-like sound of one pitch."""
    random = np.random.default_rng(seed)
    time = np.arange(int(16000 * seconds)) / 16000
    tones = sum(np.sin(2 * np.pi * (90 + 25 * seed) * k * time + random.uniform(0, 6)) / k for k in range(1, 20))
    return (0.05 * tones + 0.01 * random.standard_normal(time.size)).astype(np.float32)


def write(path: Path, samples: np.ndarray) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1), file.setsampwidth(2), file.setframerate(16000)
        file.writeframes((samples * 32767).round().astype("<i2").tobytes())
    return path


@pytest.fixture(scope="module")
def model() -> bregman.Model:
    return bregman.Model(FILE)


def test_a_model_tells_what_it_is(model: bregman.Model) -> None:
    assert (model.rate, model.threads, model.threshold) == (16000, 1, 0.25)
    assert model.embedding_size == len(json.loads(FILE.with_suffix(".json").read_text()))
    assert "conv" in model.layers[0].name and len(model.layers[0].shape) == 4
    nonzero, weights = (sum(column) for column in zip(*((l.nonzero, np.prod(l.shape)) for l in model.layers)))
    assert 0 < model.sparsity < 1 and nonzero == round((1 - model.sparsity) * weights)


def test_arrays_files_and_batches_give_the_same_embedding(model: bregman.Model, tmp_path: Path) -> None:
    samples = np.round(voice(1) * 32767) / 32767
    one = model.embed(samples)
    assert one.dtype == np.float32 and one.shape == (model.embedding_size,) and np.isfinite(one).all()
    np.testing.assert_allclose(model.embed(write(tmp_path / "a.wav", samples)), one, atol=1e-5)
    np.testing.assert_array_equal(model.embed(samples.astype(np.float64)[::1]), one)
    np.testing.assert_array_equal(model.embed(np.stack([samples, samples], 1)[:, 0]), one)
    batch = bregman.Model(FILE, threads=2).embed_batch([samples, voice(2)])
    np.testing.assert_allclose(batch[0], one, atol=1e-5)
    np.testing.assert_allclose(batch[1], model.embed(voice(2)), atol=1e-5)
    assert model.embed_batch([]).shape == (0, model.embedding_size)


def test_many_threads_may_share_a_model(model: bregman.Model) -> None:
    voices = [voice(seed, 1.0) for seed in range(8)]
    alone = [model.embed(samples) for samples in voices]
    with ThreadPoolExecutor(4) as pool:
        for together, expected in zip(pool.map(model.embed, voices), alone):
            np.testing.assert_array_equal(together, expected)


def test_verification_gives_the_verdict_of_the_program(model: bregman.Model, tmp_path: Path) -> None:
    files = [write(tmp_path / f"{seed}.wav", voice(seed)) for seed in (1, 5)]
    verdict = model.verify(*files)
    assert verdict.threshold == 0.25 and verdict.same == (verdict.score > 0.25)
    assert model.verify(files[0], files[0]) == (True, pytest.approx(1.0), 0.25)
    assert model.verify(*files, threshold=1.1).same is False
    told = subprocess.run(["bregman", "verify", *files, "--model", FILE, "--json"], capture_output=True, check=False)
    answer = json.loads(told.stdout)
    assert answer["score"] == pytest.approx(verdict.score, abs=1e-5) and answer["same"] == verdict.same


@pytest.mark.parametrize(
    ("act", "error", "words"),
    [
        (lambda m, d: bregman.Model(d / "absent.breg"), OSError, "absent.breg"),
        (lambda m, d: bregman.Model(write(d / "x.wav", voice(1))), ValueError, "x.wav: not a usable model file"),
        (lambda m, d: bregman.Model(FILE, threads=-1), ValueError, "threads is -1"),
        (lambda m, d: m.embed(np.zeros((2, 16000))), ValueError, "expected mono"),
        (lambda m, d: m.embed(np.zeros(10)), ValueError, "are too few"),
        (lambda m, d: m.embed(np.full(16000, np.nan)), ValueError, "finite"),
        (lambda m, d: m.embed(d / "absent.wav"), ValueError, "absent.wav"),
        (lambda m, d: m.embed(write(d / "s.wav", np.zeros(16000))), ValueError, "no speech"),
        (lambda m, d: m.embed(d / "a.wav", max_seconds=0), ValueError, "max_seconds"),
        (lambda m, d: m.embed_batch([voice(1), np.zeros(3)]), ValueError, "utterance 1"),
    ],
)
def test_mistakes_are_named(model: bregman.Model, tmp_path: Path, act, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        act(model, tmp_path)


def test_the_program_comes_with_the_package() -> None:
    told = subprocess.run(["bregman", "--version"], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == f"bregman {bregman.__version__}"
