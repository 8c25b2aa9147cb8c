// The people who are enrolled: listed, added to, forgotten.

import { confirmed, element, make } from "./dom.js";

const plural = (count, one, many) => `${count} ${count === 1 ? one : many}`;

/** Adds the recording of a take to the person of that name; what to say then. */
export async function enrol(session, take, name) {
  const found = await session.embed(take);
  if (!found) return "";
  const count = await session.people.add(name, found.embedding, take.seconds);
  return count === 1
    ? `${name} is enrolled. Two or three recordings are better than one.`
    : `${name} now has ${count} recordings.`;
}

/** Lists everybody; `changed` is called when somebody was forgotten. */
export async function showPeople({ people }, changed) {
  const forget = async (question, work) => {
    if (!(await confirmed(question))) return;
    await work();
    await changed();
    element("#enrolled").focus(); // the button that had it is gone
  };
  const [everyone, others] = [await people.all(), await people.others()];
  const rows = everyone.map((person) => {
    const row = make("li", "");
    const button = make("button", "", "Forget");
    button.ariaLabel = `Forget ${person.name}`;
    button.onclick = () => forget(`Forget the voice of ${person.name}?`, () => people.forget(person.name));
    const recordings = `${plural(person.recordings, "recording", "recordings")}, ${person.seconds.toFixed(0)} s`;
    row.append(make("span", "name", person.name), make("span", "fine", recordings), button);
    return row;
  });
  element("#people").replaceChildren(...rows);
  element("#names").replaceChildren(...everyone.map(({ name }) => new Option(name, name)));
  const all = element("#forget-everyone");
  all.hidden = everyone.length + others === 0;
  all.onclick = () => forget("Forget every voice in this browser?", () => people.forgetEveryone());
  const notes = [
    everyone.length === 0 ? "Nobody yet. Record somebody, then give the voice a name." : "",
    others > 0 ? `${plural(others, "person is", "people are")} enrolled with another model.` : "",
    people.kept
      ? "Kept in this browser: numbers that describe the voices, no sound."
      : "This browser keeps nothing for this page: people are forgotten when it closes.",
  ];
  element("#kept").textContent = notes.filter(Boolean).join(" ");
}
