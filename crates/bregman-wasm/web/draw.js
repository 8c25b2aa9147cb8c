// Pictures on canvases: a waveform, and a score beside the threshold. Colours are those of the style sheet.

import { loudest } from "./sound.js";

const pictures = new WeakMap();
const sizes = new ResizeObserver((changes) => changes.forEach(({ target }) => redraw(target)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.querySelectorAll("canvas").forEach(redraw),
);

// Draws now, and again whenever the size or the colours change.
function keepDrawn(canvas, picture) {
  pictures.set(canvas, picture);
  sizes.observe(canvas);
  redraw(canvas);
}

function redraw(canvas) {
  const picture = pictures.get(canvas);
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!picture || width === 0) return;
  const sharpness = devicePixelRatio || 1;
  canvas.width = Math.round(width * sharpness);
  canvas.height = Math.round(height * sharpness);
  const pen = canvas.getContext("2d");
  pen.scale(sharpness, sharpness);
  const style = getComputedStyle(canvas);
  picture({ pen, width, height, colour: (name) => style.getPropertyValue(`--${name}`) });
}

/** Draws the outline of a waveform; what is outside of `[from, to]`, shares of its length, is faint: it is not used. */
export function drawWave(canvas, waves, [from, to]) {
  keepDrawn(canvas, ({ pen, width, height, colour }) => {
    const highest = Math.max(loudest(waves), 0.02);
    const place = (x) => Math.floor((x / width) * waves.length);
    for (let x = 0; x < width; x++) {
      const high = loudest(waves, place(x), Math.max(place(x) + 1, place(x + 1)));
      const size = Math.max(1, ((height - 4) * high) / highest);
      pen.fillStyle = colour(x >= from * width && x < to * width ? "accent" : "faint");
      pen.fillRect(x, (height - size) / 2, 0.8, size);
    }
  });
}

/** Draws levels in decibels that are still arriving, the last one at the right end. */
export function drawLevels(canvas, levels) {
  keepDrawn(canvas, ({ pen, width, height, colour }) => {
    const shown = levels.slice(-Math.floor(width / 3));
    pen.fillStyle = colour("record");
    shown.forEach((decibels, i) => {
      const size = Math.max(1, (height - 4) * Math.min(1, Math.max(0, 1 + decibels / 60)));
      pen.fillRect(width - 3 * (shown.length - i), (height - size) / 2, 2, size);
    });
  });
}

/** Empties a canvas. */
export function drawNothing(canvas) {
  keepDrawn(canvas, () => {});
}

/** Draws a score from -1 to 1 as a bar from 0 and the threshold, if there is one, as a line across it. */
export function drawScore(canvas, score, threshold, lowest = 0) {
  keepDrawn(canvas, ({ pen, width, height, colour }) => {
    const low = Math.min(0, lowest) - 0.02;
    const place = (value) => ((value - low) / (1.02 - low)) * width;
    const bar = { top: height * 0.2, size: height * 0.6 };
    pen.fillStyle = colour("faint");
    pen.fillRect(0, bar.top, width, bar.size);
    const known = !Number.isNaN(threshold);
    pen.fillStyle = colour(!known ? "accent" : score > threshold ? "yes" : "no");
    const [left, right] = [place(Math.min(score, 0)), place(Math.max(score, 0))];
    pen.fillRect(left, bar.top, Math.max(right - left, 2), bar.size);
    pen.fillStyle = colour("text");
    if (known) pen.fillRect(Math.round(place(threshold)) - 1, 0, 2, height);
  });
}
