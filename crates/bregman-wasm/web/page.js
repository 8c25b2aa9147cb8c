// The page: what a person can do with it, and what then happens.

import { compare } from "./compare.js";
import { droppable, element } from "./dom.js";
import { answer, identify } from "./identify.js";
import { enrol, showPeople } from "./roster.js";
import { Session } from "./session.js";
import { Take } from "./take.js";

/** The model beside the page. */
const OWN_MODEL = "voices.breg";

const session = await Session.start().catch((error) => {
  const build = "crates/bregman-wasm/build makes bregman.wasm";
  throw state(`The program of this page cannot be loaded: ${error.message} (${build}).`, "problem");
});
const voice = new Take(element("#voice"), () => {
  for (const control of element("#enrol").elements) control.disabled = !voice.sound;
  identify(session, voice);
});
const pair = ["#first", "#second"].map((place) => new Take(element(place), () => compare(session, pair)));

async function showEverything() {
  await showPeople(session, showEverything);
  await identify(session, voice);
  compare(session, pair);
}

// What the foot of the page says of the model.
function state(sentence, className = "") {
  element("#model-state").textContent = sentence;
  element("#model-state").className = className;
  return new Error(sentence);
}

async function openModel(name, read) {
  try {
    const bytes = await read();
    await session.open(bytes);
    const size = bytes.byteLength < 1e6 ? [1e3, 0, "kB"] : [1e6, 1, "MB"];
    const text = `${(bytes.byteLength / size[0]).toFixed(size[1])} ${size[2]}`;
    state(`Model: ${name}, ${text}, embeddings of ${session.model.size} values`);
    element("main").inert = false;
    await showEverything();
  } catch (error) {
    state(`${name}: ${error.message}.`, "problem");
  }
}

async function readOwnModel() {
  const response = await fetch(new URL(OWN_MODEL, import.meta.url));
  if (!response.ok) throw new Error("it is not beside this page; choose a model file (bregman export RUN -o FILE)");
  return response.arrayBuffer();
}

const chooseModel = (file) => file && openModel(file.name, () => file.arrayBuffer());

element("#model").addEventListener("change", ({ target }) => {
  chooseModel(target.files[0]);
  target.value = "";
});
element("#enrol").addEventListener("submit", async (event) => {
  event.preventDefault();
  const name = element("#name").value.trim().replace(/\s+/g, " ").normalize();
  if (!name || !voice.sound) return;
  try {
    const sentence = await enrol(session, voice, name);
    if (!sentence) return;
    event.target.reset();
    voice.clear();
    await showEverything();
    answer(sentence);
  } catch (error) {
    voice.problem(error.message);
  }
});
for (const take of pair) droppable(take.element, (file) => take.open(file));
// Dropped anywhere else, a file is a model or the voice to name.
droppable(document.documentElement, (file) =>
  file?.name.endsWith(".breg") || !session.model ? chooseModel(file) : voice.open(file),
);
await openModel(OWN_MODEL, readOwnModel);
