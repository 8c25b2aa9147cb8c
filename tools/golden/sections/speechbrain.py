"""ECAPA-TDNN of SpeechBrain: a narrow network as `networks` has those of WeSpeaker, and the whole chain from samples to
an embedding by a checkpoint as SpeechBrain saves it.

Three channels of the aggregation are dead, as some of a trained network are: their deviation is SpeechBrain's floor,
and a norm of small variance follows, so that another floor would show.
"""

import copy

import numpy as np
import torch
from speechbrain.lobes.features import Fbank
from speechbrain.lobes.models.ECAPA_TDNN import ECAPA_TDNN
from speechbrain.processing.features import InputNormalization

from sections import networks
from store import f32

WHERE = "speechbrain.lobes.models.ECAPA_TDNN.ECAPA_TDNN"
SETTINGS = {"input_size": networks.MELS, "lin_neurons": 24, "channels": [32, 32, 32, 32, 96]}
TINY = {"input_size": networks.MELS, "lin_neurons": 12, "channels": [16, 16, 16, 16, 32]}
DEAD = [5, 17, 64]
RATE, SECONDS = 16000, 1.2
NETWORKS_STREAM = 3


class Ecapa(ECAPA_TDNN):
    """Gives its embedding as the other networks do; its state_dict is the parent's."""

    def forward(self, x):
        return (super().forward(x).squeeze(1),)


def make(_references, store, rng):
    # the features of `model_input`
    features, others = networks.batches(np.random.default_rng([store.origin["seed"], NETWORKS_STREAM]))
    builder = lambda: Ecapa(**SETTINGS)
    networks.network(
        store, features, others, 0, "speechbrain_c32", "speechbrain-ecapa", SETTINGS, builder, WHERE, deaden
    )
    chain(store, others, rng)


def deaden(network):
    pooled = network.mfa.conv.conv.out_channels
    network.mfa.conv.conv.bias[DEAD] = -100.0
    deviations = [pooled + channel for channel in DEAD]
    network.asp_bn.norm.running_mean[deviations] = 1e-6
    network.asp_bn.norm.running_var[deviations] = 0.0


def chain(store, others, rng):
    single = networks.drawn(lambda: Ecapa(**TINY), others, [store.origin["seed"], 200])
    samples = f32(voice(rng))
    # what `spkrec-ecapa-voxceleb` has in its hyperparams.yaml
    features = InputNormalization(norm_type="sentence", std_norm=False)(
        Fbank(n_mels=networks.MELS)(samples[None]), torch.ones(1)
    )
    with torch.no_grad():
        embedding = networks.embed(copy.deepcopy(single).double(), features.double())[0]
        plain = networks.embed(single, features)[0]
    torch.save(single.state_dict(), str(store.folder / "embedding_model.ckpt"))
    store.save(
        "embedding_model_expected",
        f"Produced by {WHERE} behind Fbank(n_mels=80) and InputNormalization(norm_type=sentence, std_norm=False); "
        "embedding_model.ckpt is torch.save of its state_dict, its embedding that of float64 on features in float32.",
        {
            "constructor": TINY,
            "rate": RATE,
            "full_size_parameters": full_size(),
            "max_abs_f32_minus_f64": float((plain.double() - embedding).abs().max()),
        },
        {"samples": samples, "features": features[0], "embedding": embedding.float()},
    )


def voice(rng):
    """A hum whose pitch and loudness move, in noise, and nothing but faint noise for a while."""
    t = np.arange(int(SECONDS * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 25 * np.sin(2 * np.pi * 1.7 * t)) / RATE
    hum = sum(np.sin(k * phase) / k for k in range(1, 30))
    loud = 0.05 + 0.2 * np.clip(np.sin(2 * np.pi * 2.3 * t), 0, None)
    loud[int(0.7 * RATE) : int(0.85 * RATE)] = 0
    return loud * hum + rng.normal(0, 1e-4, t.shape)


def full_size():
    """Parameters of the published `spkrec-ecapa-voxceleb`."""
    network = ECAPA_TDNN(80, lin_neurons=192, channels=[1024, 1024, 1024, 1024, 3072])
    return sum(weight.numel() for weight in network.parameters())
