// How long a model takes for 3 s of sound, in milliseconds: the least and the median of many runs.

const SECONDS = 3;
const RUNS = 41;
/** Milliseconds. */
const PAUSE = 500;

/** `bregman` is what load() gives, `bytes` a model file. Runs in Node and in browsers. */
export async function measure(bregman, bytes) {
  const model = bregman.open(bytes);
  let state = 1;
  const noise = () => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) / 2 ** 32 - 0.5;
  const sound = Float32Array.from({ length: SECONDS * model.rate }, () => 0.2 * noise());
  const time = () => {
    const start = performance.now();
    model.embed(sound);
    return performance.now() - start;
  };
  // The engine compiles its best code in other threads, which need a processor, too.
  for (let round = 0; round < 4; round++) {
    for (let i = 0; i < 20; i++) time();
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
  const times = Array.from({ length: RUNS }, time).sort((a, b) => a - b);
  model.close();
  return { least: times[0], median: times[(RUNS - 1) / 2] };
}
