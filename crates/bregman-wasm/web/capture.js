// Runs in the audio thread: hands the microphone's samples to the page, a few hundredths of a second at a time.

const BLOCK = 1024;

class Capture extends AudioWorkletProcessor {
  #block = new Float32Array(BLOCK);
  #filled = 0;

  process([[samples]]) {
    for (const value of samples ?? []) {
      this.#block[this.#filled++] = value;
      if (this.#filled < BLOCK) continue;
      this.port.postMessage(this.#block, [this.#block.buffer]);
      this.#block = new Float32Array(BLOCK);
      this.#filled = 0;
    }
    return true;
  }
}

registerProcessor("capture", Capture);
