// What is open: the network, a model, and the people who are enrolled with it.

import { Network } from "./network.js";
import { RATE, spoken } from "./sound.js";
import { People, fingerprint, mean } from "./store.js";

/** Samples that are embedded at once. A longer recording has the mean embedding of equal pieces. */
const PIECE = 30 * RATE;

export class Session {
  #network;
  #embeddings;

  static async start() {
    const session = new Session();
    session.#network = await Network.start();
    return session;
  }

  /** The model that is open, if any. */
  model = null;
  /** Those who are enrolled with it. */
  people = null;

  /** Opens another model from the bytes of its file. */
  async open(bytes) {
    const model = await this.#network.ask("open", [bytes]);
    if (model.rate !== RATE) {
      this.#network.ask("close", [model.number]);
      throw new Error(`it takes sound at ${model.rate} Hz, this page gives ${RATE}`);
    }
    const people = await People.open(await fingerprint(bytes));
    if (this.model) this.#network.ask("close", [this.model.number]);
    [this.model, this.people, this.#embeddings] = [model, people, new WeakMap()];
  }

  /** What is spoken in a recording, and its picture; null if it is silent. */
  hear(channels) {
    return this.#network.ask("hear", [channels], channels);
  }

  /**
   * The embedding of a take's recording, and the milliseconds it took. Null where the take says why not, and where the
   * answer is not wanted any more, since the take has another recording or the page another model.
   */
  async embed(take) {
    const { sound } = take;
    const known = this.#embeddings;
    const wanted = () => take.sound === sound && this.#embeddings === known;
    if (!known.has(sound)) known.set(sound, this.#compute(take, wanted));
    try {
      const found = await known.get(sound);
      return wanted() ? found : null;
    } catch (error) {
      if (wanted()) take.problem(`This recording cannot be used: ${error.message}.`);
      return null;
    }
  }

  async #compute(take, wanted) {
    const { sound } = take;
    const count = Math.ceil(sound.length / PIECE);
    const place = (i) => Math.floor((i * sound.length) / count);
    const found = [];
    try {
      for (let i = 0; i < count && wanted(); i++) {
        take.progress(i / count);
        const piece = sound.slice(place(i), place(i + 1));
        if (count > 1 && !spoken(piece)) continue;
        found.push(await this.#network.ask("embed", [this.model.number, piece], [piece]));
      }
    } finally {
      if (wanted()) take.progress(1);
    }
    if (!wanted()) return null;
    if (found.length === 0) throw new Error("hardly anybody speaks in it");
    const embeddings = found.map(({ embedding }) => embedding);
    const time = found.reduce((sum, piece) => sum + piece.time, 0);
    return { embedding: count === 1 ? embeddings[0] : mean(embeddings), time };
  }

  /** The scores of an embedding with others. */
  scores(embedding, others) {
    return this.#network.ask("scores", [embedding, others]);
  }

  /** "same" or "another" speaker; "unknown" where the model has no threshold. */
  decide(score) {
    const { threshold } = this.model;
    return Number.isNaN(threshold) ? "unknown" : score > threshold ? "same" : "another";
  }
}
