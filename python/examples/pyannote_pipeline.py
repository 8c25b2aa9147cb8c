"""A sparse network of ours in pyannote's diarization pipeline, where embeddings take most of the time.

    pip install pyannote.audio                              # 3 or 4
    bregman export RUN -o model.breg
    python pyannote_pipeline.py model.breg meeting.wav

pyannote finds speech and overlaps and clusters; the embeddings come from `bregman.Model`, on the CPU. The pipeline of
3.1 clusters any embeddings; that of `community-1` wants those it was made with.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np
import torch

import bregman


class BregmanEmbedding:
    """What pyannote's pipelines expect of a speaker embedding (see `PretrainedSpeakerEmbedding` there)."""

    metric = "cosine"
    #: less than a tenth of a second says nothing about a voice
    SHORTEST_SECONDS = 0.1

    def __init__(self, path: str | os.PathLike[str], *, threads: int = os.cpu_count() or 1) -> None:
        self.model = bregman.Model(path, threads=threads)
        self.device = torch.device("cpu")
        self.sample_rate = self.model.rate
        self.dimension = self.model.embedding_size
        self.min_num_samples = round(self.SHORTEST_SECONDS * self.sample_rate)

    def to(self, device: torch.device) -> BregmanEmbedding:
        """The network stays on the CPU."""
        return self

    def __call__(self, waveforms: torch.Tensor, masks: torch.Tensor | None = None) -> np.ndarray:
        """Embeddings of a batch of (channel, sample) recordings, of the masked parts only where `masks` are given.

        A recording of which too little is left has NaN for an embedding; the pipeline leaves it out.
        """
        recordings = [waveform[0].cpu().numpy().astype(np.float32) for waveform in waveforms]
        if masks is not None:
            recordings = [masked(samples, mask) for samples, mask in zip(recordings, masks.cpu().numpy())]
        enough = [at for at, samples in enumerate(recordings) if samples.size >= self.min_num_samples]
        embeddings = np.full((len(recordings), self.dimension), np.nan, dtype=np.float32)
        if enough:
            embeddings[enough] = self.model.embed_batch([recordings[at] for at in enough])
        return embeddings


def masked(samples: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The samples where the mask, which has a value per frame, is on."""
    frame = np.arange(samples.size) * mask.size // samples.size
    return samples[mask[frame] > 0.5]


def turns(result: Any) -> Any:
    """Who spoke when: what a pipeline of pyannote.audio 3 returns, and a part of what one of 4 does."""
    return getattr(result, "speaker_diarization", result)


def main(model: str, recording: str) -> None:
    from pyannote.audio import Pipeline

    pipeline = Pipeline.from_pretrained("pyannote/speaker-diarization-3.1")
    pipeline._embedding = BregmanEmbedding(model)
    turns(pipeline(recording)).write_rttm(sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
