// Whose voice is it? The scores of a recording against everybody who is enrolled.

import { element, make } from "./dom.js";
import { drawScore } from "./draw.js";

// Recordings may come faster than answers: only the last one's answer is shown.
let asked = 0;

/** Shows who speaks in a take, or nothing where it is empty. */
export async function identify(session, take) {
  const turn = ++asked;
  const found = session.model && take.sound && session.embed(take);
  const everyone = found ? await session.people.all() : [];
  if (turn !== asked) return;
  const scores = everyone
    .map(({ name, embedding }) => ({ name, score: session.score(embedding, found.embedding) }))
    .sort((a, b) => b.score - a.score);
  showScores(scores, session.model?.threshold);
  const [best, next] = scores;
  const doubt = next && session.decide(next.score) === "same" ? `, though ${next.name} is possible too` : "";
  const decision = best ? session.decide(best.score) : "";
  const sentences = {
    same: `This sounds like ${best?.name}${doubt}.`,
    another: scores.length === 1 ? `This is not ${best?.name}.` : `None of the ${scores.length} people enrolled.`,
    unknown: `Most like ${best?.name}. This model has no threshold to say whether it is the same voice.`,
    "": found ? "Nobody is enrolled yet. Give this voice a name." : "",
  };
  answer(sentences[decision], decision);
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
