// The page's side of worker.js: asks it for tasks and hands out its answers.

export class Network {
  #worker;
  #asked = 0;
  #waiting = new Map();
  #dead = null;

  static async start() {
    const network = new Network();
    await network.ask("start");
    return network;
  }

  constructor() {
    // A worker from a blob keeps to the content security policy of this page; one from an address would have none.
    const code = `import ${JSON.stringify(new URL("worker.js", import.meta.url))};`;
    const address = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    this.#worker = new Worker(address, { type: "module" });
    this.#worker.onmessage = ({ data: { number, answer, error } }) => {
      const { resolve, reject } = this.#waiting.get(number);
      this.#waiting.delete(number);
      if (error !== undefined) reject(new Error(error));
      else resolve(answer);
    };
    // It could not be loaded, or its program has stopped.
    this.#worker.onerror = ({ message }) => {
      this.#dead = new Error(`the network's program is not running${message ? ` (${message})` : ""}; reload this page`);
      this.#waiting.forEach(({ reject }) => reject(this.#dead));
      this.#worker.terminate();
    };
  }

  /** The answer to a task of worker.js. The page loses the arrays in `moved`, which saves copying them. */
  ask(task, values = [], moved = []) {
    if (this.#dead) return Promise.reject(this.#dead);
    const number = this.#asked++;
    this.#worker.postMessage({ number, task, values }, moved.map((array) => array.buffer));
    return new Promise((resolve, reject) => this.#waiting.set(number, { resolve, reject }));
  }
}
