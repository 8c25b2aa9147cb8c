"""Filterbanks of kaldi-native-fbank, torchaudio and SpeechBrain on two synthetic utterances."""

import numpy as np
import torch

from store import largest_difference

SECONDS, RATE, MELS, FFT, WINDOW_MS, HOP_MS = [3.0, 1.234], 16000, 80, 512, 25, 10
FULL_SCALE = 32768

KALDI = {
    "input_scale": FULL_SCALE,
    "mels": MELS,
    "frame_length_ms": WINDOW_MS,
    "frame_shift_ms": HOP_MS,
    "dither": 0,
    "low_freq": 20,
    "high_freq": "nyquist",
    "preemphasis": 0.97,
    "window": "symmetric (N-1)",
    "remove_dc_offset": True,
    "snip_edges": True,
    "round_to_power_of_two": True,
    "use_power": True,
    "use_energy": False,
    "log_floor": "float32 epsilon",
}
SPEECHBRAIN = {
    "input_scale": 1,
    "n_fft": FFT,
    "win_ms": WINDOW_MS,
    "hop_ms": HOP_MS,
    "mels": MELS,
    "f_min": 0,
    "f_max": "None = rate/2",
    "window": "hamming, periodic (0.54-0.46*cos(2*pi*n/N)), 400 samples centred in n_fft with zeros",
    "filters": "HTK mel, triangles symmetric in Hz: the LEFT band width is used on both sides",
    "power": True,
    "center": True,
    "pad_mode": "constant",
    "scale": "10*log10, amin 1e-10, top_db 80 below the utterance maximum",
    "sentence_norm": "InputNormalization(norm_type='sentence', std_norm=False)",
}


def make(references, store, rng):
    tensors, facts = {}, {}
    for at, seconds in enumerate(SECONDS):
        # Digital silence in the first one: that is where the floors of the logarithm show.
        silence = (seconds * 0.55, seconds * 0.55 + 0.12) if at == 0 else None
        samples = voice(rng, seconds, silence)
        name = f"utt{at}"
        tensors[f"{name}.waveform_i16"] = torch.from_numpy((samples * FULL_SCALE).astype(np.int16))
        facts[name] = {"samples": len(samples), "seconds": seconds}
        for window in ("povey", "hamming"):
            native, audio, exact = kaldi(samples, window)
            tensors[f"{name}.knf_{window}"] = native
            if at > 0:
                tensors[f"{name}.torchaudio_{window}"] = audio
            facts[name][window] = {
                "frames": native.shape[0],
                "knf_minus_torchaudio_max_abs": largest_difference(native, audio),
                "knf_minus_torchaudio_mean_abs": float((native.double() - audio.double()).abs().mean()),
                "torchaudio_f32_minus_f64_max_abs": largest_difference(audio, exact),
                "knf_minus_torchaudio_f64_max_abs": largest_difference(native, exact),
                "silent_frames_at_floor": int((audio == audio.min()).all(dim=1).sum()),
                "floor": float(audio.min()),
            }
        plain, centred, exact = speechbrain(samples)
        tensors[f"{name}.speechbrain"], tensors[f"{name}.speechbrain_norm"] = plain, centred
        facts[name]["speechbrain"] = {
            "frames": plain.shape[0],
            "max": float(plain.max()),
            "min": float(plain.min()),
            "sentence_norm_equals_minus_time_mean_max_abs": largest_difference(
                centred, plain.double() - plain.double().mean(0)
            ),
            "f32_minus_f64_max_abs": largest_difference(plain, exact),
            "f32_minus_f64_mean_abs": float((plain.double() - exact).abs().mean()),
        }
    store.save(
        "features",
        "Produced by kaldi_native_fbank.OnlineFbank, torchaudio.compliance.kaldi.fbank and "
        "speechbrain.lobes.features.Fbank + InputNormalization.",
        {"kaldi": KALDI, "speechbrain": SPEECHBRAIN, "utterances": facts},
        tensors,
    )


def voice(rng, seconds, silence):
    """Something like a vowel: harmonics of a moving pitch under moving formants, noise, and a small constant offset."""
    count = int(round(seconds * RATE))
    time = np.arange(count) / RATE
    swing = 40 * np.sin(2 * np.pi * (0.7 + 0.2 * rng.random()) * time + rng.random() * 6)
    pitch = 120 + swing + 15 * np.sin(2 * np.pi * 3.1 * time)
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    formants = [
        (650 + 150 * np.sin(2 * np.pi * 0.9 * time), 90.0),
        (1500 + 400 * np.sin(2 * np.pi * 0.6 * time + 1), 130.0),
        (2700 + 0 * time, 200.0),
    ]
    sound = np.zeros(count)
    for harmonic in range(1, 40):
        frequency = harmonic * pitch
        gain = (
            sum(1.0 / (1.0 + ((frequency - centre) / (2 * width)) ** 2) for centre, width in formants) / harmonic**0.6
        )
        sound += np.where(frequency < 0.47 * RATE, gain, 0) * np.sin(harmonic * phase + rng.random() * 6)
    envelope = 0.55 + 0.45 * np.sin(2 * np.pi * 2.3 * time + rng.random() * 6)
    sound = sound * envelope + 0.05 * rng.normal(0, 1, count)
    sound = 0.3 * sound / np.abs(sound).max() + 0.002
    if silence:
        sound[int(silence[0] * RATE) : int(silence[1] * RATE)] = 0.0
    return (np.clip(np.round(sound * FULL_SCALE), -FULL_SCALE, FULL_SCALE - 1) / FULL_SCALE).astype(np.float32)


def kaldi(samples, window):
    import kaldi_native_fbank
    import torchaudio.compliance.kaldi as torchaudio

    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.dither = 0.0
    options.frame_opts.samp_freq = RATE
    options.frame_opts.window_type = window
    options.frame_opts.frame_length_ms = WINDOW_MS
    options.frame_opts.frame_shift_ms = HOP_MS
    options.mel_opts.num_bins = MELS
    bank = kaldi_native_fbank.OnlineFbank(options)
    bank.accept_waveform(RATE, (samples * float(FULL_SCALE)).tolist())
    bank.input_finished()
    native = np.stack([bank.get_frame(frame) for frame in range(bank.num_frames_ready)]).copy()
    settings = dict(
        num_mel_bins=MELS,
        frame_length=float(WINDOW_MS),
        frame_shift=float(HOP_MS),
        dither=0.0,
        sample_frequency=float(RATE),
        window_type=window,
    )
    wave = torch.from_numpy(samples)[None]
    single = torchaudio.fbank(wave * FULL_SCALE, **settings)
    return torch.from_numpy(native), single, torchaudio.fbank(wave.double() * FULL_SCALE, **settings)


def speechbrain(samples):
    from speechbrain.lobes.features import Fbank
    from speechbrain.processing.features import InputNormalization

    def bank():
        return Fbank(
            sample_rate=RATE, n_fft=FFT, n_mels=MELS, win_length=WINDOW_MS, hop_length=HOP_MS, f_min=0, f_max=None
        )

    wave = torch.from_numpy(samples)[None]
    with torch.no_grad():
        plain = bank()(wave)
        centred = InputNormalization(norm_type="sentence", std_norm=False)(plain, torch.ones(1))
        torch.set_default_dtype(torch.float64)
        try:
            exact = bank()(wave.double())
        finally:
            torch.set_default_dtype(torch.float32)
    assert exact.dtype == torch.float64
    return plain[0].contiguous(), centred[0].contiguous(), exact[0]
