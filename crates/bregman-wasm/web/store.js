// The people who are enrolled: names and the embeddings of their recordings, no sound. They are kept in the browser
// (IndexedDB), each with the fingerprint of the model, because embeddings of two models cannot be compared.

const DATABASE = "bregman-voices";
const TABLE = "people";

/** What identifies a model: a hash of its file. Null where the browser computes none (pages from plain http). */
export async function fingerprint(bytes) {
  if (!globalThis.crypto?.subtle) return null;
  const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return Array.from(hash, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The direction of a person's voice: the mean of embeddings, each of which counts the same whatever its length. */
export function mean(embeddings) {
  const sum = new Float32Array(embeddings[0].length);
  for (const embedding of embeddings) {
    const length = Math.hypot(...embedding) || 1;
    embedding.forEach((value, i) => (sum[i] += value / length / embeddings.length));
  }
  return sum;
}

/** The people enrolled with one model. */
export class People {
  #rows;
  #model;

  constructor(rows, model) {
    this.#rows = rows;
    this.#model = model;
    /** Whether they are still there when the page is opened again. */
    this.kept = rows instanceof Kept;
  }

  static async open(model) {
    const rows = model ? await Kept.open().catch(() => new Forgotten()) : new Forgotten();
    return new People(rows, model);
  }

  /** Adds a recording to a person, who is new or not; the number of recordings then. */
  async add(name, embedding, seconds) {
    const recording = { embedding, seconds };
    const row = await this.#rows.change([this.#model, name], (row) => ({
      model: this.#model,
      name,
      recordings: [...(row?.recordings ?? []), recording],
    }));
    return row.recordings.length;
  }

  /** Everybody with a mean embedding, by name. */
  async all() {
    const rows = (await this.#rows.all()).filter((row) => row.model === this.#model);
    return rows
      .map(({ name, recordings }) => ({
        name,
        recordings: recordings.length,
        seconds: recordings.reduce((sum, recording) => sum + recording.seconds, 0),
        embedding: mean(recordings.map((recording) => recording.embedding)),
      }))
      .sort((a, b) => a.name.localeCompare(b.name));
  }

  /** How many people are enrolled with other models. */
  async others() {
    return (await this.#rows.all()).filter((row) => row.model !== this.#model).length;
  }

  async forget(name) {
    await this.#rows.remove([this.#model, name]);
  }

  /** Forgets everybody, of every model. */
  async forgetEveryone() {
    await this.#rows.clear();
  }
}

// Rows by key in IndexedDB.
class Kept {
  #database;

  static async open() {
    const request = indexedDB.open(DATABASE, 1);
    request.onupgradeneeded = () => request.result.createObjectStore(TABLE, { keyPath: ["model", "name"] });
    const kept = new Kept();
    kept.#database = await answer(request);
    return kept;
  }

  async #use(mode, work) {
    const transaction = this.#database.transaction(TABLE, mode, { durability: "strict" });
    const done = new Promise((resolve, reject) => {
      transaction.oncomplete = resolve;
      transaction.onabort = transaction.onerror = () =>
        reject(new Error(`The browser did not keep it: ${transaction.error?.message ?? "its storage is closed"}.`));
    });
    const [result] = await Promise.all([work(transaction.objectStore(TABLE)), done]);
    return result;
  }

  all() {
    return this.#use("readonly", (table) => answer(table.getAll()));
  }

  change(key, change) {
    return this.#use("readwrite", async (table) => {
      const row = change(await answer(table.get(key)));
      await answer(table.put(row));
      return row;
    });
  }

  remove(key) {
    return this.#use("readwrite", (table) => answer(table.delete(key)));
  }

  clear() {
    return this.#use("readwrite", (table) => answer(table.clear()));
  }
}

function answer(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

// The same where the browser keeps nothing: until the page is closed.
class Forgotten {
  #rows = new Map();

  async all() {
    return [...this.#rows.values()];
  }

  async change(key, change) {
    const row = change(this.#rows.get(JSON.stringify(key)));
    this.#rows.set(JSON.stringify(key), row);
    return row;
  }

  async remove(key) {
    this.#rows.delete(JSON.stringify(key));
  }

  async clear() {
    this.#rows.clear();
  }
}
