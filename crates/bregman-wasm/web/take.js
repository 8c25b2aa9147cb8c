// A place for one recording: from the microphone, or from a file that is dropped or chosen. Shows its waveform, plays
// it, and says in a sentence what went wrong.

import { drawLevels, drawNothing, drawWave } from "./draw.js";
import { LONGEST, record } from "./recorder.js";
import { RATE, SILENCE, decode, level, resample, spoken } from "./sound.js";

const SILENT = "Nothing was heard. Is the microphone muted, or is it the wrong one?";
/** Seconds of silence after which a recording asks whether the microphone works. */
const PATIENCE = 2;
/** Seconds of speech below which answers are poor. */
const ENOUGH = 4;

// The one that is recording: there is one microphone.
let recording = null;

export class Take {
  #changed;
  #running = null;
  #player = null;

  /** Fills `element`; `changed` is called whenever there is another recording, or none any more. */
  constructor(element, changed) {
    element.append(document.querySelector("#take").content.cloneNode(true));
    this.element = element;
    this.#changed = changed;
    /** The samples of the recording, if there is one. */
    this.sound = null;
    this.#part(".record").addEventListener("click", () => (this.#running ? this.#stop() : this.#start()));
    this.#part(".play").addEventListener("click", () => this.#play());
    this.#part("input").addEventListener("change", ({ target }) => {
      this.open(target.files[0]);
      target.value = ""; // the same file may be chosen again
    });
    this.#reset();
  }

  #part(selector) {
    return this.element.querySelector(selector);
  }

  get seconds() {
    return (this.sound?.length ?? 0) / RATE;
  }

  /** Forgets the recording. */
  clear() {
    this.#reset();
    this.#changed();
  }

  #reset() {
    this.#quiet();
    this.sound = null;
    drawNothing(this.#part("canvas"));
    this.#part("canvas").ariaLabel = "No recording";
    this.#part(".hint").hidden = false;
    this.#part(".play").disabled = true;
    this.#say("");
    this.problem("");
  }

  /** Shows what went wrong, in a sentence; an empty one goes away. */
  problem(sentence) {
    this.#part(".problem").textContent = sentence;
  }

  /** Takes an audio file. */
  async open(file) {
    if (!file) return;
    await this.#stop({ discard: true });
    this.clear();
    try {
      if (!this.#show(await decode(await file.arrayBuffer()), file.name)) throw new Error("it is silent");
    } catch (error) {
      this.problem(`${file.name}: ${error.message}.`);
    }
  }

  async #start() {
    await recording?.#stop();
    this.clear();
    const levels = [];
    const button = this.#part(".record");
    button.disabled = true;
    this.#say("Waiting for the microphone …");
    try {
      this.#running = await record({
        heard: (samples, seconds) => {
          levels.push(level(samples));
          drawLevels(this.#part("canvas"), levels);
          this.#meter(levels.at(-1));
          const deaf = seconds > PATIENCE && Math.max(...levels) <= SILENCE;
          this.#say(deaf ? "Nothing is heard so far." : `${seconds.toFixed(1)} s, at most ${LONGEST}`);
        },
        ended: (reason) => this.#stop({ reason }),
      });
      recording = this;
      button.textContent = "Stop";
      this.element.classList.add("recording");
      this.#part(".hint").hidden = true;
      this.#say("Speak now.");
    } catch (error) {
      this.#say("");
      this.problem(error.message);
    }
    button.disabled = false;
  }

  async #stop({ discard = false, reason = "" } = {}) {
    if (!this.#running) return;
    const running = this.#running;
    this.#running = recording = null;
    const { samples, rate } = await running.stop();
    this.#part(".record").textContent = "Record";
    this.element.classList.remove("recording");
    this.#meter(-Infinity);
    this.clear();
    if (discard) return;
    const heardSpeech = this.#show(await resample(samples, rate), "the microphone");
    this.problem(heardSpeech ? reason : `${reason} ${SILENT}`.trim());
  }

  // Takes what is spoken in a recording; false if nothing is.
  #show(samples, name) {
    const part = spoken(samples);
    if (!part) return false;
    this.sound = samples.slice(...part);
    drawWave(this.#part("canvas"), samples, part);
    const seconds = this.seconds.toFixed(1);
    this.#part("canvas").ariaLabel = `Waveform of ${seconds} seconds from ${name}`;
    this.#part(".hint").hidden = true;
    this.#part(".play").disabled = false;
    this.#say(`${seconds} s from ${name}${this.seconds < ENOUGH ? "; six would be better" : ""}`);
    this.#changed();
    return true;
  }

  #play() {
    const playing = this.#player;
    this.#quiet();
    if (playing) return;
    const context = new AudioContext();
    const buffer = new AudioBuffer({ length: this.sound.length, sampleRate: RATE });
    buffer.copyToChannel(this.sound, 0);
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(context.destination);
    source.addEventListener("ended", () => this.#player === context && this.#quiet());
    source.start();
    this.#player = context;
    this.#part(".play").textContent = "Stop";
  }

  // Stops playing.
  #quiet() {
    this.#player?.close();
    this.#player = null;
    this.#part(".play").textContent = "Play";
  }

  #meter(decibels) {
    const meter = this.#part(".level");
    const shown = Math.round(Math.min(0, Math.max(-60, decibels)));
    meter.ariaValueNow = shown;
    meter.style.setProperty("--share", 1 + shown / 60);
  }

  #say(note) {
    this.#part(".note").textContent = note;
  }
}
