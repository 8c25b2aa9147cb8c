// Sound as networks take it: mono samples at 16 kHz, nominally from -1 to 1.

/** Samples per second of everything in this page: the rate of every model. */
export const RATE = 16000;

/** Decibels below full scale at and under which a recording counts as silent. */
export const SILENCE = -55;

/** The channels of a file of any format the browser plays. */
export async function decode(bytes) {
  const context = new OfflineAudioContext(1, 1, RATE); // decodes to its own rate
  const sound = await context.decodeAudioData(bytes).catch(() => {
    throw new Error("this browser cannot decode it as audio");
  });
  return Array.from({ length: sound.numberOfChannels }, (_, channel) => sound.getChannelData(channel));
}

/** The mean of channels. */
export function mono(channels) {
  if (channels.length === 1) return channels[0];
  const mixed = new Float32Array(channels[0].length);
  for (const channel of channels) {
    for (let i = 0; i < mixed.length; i++) mixed[i] += channel[i] / channels.length;
  }
  return mixed;
}

/** The outline of a waveform: the largest magnitude in each of equal stretches. */
export function outline(samples, stretches = Math.min(2000, samples.length)) {
  const place = (i) => Math.floor((i * samples.length) / stretches);
  return Float32Array.from({ length: stretches }, (_, i) => loudest(samples, place(i), place(i + 1)));
}

/** The largest magnitude between two places. */
export function loudest(samples, from = 0, to = samples.length) {
  let most = 0;
  for (let i = from; i < to; i++) most = Math.max(most, Math.abs(samples[i]));
  return most;
}

/** Samples at `rate`, as a microphone gives them, at RATE. */
export async function resample(samples, rate) {
  if (rate === RATE || samples.length === 0) return samples;
  const context = new OfflineAudioContext(1, Math.ceil((samples.length * RATE) / rate), RATE);
  const buffer = new AudioBuffer({ length: samples.length, sampleRate: rate });
  buffer.copyToChannel(samples, 0);
  const source = new AudioBufferSourceNode(context, { buffer });
  source.connect(context.destination);
  source.start();
  return (await context.startRendering()).getChannelData(0);
}

/** The level of samples in decibels of full scale. */
export function level(samples) {
  let power = 0;
  for (const value of samples) power += value * value;
  return 10 * Math.log10(power / Math.max(samples.length, 1) + 1e-12);
}

/**
 * Where somebody speaks in a recording, as `[from, to]` in samples: without the quiet before the first and after the
 * last word, which a recording has because nobody presses a button while speaking. Null if all of it is silent.
 */
export function spoken(samples, rate = RATE) {
  const frame = Math.round(rate / 50);
  const levels = [];
  for (let at = 0; at + frame <= samples.length; at += frame) levels.push(level(samples.subarray(at, at + frame)));
  const ordered = [...levels].sort((a, b) => a - b);
  const share = (part) => ordered[Math.floor(part * (ordered.length - 1))];
  const [quiet, loud] = [share(0.1), share(0.95)];
  if (!(loud > SILENCE)) return null;
  const heard = (value) => value >= Math.max(loud - 30, quiet + 0.3 * (loud - quiet));
  const margin = rate / 5;
  const from = levels.findIndex(heard) * frame - margin;
  const to = (levels.findLastIndex(heard) + 1) * frame + margin;
  return [Math.max(0, Math.round(from)), Math.min(samples.length, Math.round(to))];
}
