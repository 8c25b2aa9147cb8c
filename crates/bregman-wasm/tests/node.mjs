// Runs the loader of the folder given as argument on the files in the current folder and prints the results.
import { readFileSync } from "node:fs";
const { load } = await import(process.argv[2] + "/bregman.js");
const bregman = await load(readFileSync(process.argv[2] + "/bregman.wasm"));
const model = bregman.open(readFileSync("model.breg"));
const samples = (name) => {
  const wav = readFileSync(name);
  return Float32Array.from({ length: (wav.length - 44) / 2 }, (_, i) => wav.readInt16LE(44 + 2 * i) / 32768);
};
const [first, second] = [model.embed(samples("first.wav")), model.embed(samples("second.wav"))];
const caught = (work) => {
  try {
    work();
  } catch (error) {
    return error.message;
  }
};
const errors = [
  caught(() => bregman.open(new Uint8Array([1, 2, 3]))),
  caught(() => model.embed(new Float32Array(10))),
  caught(() => model.embed(new Float32Array(9000).fill(NaN))),
  caught(() => bregman.score(first, second.slice(1))),
];
const [score, self] = [bregman.score(first, second), bregman.score(first, first)];
const { size, rate, shortest, threshold } = model;
model.close();
errors.push(caught(() => model.embed(samples("first.wav"))));
console.log(JSON.stringify({ size, rate, shortest, threshold, score, self, errors, version: bregman.version }));
