// Speaker embeddings in the browser or in Node: load a model file, embed recordings, compare them. Nothing leaves the
// machine.
//
//   import { load } from "./bregman.js";
//   const bregman = await load();                                    // fetches bregman.wasm from this file's folder
//   const model = bregman.open(await (await fetch("model.breg")).arrayBuffer());
//   const score = bregman.score(model.embed(first), model.embed(second));   // Float32Array, mono, at model.rate
//   const same = score > model.threshold;                            // NaN if the model has no threshold
//   model.close();

/** Instantiates the module from its bytes, or from an address. */
export async function load(source = new URL("bregman.wasm", import.meta.url)) {
  const bytes = source instanceof ArrayBuffer || ArrayBuffer.isView(source) ? source : await download(source);
  const { instance } = await WebAssembly.instantiate(bytes, {});
  return new Bregman(instance.exports);
}

async function download(address) {
  const response = await fetch(address);
  if (!response.ok) throw new Error(`${address}: ${response.status} ${response.statusText}`);
  return response.arrayBuffer();
}

class Bregman {
  #wasm;

  constructor(wasm) {
    this.#wasm = wasm;
  }

  /** The library's version. */
  get version() {
    return this.#text(this.#wasm.bregman_version());
  }

  /** Opens a model from the bytes of its file. */
  open(bytes) {
    const file = new Uint8Array(bytes);
    const handle = this.#lend([file], (at) => this.#wasm.bregman_open_bytes(at, file.length, 1));
    if (handle === 0) throw this.#error();
    return new Model(this.#wasm, handle, {
      error: () => this.#error(),
      lend: (arrays, use) => this.#lend(arrays, use),
    });
  }

  /** The score of two embeddings: their cosine. */
  score(first, second) {
    if (first.length !== second.length) throw new Error(`embeddings of ${first.length} and ${second.length} values`);
    const score = new Float64Array(1);
    const status = this.#lend([Float32Array.from(first), Float32Array.from(second), score], (a, b, result) =>
      this.#wasm.bregman_score(a, b, first.length, result),
    );
    if (status !== 0) throw this.#error();
    return score[0];
  }

  // Copies arrays into the module's memory for the duration of a call, and back. The memory may grow, and move, during
  // the call.
  #lend(arrays, use) {
    const places = [];
    const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    try {
      for (const array of arrays) {
        const size = Math.max(array.byteLength, 1);
        const place = this.#wasm.bregman_alloc(size);
        if (place === 0) throw new Error(`no memory for ${size} bytes`);
        places.push([place, size]);
        new Uint8Array(this.#wasm.memory.buffer).set(bytesOf(array), place);
      }
      const result = use(...places.map(([place]) => place));
      arrays.forEach((array, i) => {
        bytesOf(array).set(new Uint8Array(this.#wasm.memory.buffer, places[i][0], array.byteLength));
      });
      return result;
    } finally {
      for (const [place, size] of places) this.#wasm.bregman_free(place, size);
    }
  }

  #error() {
    return new Error(this.#text(this.#wasm.bregman_error_message()));
  }

  #text(at) {
    const memory = new Uint8Array(this.#wasm.memory.buffer);
    return new TextDecoder().decode(memory.slice(at, memory.indexOf(0, at)));
  }
}

class Model {
  #wasm;
  #handle;
  #host;

  constructor(wasm, handle, host) {
    this.#wasm = wasm;
    this.#handle = handle;
    this.#host = host;
    /** Values of an embedding. */
    this.size = wasm.bregman_embedding_size(handle);
    /** Samples per second that `embed` takes. */
    this.rate = wasm.bregman_sample_rate(handle);
    /** The fewest samples that `embed` takes. */
    this.shortest = wasm.bregman_shortest(handle);
    /** Scores above it are of one speaker; NaN where the model was not calibrated. */
    this.threshold = wasm.bregman_threshold(handle);
  }

  /** The embedding of mono samples at `rate`, nominally from -1 to 1. */
  embed(samples) {
    const input = Float32Array.from(samples);
    const embedding = new Float32Array(this.size);
    const status = this.#host.lend([input, embedding], (from, to) =>
      this.#wasm.bregman_embed(this.#handle, from, input.length, to, this.size),
    );
    if (status !== 0) throw this.#host.error();
    return embedding;
  }

  /** Frees the model; afterwards it embeds nothing. */
  close() {
    this.#wasm.bregman_close(this.#handle);
    this.#handle = 0;
  }
}
