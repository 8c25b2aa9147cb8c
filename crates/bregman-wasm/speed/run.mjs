#!/usr/bin/env node
// crates/bregman-wasm/speed/run.mjs MODEL.breg…: milliseconds per 3 s of sound in Node and, where it is installed, in
// Chromium (CHROMIUM=PATH for another one). Build the module first: crates/bregman-wasm/build
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { load } from "../web/bregman.js";
import { measure } from "./measure.js";

const here = (name) => readFileSync(new URL(name, import.meta.url));
const models = process.argv.slice(2).map((path) => [basename(path), readFileSync(path)]);
if (models.length === 0) {
  console.error("usage: crates/bregman-wasm/speed/run.mjs MODEL.breg…");
  process.exit(2);
}

const bregman = await load(here("../web/bregman.wasm"));
const inNode = [];
for (const [, bytes] of models) inNode.push(await measure(bregman, bytes));
print(`Node ${process.version}`, inNode);
const browser = await inChromium();
if (browser) print(browser.agent.match(/Chrom\S+/)[0], browser.results);
else console.log("Chromium: not found (set CHROMIUM to its path)");

function print(engine, results) {
  results.forEach(({ least, median }, i) =>
    console.log(`${engine}\t${models[i][0]}\tleast ${least.toFixed(1)} ms\tmedian ${median.toFixed(1)} ms`),
  );
}

// The same in a page of a browser that is started for it; null without a browser.
async function inChromium() {
  const script = `
    import { load } from "./bregman.js";
    import { measure } from "./measure.js";
    const bregman = await load();
    const results = [];
    for (let i = 0; i < ${models.length}; i++) {
      results.push(await measure(bregman, await (await fetch("model" + i)).arrayBuffer()));
    }
    fetch("result", { method: "POST", body: JSON.stringify({ agent: navigator.userAgent, results }) });`;
  const files = new Map([
    ["/", ["text/html", `<!doctype html><script type="module" src="script.js"></script>`]],
    ["/script.js", ["text/javascript", script]],
    ["/bregman.js", ["text/javascript", here("../web/bregman.js")]],
    ["/measure.js", ["text/javascript", here("measure.js")]],
    ["/bregman.wasm", ["application/wasm", here("../web/bregman.wasm")]],
    ...models.map(([, bytes], i) => [`/model${i}`, ["application/octet-stream", bytes]]),
  ]);
  const profile = mkdtempSync(join(tmpdir(), "bregman-speed-"));
  let child;
  let server;
  const result = await new Promise((resolve) => {
    server = createServer(async (request, response) => {
      const [kind, body] = files.get(request.url) ?? ["text/plain", ""];
      // an isolated page has a clock of 5 µs
      const isolation = { "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp" };
      response.writeHead(200, { "Content-Type": kind, ...isolation }).end(body);
      if (request.method === "POST") resolve(JSON.parse(Buffer.concat(await request.toArray())));
    }).listen(0, "127.0.0.1", () => {
      const flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-component-update"];
      flags.push("--disable-background-networking", "--disable-sync", `--user-data-dir=${profile}`);
      child = spawn(process.env.CHROMIUM ?? "chromium", [...flags, `http://127.0.0.1:${server.address().port}/`], {
        stdio: "ignore",
      });
      child.on("error", () => resolve(null));
    });
  });
  server.close();
  if (result) {
    const gone = new Promise((resolve) => child.on("exit", resolve));
    child.kill();
    await gone;
  }
  server.closeAllConnections();
  rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  return result;
}
