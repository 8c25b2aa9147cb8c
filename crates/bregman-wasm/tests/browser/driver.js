// Acts as a user of the page, as its address says after the question mark, and posts what the page shows.
const element = (selector) => document.querySelector(selector);
const until = async (what, done) => {
  for (let i = 0; i < 600; i++) {
    if (done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`no ${what}: ${document.body.innerText}`);
};
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
const choose = async (selector, name, called = name) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([await (await fetch(name)).arrayBuffer()], called));
  const input = element(selector);
  input.files = transfer.files;
  input.dispatchEvent(new Event("change"));
};
const record = async (seconds) => {
  const button = element("#voice .record");
  button.focus();
  button.click();
  const refused = () => element("#voice .problem").textContent;
  await until("recording or refusal", () => button.textContent === "Stop" || refused());
  if (refused()) return;
  await pause(1000 * seconds);
  button.click();
  await until("end of the recording", () => button.textContent === "Record" && (refused() || enrollable()));
};
const focused = () => document.activeElement.textContent.slice(0, 20);
const enrollable = () => !element("#enrol button").disabled;
// Until something is done: the share of the time in which the page did not answer, and the progress it showed.
const watched = async (done) => {
  const start = performance.now();
  const shares = new Set();
  let stuck = 0;
  for (let last = start; !done(); last = performance.now()) {
    await pause(5);
    stuck += Math.max(0, performance.now() - last - 25);
    shares.add(element("#voice progress").value);
  }
  return { stuck: stuck / (performance.now() - start), shares: [...shares] };
};
// Names and numbers of recordings, as they are listed.
const people = () =>
  [...document.querySelectorAll("#people li")].map((row) => [
    row.querySelector(".name").textContent,
    parseInt(row.querySelector(".fine").textContent, 10),
  ]);
const forget = async (button, answer) => {
  const before = people().length;
  button.click();
  await until("question", () => element("#confirm").open);
  element(`#confirm [value=${answer}]`).click();
  await until("answer", () => !element("#confirm").open && (answer === "no" || people().length < before));
  return people();
};

const acts = {
  // Files that are no audio and no model, then the right ones.
  async files(report) {
    await choose("#first input", "model.breg");
    await until("refusal", () => element("#first .problem").textContent);
    await choose("#model", "first.wav", "sound.breg");
    await until("refusal", () => element("#problem").textContent);
    report.refusals = ["#first .problem", "#problem", "#model-state"].map((place) => element(place).textContent);
    await choose("#model", "model.breg");
    await until("the other model", () => element("#model-state").textContent.includes("model.breg,"));
    report.refusals.push(element("#problem").textContent);
    await choose("#first input", "first.wav");
    await choose("#second input", "second.wav");
    const result = element("#result");
    await until("decision", () => result.dataset.decision);
    Object.assign(report, result.dataset, { text: result.innerText });
  },

  // Two short files are compared while a long one is embedded; one of them takes the place of a long one.
  async long(report) {
    await choose("#first input", "long.wav");
    await choose("#first input", "first.wav");
    await choose("#voice input", "long.wav");
    await until("waveform", () => !element("#voice .play").disabled);
    const embedded = watched(enrollable);
    await choose("#second input", "second.wav");
    await until("decision", () => element("#result").dataset.decision);
    report["decided meanwhile"] = !enrollable();
    Object.assign(report, await embedded);
    report.notes = ["#voice", "#first"].map((place) => element(`${place} .note`).textContent);
    report.unfinished = document.querySelectorAll(".working:not([hidden])").length;
  },

  async stops(report) {
    await choose("#voice input", "first.wav");
    await until("problem", () => element("#voice .problem").textContent);
    report.problem = element("#voice .problem").textContent;
  },

  async enrol(report, name) {
    report.before = people();
    await record(4.5);
    report.focus = [focused()];
    report.seconds = parseFloat(element("#voice .note").textContent);
    element("#name").value = name;
    element("#enrol button").click();
    await until("enrolment", () => element("#answer").textContent.startsWith(name));
    report.people = people();
    report.focus.push(focused());
    report.images = document.querySelectorAll("img").length;
  },

  // The page is reloaded twice on the way: in the middle, and after everybody is forgotten.
  async identify(report) {
    if (report["kept after all"]) {
      report["forgotten for good"] = people();
      return;
    }
    if (report.scores) {
      report.reloaded = people();
      await choose("#model", "other.breg");
      await until("the other model", () => element("#model-state").textContent.includes("other.breg"));
      await until("nobody", () => people().length === 0);
      report["with another model"] = people();
      report.note = element("#kept").textContent;
      await choose("#model", "voices.breg");
      await until("everybody", () => people().length === 2);
      report["without Ben"] = await forget(element('[aria-label="Forget Ben"]'), "yes");
      report.focus = focused();
      report["kept after all"] = await forget(element("#forget-everyone"), "no");
      report.forgotten = await forget(element("#forget-everyone"), "yes");
    } else {
      await record(4.5);
      await until("answer", () => document.querySelectorAll("#scores li").length === 2);
      const row = (row) => [row.querySelector(".name").textContent, +row.querySelector(".value").textContent];
      report.scores = [...document.querySelectorAll("#scores li")].map(row);
      report.answer = element("#answer").textContent;
    }
    sessionStorage.report = JSON.stringify(report);
    location.reload();
    await new Promise(() => {});
  },

  async listen(report) {
    await record(3);
    report.problem = element("#voice .problem").textContent;
    report.enrollable = enrollable();
  },
};

const report = JSON.parse(sessionStorage.report ?? "{}");
const [[act, argument]] = new URLSearchParams(location.search);
const started = () => !element("main").inert && element("#kept").textContent;
try {
  const failed = () => (report.problem = element("#problem:not(.late)")?.textContent);
  await (act === "fail" ? until("failure", failed) : until("start", started));
  await acts[act]?.(report, argument);
} catch (error) {
  report.failure = error.message;
}
await fetch("result", { method: "POST", body: JSON.stringify(report) });
