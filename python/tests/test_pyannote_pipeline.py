"""The embedding of `examples/pyannote_pipeline.py` does what pyannote expects, without pyannote."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType, SimpleNamespace
from typing import TextIO

import numpy as np
import pytest
import torch
from conftest import ROOT
from test_model import FILE, voice

import bregman

SPEC = importlib.util.spec_from_file_location("pyannote_pipeline", ROOT / "python/examples/pyannote_pipeline.py")
assert SPEC and SPEC.loader
example = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(example)


def test_batches_are_embedded_as_single_recordings_are() -> None:
    embedding, model = example.BregmanEmbedding(FILE, threads=2), bregman.Model(FILE)
    assert (embedding.sample_rate, embedding.dimension, embedding.metric) == (16000, model.embedding_size, "cosine")
    voices = [voice(1), voice(2)]
    batch = torch.from_numpy(np.stack(voices))[:, None]
    np.testing.assert_allclose(embedding(batch), [model.embed(samples) for samples in voices], rtol=1e-4, atol=1e-5)


def test_only_the_masked_part_counts_and_too_little_of_it_is_nan() -> None:
    embedding = example.BregmanEmbedding(FILE, threads=1)
    samples = voice(1)
    batch = torch.from_numpy(np.stack([samples, samples, samples]))[:, None]
    masks = torch.zeros(3, 100)
    masks[0, :50] = masks[1, :1] = 1
    found = embedding(batch, masks=masks)
    expected = embedding(torch.from_numpy(samples[: samples.size // 2])[None, None])
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5, atol=1e-6)
    assert np.isnan(found[1:]).all()
    assert embedding.to(torch.device("cpu")) is embedding


class Annotation:
    """As much of pyannote's as the example uses."""

    def write_rttm(self, file: TextIO) -> None:
        file.write("SPEAKER meeting 1 0.500 1.250 <NA> <NA> SPEAKER_00 <NA> <NA>\n")


@pytest.mark.parametrize(
    "result",
    [
        pytest.param(Annotation(), id="3"),
        # without `write_rttm`, as in 4
        pytest.param(SimpleNamespace(speaker_diarization=Annotation(), speaker_embeddings=None), id="4"),
    ],
)
def test_the_pipelines_of_pyannote_3_and_4_write_who_spoke_when(
    result: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pipeline:
        _embedding: object = None

        @classmethod
        def from_pretrained(cls, name: str) -> Pipeline:
            return cls()

        def __call__(self, recording: str) -> object:
            assert isinstance(self._embedding, example.BregmanEmbedding) and recording == "meeting.wav"
            return result

    audio = ModuleType("pyannote.audio")
    audio.Pipeline = Pipeline  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyannote", ModuleType("pyannote"))
    monkeypatch.setitem(sys.modules, "pyannote.audio", audio)
    example.main(str(FILE), "meeting.wav")
    assert capsys.readouterr().out == "SPEAKER meeting 1 0.500 1.250 <NA> <NA> SPEAKER_00 <NA> <NA>\n"
