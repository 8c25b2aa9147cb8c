"""Speaker embeddings from a model file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple, Union

import numpy as np

from . import _bregman

RATE = 16_000
"""Samples per second of a loaded file."""
Recording = Union[np.ndarray, "os.PathLike[str]", str]
"""Mono samples at ``Model.rate``, or the path of an audio file of any rate (WAV, FLAC, MP3, M4A, Ogg)."""


class Verdict(NamedTuple):
    """The answer of :meth:`Model.verify`."""

    same: bool
    """Whether the score is above the threshold."""
    score: float
    """Cosine of the two embeddings."""
    threshold: float
    """What the score was compared with."""


class Layer(NamedTuple):
    """One layer with weights."""

    name: str
    shape: tuple[int, ...]
    nonzero: int


class Model:
    """A ``.breg`` file, ready to embed. May be used from several threads at a time; Python's lock is released.

    >>> model = bregman.Model("model.breg")                      # doctest: +SKIP
    >>> model.verify("enrolled.wav", "test.wav").same            # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str], *, threads: int = 1) -> None:
        """Opens a model file.

        threads: for one utterance, or utterances at a time in a batch; 0 for every core.
        Raises OSError for a file that cannot be read, ValueError for one that is no model or was altered.
        """
        if threads < 0:
            raise ValueError(f"threads is {threads}, expected a number ≥ 0")
        self._model = _bregman.Model(os.fspath(path), threads)

    def embed(self, recording: Recording, *, max_seconds: float = 60.0) -> np.ndarray:
        """The embedding of a recording, float32 of ``embedding_size`` values, not normalised.

        Of an array all samples are used. Of a file the middle ``max_seconds``, which must have speech in them: what
        ``bregman embed`` does.
        Raises ValueError for audio that cannot be read, is too short or has NaN in it.
        """
        embedding = np.empty(self.embedding_size, dtype=np.float32)
        if isinstance(recording, (str, os.PathLike)):
            if not max_seconds > 0:
                raise ValueError(f"max_seconds is {max_seconds}, expected a number > 0")
            samples = _middle(load_audio(recording), max_seconds)
            try:
                _bregman.check_speech(samples.ctypes.data, samples.size)
            except ValueError as problem:
                raise ValueError(f"{os.fspath(recording)}: {problem}") from None
        else:
            samples = _samples(recording)
        self._model.embed_samples(samples.ctypes.data, samples.size, embedding.ctypes.data)
        return embedding

    def embed_batch(self, recordings: Sequence[np.ndarray]) -> np.ndarray:
        """The embeddings of many arrays of samples, one row each: as many at a time as there are threads."""
        samples = [_samples(recording) for recording in recordings]
        embeddings = np.empty((len(samples), self.embedding_size), dtype=np.float32)
        self._model.embed_batch([(x.ctypes.data, x.size) for x in samples], embeddings.ctypes.data)
        return embeddings

    def verify(
        self, first: Recording, second: Recording, *, threshold: float | None = None, max_seconds: float = 60.0
    ) -> Verdict:
        """Whether two recordings are of one speaker: the cosine of their embeddings against a threshold.

        threshold: that of the file where it is left out. ValueError if the file has none.
        """
        if threshold is None:
            threshold = self.threshold
        if threshold is None:
            raise ValueError(
                "the model has no threshold: pass one, or calibrate it with `bregman export RUN -o model.breg "
                "--trials T --root DIR`"
            )
        a = self.embed(first, max_seconds=max_seconds).astype(np.float64)
        b = self.embed(second, max_seconds=max_seconds).astype(np.float64)
        score = float(a @ b / np.sqrt((a @ a) * (b @ b)))
        return Verdict(score > threshold, score, threshold)

    @property
    def embedding_size(self) -> int:
        """Values of an embedding."""
        return self._model.embedding_size

    @property
    def rate(self) -> int:
        """Samples per second of the arrays that ``embed`` takes."""
        return self._model.rate

    @property
    def threads(self) -> int:
        """Threads in use."""
        return self._model.threads

    @property
    def threshold(self) -> float | None:
        """Cosines above it are accepted as the same speaker; None if the model was not calibrated."""
        return self._model.threshold

    @property
    def sparsity(self) -> float:
        """Share of zeros among the weights in the file."""
        return self._model.sparsity

    @property
    def layers(self) -> list[Layer]:
        """Every layer with weights."""
        return [Layer(name, tuple(shape), nonzero) for name, shape, nonzero in self._model.layers]


def load_audio(path: str | os.PathLike[str]) -> np.ndarray:
    """The samples of an audio file (WAV, FLAC, MP3, M4A, Ogg) as mono float32 at 16 kHz, nominally in [−1, 1]."""
    return np.frombuffer(_bregman.load_audio(os.fspath(path)), dtype=np.float32)


def _middle(samples: np.ndarray, seconds: float) -> np.ndarray:
    """The middle of a recording: beginnings and ends are often silent."""
    wanted = int(min(seconds * RATE, samples.size))
    start = (samples.size - wanted) // 2
    return samples[start : start + wanted]


def _samples(recording: np.ndarray) -> np.ndarray:
    samples = np.ascontiguousarray(recording, dtype=np.float32)
    if samples.ndim != 1:
        raise ValueError(f"samples of shape {samples.shape}, expected mono: one dimension")
    return samples
