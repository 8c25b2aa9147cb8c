// A place for one recording: from the microphone, or from a file that is dropped or chosen. Shows its waveform, plays
// it, and says in a sentence what went wrong.

import { duration } from "./dom.js";
import { drawLevels, drawNothing, drawWave } from "./draw.js";
import { LONGEST, record } from "./recorder.js";
import { RATE, SILENCE, decode, level, resample } from "./sound.js";

const SILENT = "Nothing was heard. Is the microphone muted, or is it the wrong one?";
/** Seconds of silence after which a recording asks whether the microphone works. */
const PATIENCE = 2;
/** Seconds of speech below which answers are poor. */
const ENOUGH = 4;

// The one that is recording: there is one microphone.
let recording = null;

export class Take {
  #session;
  #changed;
  #turn = null;
  #starting = false;
  #running = null;
  #player = null;

  /** Fills `element`; `changed` is called whenever there is another recording, or none any more. */
  constructor(session, element, changed) {
    element.append(document.querySelector("#take").content.cloneNode(true));
    this.element = element;
    this.#session = session;
    this.#changed = changed;
    /** The samples of what is spoken in the recording, if there is one. */
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
    this.#turn = {}; // what is still being read belongs to another turn
    this.sound = null;
    drawNothing(this.#part("canvas"));
    this.#part("canvas").ariaLabel = "No recording";
    this.#part(".hint").hidden = false;
    this.#part(".play").disabled = true;
    this.#say("");
    this.problem("");
    this.progress(1);
  }

  /** Shows which share of the recording is computed, until all of it is. */
  progress(share) {
    const working = share < 1;
    this.element.querySelectorAll(".working").forEach((part) => (part.hidden = !working));
    this.#part(".level").hidden = working;
    this.#part("progress").value = share;
  }

  /** Moves the keyboard's focus to the recording of the next voice. */
  focus() {
    this.#part(".record").focus();
  }

  /** Shows what went wrong, in a sentence; an empty one goes away. */
  problem(sentence) {
    this.#part(".problem").textContent = sentence;
  }

  /** Takes an audio file. */
  async open(file) {
    if (!file) return;
    await this.#stop({ discard: true });
    const silent = `${file.name}: it is silent.`;
    await this.#take(file.name, async () => decode(await file.arrayBuffer()), { silent });
  }

  // Takes what is spoken in a recording, once `read` has given its channels: unless another one comes in between.
  async #take(name, read, { silent, heard = "" }) {
    this.clear();
    const turn = this.#turn;
    this.#say(`Reading ${name} …`);
    try {
      const speech = await this.#session.hear(await read());
      if (turn !== this.#turn) return;
      this.#say("");
      this.problem(speech ? heard : silent);
      if (speech) this.#show(speech, name);
    } catch (error) {
      if (turn !== this.#turn) return;
      this.#say("");
      this.problem(`${name}: ${error.message}.`);
    }
  }

  #show({ sound, waves, part }, name) {
    this.sound = sound;
    drawWave(this.#part("canvas"), waves, part);
    const length = duration(this.seconds);
    this.#part("canvas").ariaLabel = `Waveform of ${length} from ${name}`;
    this.#part(".hint").hidden = true;
    this.#part(".play").disabled = false;
    this.#say(`${length} from ${name}${this.seconds < ENOUGH ? "; six seconds would be better" : ""}`);
    this.#changed();
  }

  async #start() {
    if (this.#starting) return; // the button stays enabled: disabled, it would lose the keyboard's focus
    this.#starting = true;
    await recording?.#stop();
    this.clear();
    const levels = [];
    this.#say("Waiting for the microphone …");
    try {
      this.#running = await record({
        heard: (samples, seconds) => {
          levels.push(level(samples));
          drawLevels(this.#part("canvas"), levels);
          this.#meter(levels.at(-1));
          const deaf = seconds > PATIENCE && Math.max(...levels) <= SILENCE;
          this.#say(deaf ? "Nothing is heard so far." : `${seconds.toFixed(1)} s of at most ${LONGEST}`);
        },
        ended: (reason) => this.#stop({ reason }),
      });
      recording = this;
      this.#part(".record").textContent = "Stop";
      this.element.classList.add("recording");
      this.#part(".hint").hidden = true;
      this.#say("Speak now.");
    } catch (error) {
      this.#say("");
      this.problem(error.message);
    }
    this.#starting = false;
  }

  async #stop({ discard = false, reason = "" } = {}) {
    if (!this.#running) return;
    const running = this.#running;
    this.#running = recording = null;
    const { samples, rate } = await running.stop();
    this.#part(".record").textContent = "Record";
    this.element.classList.remove("recording");
    this.#meter(-Infinity);
    if (discard) return;
    const silent = `${reason} ${SILENT}`.trim();
    await this.#take("the microphone", async () => [await resample(samples, rate)], { silent, heard: reason });
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
