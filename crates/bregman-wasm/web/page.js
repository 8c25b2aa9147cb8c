// The page: what a person can do with it, and what then happens.

import { compare } from "./compare.js";
import { droppable, element } from "./dom.js";
import { answer, identify } from "./identify.js";
import { enrol, showPeople } from "./roster.js";
import { Session } from "./session.js";
import { Take } from "./take.js";

/** The model beside the page. */
const OWN_MODEL = "voices.breg";

// The address that Python's http.server prints, to which browsers give no microphone.
if (location.hostname === "0.0.0.0") location.hostname = "localhost";

addEventListener("unhandledrejection", ({ reason }) => problem(`Something went wrong: ${reason.message}.`));

const session = await Session.start().catch((error) => {
  throw problem(`This page cannot start: ${error.message}.`);
});
problem("");
element("footer").inert = false;
const voice = new Take(session, element("#voice"), () => {
  element("#name").disabled = !voice.sound;
  identify(session, voice);
});
const pair = ["#first", "#second"].map((place) => new Take(session, element(place), () => compare(session, pair)));

async function showEverything() {
  await showPeople(session, showEverything);
  identify(session, voice);
  compare(session, pair);
}

// Says at the top what is wrong with the page as a whole.
function problem(sentence) {
  element("#problem").textContent = sentence;
  element("#problem").classList.remove("late");
  return new Error(sentence);
}

// The model that is open, in words.
let opened = "";

async function openModel(name, read) {
  const state = element("#model-state");
  state.textContent = `Opening ${name} …`;
  problem("");
  try {
    const bytes = await read();
    await session.open(bytes);
    const size = bytes.byteLength < 1e6 ? [1e3, 0, "kB"] : [1e6, 1, "MB"];
    const text = `${(bytes.byteLength / size[0]).toFixed(size[1])} ${size[2]}`;
    opened = `Model: ${name}, ${text}, embeddings of ${session.model.size} values`;
    element("main").inert = false;
    await showEverything();
  } catch (error) {
    problem(`${name}: ${error.message}.`);
  }
  state.textContent = opened;
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
    voice.focus();
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
