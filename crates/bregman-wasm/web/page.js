// The page: three files in, one decision out.

import { load } from "./bregman.js";

const element = (selector) => document.querySelector(selector);
const milliseconds = (from) => performance.now() - from;

/** What sound is decoded to: the rate of every model. */
const RATE = 16000;

let model;
const recordings = {};
const bregman = await load().catch(fail);

async function openModel(file) {
  const opened = bregman.open(await file.arrayBuffer());
  if (opened.rate !== RATE) throw new Error(`it takes sound at ${opened.rate} Hz, this page gives ${RATE}`);
  model?.close();
  model = opened;
  return `${(file.size / 1e6).toFixed(2)} MB, embeddings of ${model.size} values`;
}

// Decodes any format the browser plays to mono.
async function decode(file) {
  const context = new OfflineAudioContext(1, 1, RATE);
  const sound = await context.decodeAudioData(await file.arrayBuffer()).catch(() => {
    throw new Error("this browser cannot decode it as audio");
  });
  const mono = new Float32Array(sound.length);
  for (let channel = 0; channel < sound.numberOfChannels; channel++) {
    sound.getChannelData(channel).forEach((value, i) => (mono[i] += value / sound.numberOfChannels));
  }
  return mono;
}

async function openRecording(which, file) {
  const start = performance.now();
  recordings[which] = await decode(file);
  return `${(recordings[which].length / RATE).toFixed(2)} s, decoded in ${milliseconds(start).toFixed(0)} ms`;
}

function compare() {
  if (!model || !recordings.first || !recordings.second) return;
  const start = performance.now();
  const score = bregman.score(model.embed(recordings.first), model.embed(recordings.second));
  show(score, milliseconds(start));
}

function show(score, time) {
  const { threshold } = model;
  const known = !Number.isNaN(threshold);
  const same = score > threshold;
  element("#decision").className = known ? (same ? "same" : "another") : "";
  element("#decision").textContent = !known ? "No threshold in this model" : same ? "The same speaker" : "Two speakers";
  const scale = element(".scale");
  scale.hidden = false;
  const place = (mark, value) => (element(mark).style.left = `${50 * (value + 1)}%`);
  place(".scale .score", score);
  place(".scale .threshold", known ? threshold : -1);
  const seconds = (recordings.first.length + recordings.second.length) / RATE;
  const parts = [
    `score ${score.toFixed(4)}`,
    known ? `accepted above ${threshold.toFixed(4)}` : "compare scores with those of trials you know",
  ];
  const realTime = ((1000 * seconds) / time).toFixed(0);
  const speed = `${time.toFixed(0)} ms for ${seconds.toFixed(1)} s of audio (${realTime} × real time)`;
  element("#details").innerHTML = `${parts.join(", ")}<br><small>${speed}</small>`;
  Object.assign(element("#result").dataset, {
    score,
    threshold,
    time,
    decision: known ? (same ? "same" : "another") : "unknown",
  });
}

function fail(error) {
  element("#decision").className = "error";
  element("#decision").textContent = error.message;
  element("#details").textContent = "";
  element(".scale").hidden = true;
  element("#result").dataset.error = error.message;
}

function connect(id, open) {
  const label = element(`#${id}`);
  const take = async (file) => {
    if (!file) return;
    delete element("#result").dataset.error;
    try {
      const note = await open(file);
      label.classList.add("ready");
      label.querySelector("span").textContent = `${file.name}: ${note}`;
      compare();
    } catch (error) {
      fail(new Error(`${file.name}: ${error.message}`));
    }
  };
  label.querySelector("input").addEventListener("change", (event) => take(event.target.files[0]));
  label.addEventListener("dragover", (event) => {
    event.preventDefault();
    label.classList.add("over");
  });
  label.addEventListener("dragleave", () => label.classList.remove("over"));
  label.addEventListener("drop", (event) => {
    event.preventDefault();
    label.classList.remove("over");
    take(event.dataTransfer.files[0]);
  });
}

// A file dropped outside of the fields must not replace the page.
for (const type of ["dragover", "drop"]) document.addEventListener(type, (event) => event.preventDefault());

connect("model", openModel);
connect("first", (file) => openRecording("first", file));
connect("second", (file) => openRecording("second", file));
element(".files").inert = !bregman;
