// Whose voice is it? The scores of a recording against everybody who is enrolled.

import { element, make } from "./dom.js";
import { drawScore } from "./draw.js";

// Recordings may come faster than answers: only the last one's answer is shown.
let asked = 0;

/** Shows who speaks in a take, or nothing where it is empty. From then on the voice can be enrolled. */
export async function identify(session, take) {
  const turn = ++asked;
  const enrol = element("#enrol button");
  enrol.disabled = true;
  answer("");
  showScores([]);
  const found = session.model && take.sound && (await session.embed(take));
  if (!found || turn !== asked) return;
  const everyone = await session.people.all();
  const scores = await session.scores(
    found.embedding,
    everyone.map(({ embedding }) => embedding),
  );
  if (turn !== asked) return;
  enrol.disabled = false;
  const ranked = everyone.map(({ name }, i) => ({ name, score: scores[i] })).sort((a, b) => b.score - a.score);
  showScores(ranked, session.model.threshold);
  answer(...sentence(session, ranked));
}

function sentence(session, [best, next, ...others]) {
  if (!best) return ["Nobody is enrolled yet. Give this voice a name."];
  const decision = session.decide(best.score);
  const doubt = next && session.decide(next.score) === "same" ? `, though ${next.name} is possible too` : "";
  const sentences = {
    same: `This sounds like ${best.name}${doubt}.`,
    another: next ? `This is none of the ${others.length + 2} people enrolled.` : `This is not ${best.name}.`,
    unknown: `Most like ${best.name}. This model has no threshold to say whether it is the same voice.`,
  };
  return [sentences[decision], decision];
}

/** Says something in the place of an answer. */
export function answer(sentence, decision = "") {
  element("#answer").textContent = sentence;
  element("#answer").className = decision;
}

function showScores(scores, threshold) {
  const lowest = Math.min(0, ...scores.map(({ score }) => score));
  const rows = scores.map(({ name, score }) => {
    const row = make("li", "");
    const canvas = make("canvas", "score");
    canvas.ariaHidden = "true";
    row.append(make("span", "name", name), canvas, make("span", "value", score.toFixed(2)));
    drawScore(canvas, score, threshold, lowest);
    return row;
  });
  element("#scores").replaceChildren(...rows);
  const known = rows.length > 0 && !Number.isNaN(threshold);
  element("#threshold").textContent = known
    ? `The line is the threshold, ${threshold.toFixed(2)}: a higher score means the same speaker.`
    : "";
}
