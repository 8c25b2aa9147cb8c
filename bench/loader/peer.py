"""The peer of bench/loader: a PyTorch DataLoader that does the same work on one thread.

peer.py encode DIR           writes a .flac next to every .wav (our side has no encoder)
peer.py measure DIR SECONDS  utterances per second from FLAC, from raw 16-bit samples and from cached features: best of
                             three windows of SECONDS each

Same work: 3 s cuts in random order, read by offset, mean removed, -20 dB RMS, clipped, SpeechBrain's 80 filterbanks,
mean subtracted, batches of 256. num_workers=0, so no time is spent on moving batches between processes; features are
computed per batch, which is faster for SpeechBrain. Ends with one JSON line.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import soundfile as sf
import torch
from speechbrain.lobes.features import Fbank
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
CUT, BATCH, BINS = 48000, 256, 80
fbank = Fbank(n_mels=BINS, n_fft=512).eval()


class Flac(Dataset):
    """Cuts of FLAC files, decoded by libsndfile from the nearest seek point."""

    def __init__(self, folder):
        self.cuts = [
            (str(f), s) for f in sorted(folder.rglob("*.flac")) for s in range(0, sf.info(f).frames - CUT + 1, CUT)
        ]

    def __len__(self):
        return len(self.cuts)

    def __getitem__(self, index):
        path, start = self.cuts[index]
        samples, _ = sf.read(path, frames=CUT, start=start, dtype="float32")
        return samples


class Pcm(Dataset):
    """The same cuts from one memory-mapped file of raw samples."""

    def __init__(self, folder):
        cuts = [sf.read(f, dtype="int16")[0] for f in sorted(folder.rglob("*.wav"))]
        path = folder / "peer.i16"
        np.concatenate([c[: len(c) // CUT * CUT] for c in cuts]).tofile(path)
        self.samples = np.memmap(path, dtype=np.int16, mode="r").reshape(-1, CUT)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index].astype(np.float32) / 32768


class Cached(Dataset):
    """Features in a memory-mapped file of 16-bit floats."""

    def __init__(self, folder, cuts, frames=301):
        path = folder / "peer.f16"
        np.random.default_rng(1).normal(0, 10, (cuts, frames, BINS)).astype(np.float16).tofile(path)
        self.features = np.memmap(path, dtype=np.float16, mode="r").reshape(cuts, frames, BINS)

    def __len__(self):
        return len(self.features)

    def __getitem__(self, index):
        return self.features[index].astype(np.float32)


def features(batch):
    samples = torch.from_numpy(np.stack(batch))
    samples -= samples.mean(1, keepdim=True)
    samples *= 0.1 / samples.square().mean(1, keepdim=True).sqrt()
    samples.clamp_(-1, 1)
    with torch.inference_mode():
        output = fbank(samples)
        return output - output.mean(1, keepdim=True)


def stack(batch):
    return torch.from_numpy(np.stack(batch))


def rate(dataset, collate, seconds):
    loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=0, collate_fn=collate)
    batches = iter([])

    def take():
        nonlocal batches
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        return len(batch)

    def window():
        utterances, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            utterances += take()
        return utterances / (time.perf_counter() - start)

    take()
    return max(window() for _ in range(3))


folder = Path(sys.argv[2])
if sys.argv[1] == "encode":
    for path in sorted(folder.rglob("*.wav")):
        samples, sample_rate = sf.read(path, dtype="int16")
        sf.write(path.with_suffix(".flac"), samples, sample_rate)
    print(json.dumps({"files": len(list(folder.rglob("*.flac")))}))
else:
    seconds = float(sys.argv[3])
    flac = Flac(folder)
    pcm = Pcm(folder)
    print(
        json.dumps(
            {
                "flac": rate(flac, features, seconds),
                "pcm": rate(pcm, features, seconds),
                "cache": rate(Cached(folder, len(pcm)), stack, seconds),
            }
        )
    )
