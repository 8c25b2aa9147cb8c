// Formatting of numbers.
const MISSING = "–";
const given = (value) => value !== null && value !== undefined && !Number.isNaN(value);

const format = {
  // 3 or 4 significant digits, with a power of ten if needed.
  number(value) {
    if (!given(value)) return MISSING;
    const size = Math.abs(value);
    if (value === 0) return "0";
    if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
    return size >= 1000 ? format.count(Math.round(value)) : String(Number(value.toPrecision(4)));
  },
  // 12 345
  count: (value) => (given(value) ? String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u2009") : MISSING),
  // A fraction in per cent, with enough digits to distinguish 99.9 from 99.99.
  percent: (value) => (given(value) ? `${(100 * value).toFixed(value < 1 && value > 0.999 ? 3 : 2)} %` : MISSING),
  points: (value) =>
    given(value) ? `${value > 0 ? "+" : value < 0 ? "−" : ""}${Math.abs(100 * value).toFixed(3)}` : MISSING,
  seconds(value) {
    if (!given(value)) return MISSING;
    if (value < 90) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
    const minutes = Math.round(value / 60);
    return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")}`;
  },
  // 14.7 M
  size(value) {
    if (!given(value)) return MISSING;
    const [unit, name] = value >= 1e6 ? [1e6, " M"] : value >= 1e4 ? [1e3, " k"] : [1, ""];
    return unit === 1 ? format.count(value) : `${(value / unit).toPrecision(3)}${name}`;
  },
};

// Labels of ticks: short.
const label = {
  number: (value) =>
    value !== 0 && (Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5)
      ? value.toExponential(0).replace("e+", "e")
      : String(Number(value.toPrecision(6))),
  percent: (value) => `${Number((100 * value).toPrecision(6))}`,
  count: (value) =>
    value >= 1e6 ? `${value / 1e6} M` : value >= 1e4 ? `${value / 1e3} k` : String(Number(value.toPrecision(6))),
};

const median = (values) => {
  const sorted = values.filter(given).sort((a, b) => a - b);
  return sorted.length ? sorted[sorted.length >> 1] : null;
};
