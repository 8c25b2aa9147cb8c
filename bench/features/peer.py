"""The peers of bench/features: 80-bin log-mel filterbanks on one thread, in milliseconds per minute of audio.

Usage: peer.py SAMPLES.i16 REPEATS; the file holds 16 kHz mono, raw 16-bit little-endian. Ends with one JSON line.
"""

import json
import sys
import time

import kaldi_native_fbank as knf
import numpy as np
import torch
import torchaudio
from speechbrain.lobes.features import Fbank

torch.set_num_threads(1)
RATE, BINS = 16000, 80
samples = np.fromfile(sys.argv[1], dtype="<i2")
repeats = int(sys.argv[2])
minutes = len(samples) / RATE / 60


def median_ms(call):
    call()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


# Utterances of 3 s, as in training, and the whole recording as one.
cut = 3 * RATE
shapes = {"3s": [samples[i : i + cut] for i in range(0, len(samples) - cut + 1, cut)], "whole": [samples]}

speechbrain_fbank = Fbank(n_mels=BINS, n_fft=512).eval()


def speechbrain(utterances):
    with torch.inference_mode():
        return [speechbrain_fbank(utterance) for utterance in utterances]


def speechbrain_batched(utterances):
    with torch.inference_mode():
        return speechbrain_fbank(utterances)


def torchaudio_kaldi(utterances):
    with torch.inference_mode():
        return [
            torchaudio.compliance.kaldi.fbank(
                utterance, num_mel_bins=BINS, sample_frequency=RATE, dither=0.0, window_type="povey"
            )
            for utterance in utterances
        ]


options = knf.FbankOptions()
options.frame_opts.samp_freq = RATE
options.frame_opts.dither = 0.0
options.mel_opts.num_bins = BINS


def kaldi_native(utterances):
    features = []
    for utterance in utterances:
        fbank = knf.OnlineFbank(options)
        fbank.accept_waveform(RATE, utterance)
        fbank.input_finished()
        features.append(np.stack([fbank.get_frame(i) for i in range(fbank.num_frames_ready)]))
    return features


result = {}
for name, utterances in shapes.items():
    unit = [torch.from_numpy(u.astype(np.float32) / 32768)[None] for u in utterances]
    scaled = [torch.from_numpy(u.astype(np.float32))[None] for u in utterances]
    arrays = [u.astype(np.float32) for u in utterances]
    result[name] = {
        "speechbrain": median_ms(lambda: speechbrain(unit)) / minutes,
        "speechbrain, one batch": median_ms(lambda: speechbrain_batched(torch.cat(unit))) / minutes,
        "torchaudio": median_ms(lambda: torchaudio_kaldi(scaled)) / minutes,
        "kaldi-native-fbank": median_ms(lambda: kaldi_native(arrays)) / minutes,
    }
print(json.dumps(result))
