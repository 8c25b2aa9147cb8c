// One speaker, or two? The score of two recordings.

import { duration, element } from "./dom.js";
import { drawScore } from "./draw.js";

const SENTENCES = {
  same: "The same speaker.",
  another: "Two speakers.",
  unknown: "This model has no threshold. Compare the score with those of recordings you know.",
};

// As in identify.js: only the last answer is shown.
let asked = 0;

/** Shows whether two takes are of one speaker, or nothing while one of them is empty. */
export async function compare(session, takes) {
  const turn = ++asked;
  const [result, decision, picture, details] = ["", " #decision", " canvas", " #details"].map((part) =>
    element(`#result${part}`),
  );
  for (const key of Object.keys(result.dataset)) delete result.dataset[key];
  decision.textContent = details.textContent = "";
  picture.hidden = true;
  if (!session.model || takes.some((take) => !take.sound)) return;
  const found = await Promise.all(takes.map((take) => session.embed(take)));
  if (turn !== asked || found.includes(null)) return;
  const [first, second] = found.map(({ embedding }) => embedding);
  const [score] = await session.scores(first, [second]);
  if (turn !== asked) return;
  const { threshold } = session.model;
  const time = found[0].time + found[1].time;
  const seconds = takes[0].seconds + takes[1].seconds;
  const decided = session.decide(score);
  decision.className = decided;
  decision.textContent = SENTENCES[decided];
  picture.hidden = false;
  drawScore(picture, score, threshold, score);
  const accepted = Number.isNaN(threshold) ? "" : `, accepted above ${threshold.toFixed(3)}`;
  const realTime = ((1000 * seconds) / time).toFixed(0);
  details.textContent =
    `Score ${score.toFixed(3)}${accepted}. ` +
    `${time.toFixed(0)} ms for ${duration(seconds)} of sound: ${realTime} × real time.`;
  Object.assign(result.dataset, { score, threshold, time, decision: decided });
}
