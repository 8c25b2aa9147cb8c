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
const choose = async (selector, name) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([await (await fetch(name)).arrayBuffer()], name));
  const input = element(selector);
  input.files = transfer.files;
  input.dispatchEvent(new Event("change"));
};
const record = async (seconds) => {
  const button = element("#voice .record");
  button.click();
  const refused = () => element("#voice .problem").textContent;
  await until("recording or refusal", () => button.textContent === "Stop" || refused());
  if (refused()) return;
  await pause(1000 * seconds);
  button.click();
  await until("end of the recording", () => button.textContent === "Record" && (refused() || enrollable()));
};
const enrollable = () => !element("#enrol button").disabled;
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
  // A file that is no audio, then the right ones.
  async files(report) {
    await choose("#first input", "model.breg");
    await until("refusal", () => element("#first .problem").textContent);
    report.refusal = element("#first .problem").textContent;
    await choose("#model", "model.breg");
    await until("the other model", () => element("#model-state").textContent.includes("model.breg"));
    await choose("#first input", "first.wav");
    await choose("#second input", "second.wav");
    const result = element("#result");
    await until("decision", () => result.dataset.decision);
    Object.assign(report, result.dataset, { text: result.innerText });
  },

  async enrol(report, name) {
    report.before = people();
    await record(4.5);
    report.seconds = parseFloat(element("#voice .note").textContent);
    element("#name").value = name;
    element("#enrol button").click();
    await until("enrolment", () => element("#answer").textContent.startsWith(name));
    report.people = people();
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
try {
  await until("start", () => !element("main").inert && element("#kept").textContent);
  const [[act, argument]] = new URLSearchParams(location.search);
  await acts[act](report, argument);
} catch (error) {
  report.failure = error.message;
}
await fetch("result", { method: "POST", body: JSON.stringify(report) });
