// What is open: the program, a model, and the people who are enrolled with it.

import { load } from "./bregman.js";
import { RATE } from "./sound.js";
import { People, fingerprint } from "./store.js";

export class Session {
  #bregman;

  static async start() {
    const session = new Session();
    session.#bregman = await load();
    return session;
  }

  /** The model that is open, if any. */
  model = null;
  /** Those who are enrolled with it. */
  people = null;

  /** Opens another model from the bytes of its file. */
  async open(bytes) {
    const model = this.#bregman.open(bytes);
    if (model.rate !== RATE) {
      model.close();
      throw new Error(`it takes sound at ${model.rate} Hz, this page gives ${RATE}`);
    }
    this.people = await People.open(await fingerprint(bytes));
    this.model?.close();
    this.model = model;
  }

  /** The embedding of a take's recording, and the milliseconds it took; null where the take now says why not. */
  embed(take) {
    try {
      const start = performance.now();
      const embedding = this.model.embed(take.sound);
      return { embedding, time: performance.now() - start };
    } catch (error) {
      take.problem(`This recording cannot be used: ${error.message}.`);
      return null;
    }
  }

  score(first, second) {
    return this.#bregman.score(first, second);
  }

  /** "same" or "another" speaker; "unknown" where the model has no threshold. */
  decide(score) {
    const { threshold } = this.model;
    return Number.isNaN(threshold) ? "unknown" : score > threshold ? "same" : "another";
  }
}
