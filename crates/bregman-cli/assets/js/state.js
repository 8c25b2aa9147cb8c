// The reader's selections, kept across reloads.
const kept = (() => {
  try {
    return JSON.parse(sessionStorage.getItem("bregman-report")) ?? {};
  } catch {
    return {};
  }
})();

const state = {
  data: null,
  runs: [],
  hidden: new Set(kept.hidden ?? []),
  filter: kept.filter ?? "",
  axis: kept.axis ?? "step",
  smooth: kept.smooth ?? 0,
  layersOf: kept.layersOf ?? null,
  layerScale: kept.layerScale ?? "zeros",
  test: kept.test ?? null,
  lit: null,
};

const COLORS = 7,
  DASHES = [null, "7 3", "2 3"];

function setData(data) {
  state.data = data;
  state.runs = data.runs;
  data.runs.forEach((run, number) => {
    run.color = `var(--c${number % COLORS})`;
    run.dash = DASHES[Math.floor(number / COLORS) % DASHES.length];
    run.words = [
      run.name,
      run.title,
      run.method,
      run.model,
      run.status,
      ...run.settings.map(([key, value]) => `${key}=${value}`),
    ]
      .join(" ")
      .toLowerCase();
    // Steps per epoch, to place steps on the axis of epochs.
    run.perEpoch = run.epochs.epoch.length ? run.epochs.step[0] / run.epochs.epoch[0] : null;
    run.allZero = run.layers.layers.filter((layer) => layer.zero_since !== null);
  });
}

const matches = (run) =>
  state.filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => run.words.includes(word));
const visible = () => state.runs.filter((run) => !state.hidden.has(run.name) && matches(run));

const listeners = [];
const onChange = (listener) => listeners.push(listener);
function changed() {
  const { filter, axis, smooth, layersOf, layerScale, test } = state;
  try {
    sessionStorage.setItem(
      "bregman-report",
      JSON.stringify({ hidden: [...state.hidden], filter, axis, smooth, layersOf, layerScale, test }),
    );
  } catch {
    /* private windows */
  }
  listeners.forEach((listener) => listener());
}

// Highlights one run in all charts.
function light(name) {
  if (state.lit === name) return;
  state.lit = name;
  document.querySelectorAll("[data-run]").forEach((element) => {
    if (element.closest("#legend")) element.classList.toggle("lit", element.dataset.run === name);
    else {
      element.style.opacity = name === null || element.dataset.run === name ? "" : "0.15";
      element.classList.toggle("lit", name !== null && element.dataset.run === name);
    }
  });
}

const theme = {
  current: () => document.documentElement.dataset.theme,
  start() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const saved = () => {
      try {
        return localStorage.getItem("bregman-theme");
      } catch {
        return null;
      }
    };
    const apply = () => {
      document.documentElement.dataset.theme = saved() ?? (dark.matches ? "dark" : "light");
      byId("theme").textContent = theme.current() === "dark" ? "Light" : "Dark";
    };
    dark.addEventListener("change", apply);
    byId("theme").addEventListener("click", () => {
      const next = theme.current() === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("bregman-theme", next);
      } catch {
        /* then only for now */
      }
      apply();
      document.documentElement.dataset.theme = next;
      byId("theme").textContent = next === "dark" ? "Light" : "Dark";
    });
    apply();
  },
};
