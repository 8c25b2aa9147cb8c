// The parts of the page that need no browser. Any failure ends with a message and status 1.
import assert from "node:assert/strict";
const part = (name) => import(`${process.argv[2]}/${name}`);
const { RATE, level, mono, outline, spoken } = await part("sound.js");
const { People, fingerprint, mean } = await part("store.js");

const tone = (seconds, loudness) =>
  Float32Array.from({ length: seconds * RATE }, (_, i) => loudness * Math.sin(0.2 * i + Math.sin(0.013 * i)));
const joined = (...parts) => Float32Array.from(parts.flatMap((part) => [...part]));

// A sine of full scale has 3 dB less than full scale.
assert.ok(Math.abs(level(tone(1, 1)) + 3) < 0.05);
// Quiet before and after speech is cut off, up to a fifth of a second; a pause in the middle stays.
const speech = joined(tone(1, 1e-4), tone(0.5, 0.2), tone(1, 1e-4), tone(0.5, 0.1), tone(2, 1e-4));
const [from, to] = spoken(speech);
assert.ok(Math.abs(from / RATE - 0.8) < 0.03 && Math.abs(to / RATE - 3.2) < 0.03, `${from / RATE} to ${to / RATE}`);
// Sound without pauses is used whole, silence not at all, nor an empty recording.
assert.deepEqual(spoken(tone(2, 0.1)), [0, 2 * RATE]);
for (const silent of [tone(2, 1e-4), new Float32Array(RATE), new Float32Array(0)]) assert.equal(spoken(silent), null);

// Channels are mixed; the outline of a waveform has its peaks in their places, also where it is short.
assert.deepEqual([...mono([new Float32Array([1, 0]), new Float32Array([0.5, -1])])], [0.75, -0.5]);
assert.deepEqual([...outline(new Float32Array([0.25, -1, 0, 0.5, 0, 0]), 3)], [1, 0.5, 0]);
assert.equal(outline(new Float32Array(5)).length, 5);

// Every recording counts the same in the mean, whatever the length of its embedding.
assert.deepEqual([...mean([new Float32Array([3, 0]), new Float32Array([0, 0.5])])], [0.5, 0.5]);
// Models that differ in a bit have different fingerprints.
const files = [[1, 2], [1, 2], [1, 3]].map((bytes) => Uint8Array.from(bytes));
const [one, again, two] = await Promise.all(files.map(fingerprint));
assert.ok(one === again && one !== two && one.length === 64);

// Without a place to keep them, people are there until the page closes, and it says so.
const people = await People.open(one);
assert.equal(people.kept, false);
assert.equal(await people.add("__proto__", new Float32Array([1, 0]), 2), 1);
assert.equal(await people.add("Ana", new Float32Array([1, 0]), 2), 1);
assert.equal(await people.add("Ana", new Float32Array([0, 1]), 3), 2);
const [ana, other] = (await people.all()).sort((a, b) => b.recordings - a.recordings);
assert.deepEqual([ana.name, ana.recordings, ana.seconds, [...ana.embedding]], ["Ana", 2, 5, [0.5, 0.5]]);
assert.equal(other.name, "__proto__");
await people.forget("Ana");
assert.deepEqual((await people.all()).map(({ name }) => name), ["__proto__"]);
await people.forgetEveryone();
assert.equal((await people.all()).length, 0);
