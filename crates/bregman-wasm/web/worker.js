// The program beside the page, in a thread of its own: every message asks for a task and gets one answer. network.js
// is the page's side of it.

import { load } from "./bregman.js";
import { mono, outline, spoken } from "./sound.js";

const models = new Map();
let bregman = null;

const tasks = {
  async start() {
    bregman = await load().catch((error) => {
      throw new Error(`${error.message} (crates/bregman-wasm/build makes bregman.wasm)`);
    });
  },

  /** Opens a model from the bytes of its file; what the page needs to know of it. */
  open(bytes) {
    const model = bregman.open(bytes);
    const { size, rate, threshold } = model;
    const number = models.size;
    models.set(number, model);
    return { number, size, rate, threshold };
  },

  close(number) {
    models.get(number).close();
  },

  /** What is spoken in a recording, and the picture of all of it; null if it is silent. */
  hear(channels) {
    const samples = mono(channels);
    const part = spoken(samples);
    if (!part) return null;
    return { sound: samples.slice(...part), waves: outline(samples), part: part.map((at) => at / samples.length) };
  },

  /** The embedding, and the milliseconds it took. */
  embed(number, sound) {
    const start = performance.now();
    const embedding = models.get(number).embed(sound);
    return { embedding, time: performance.now() - start };
  },

  /** The scores of an embedding with each of the others. */
  scores: (embedding, others) => others.map((other) => bregman.score(embedding, other)),
};

onmessage = async ({ data: { number, task, values } }) => {
  try {
    const answer = await tasks[task](...values);
    const arrays = Object.values(answer ?? {}).filter(ArrayBuffer.isView);
    postMessage({ number, answer }, arrays.map((array) => array.buffer));
  } catch (error) {
    // It has stopped in the middle of something and would compute nonsense from now on.
    if (error instanceof WebAssembly.RuntimeError) reportError(error);
    else postMessage({ number, error: error.message });
  }
};
