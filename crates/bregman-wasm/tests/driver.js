// Acts as a user of the page: chooses a file that is not audio, then the right ones; posts what the page shows after
// each.
const result = document.querySelector("#result");
const until = async (what, done) => {
  for (let i = 0; i < 600; i++) {
    if (done()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`no ${what}: ${document.body.innerText}`);
};
const choose = async (id, name) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([await (await fetch(name)).arrayBuffer()], name));
  const input = document.querySelector(`#${id} input`);
  input.files = transfer.files;
  input.dispatchEvent(new Event("change"));
};
const report = {};
try {
  await until("start", () => !document.querySelector(".files").inert);
  await choose("first", "model.breg");
  await until("refusal", () => result.dataset.error);
  report.refusal = result.dataset.error;
  await choose("model", "model.breg");
  await choose("first", "first.wav");
  await choose("second", "second.wav");
  await until("decision", () => result.dataset.decision);
  Object.assign(report, result.dataset, { text: result.innerText });
} catch (error) {
  report.failure = error.message;
}
await fetch("result", { method: "POST", body: JSON.stringify(report) });
