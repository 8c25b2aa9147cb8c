// Kinds of axes: each transforms values (`bend`) and places ticks between two values.

// Between `low` and `high`, about `count` ticks at 1, 2 or 5 times a power of ten.
function evenTicks(low, high, count) {
  const raw = (high - low) / Math.max(1, count),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= 0.75 * raw) ?? 10);
  const ticks = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + 1e-9 * step; at++) ticks.push(at * step);
  return ticks;
}

// Those of the fixed candidates that lie inside and are far enough apart.
const chosenTicks = (candidates, bend) => (low, high, count) => {
  const inside = candidates.filter((value) => bend(value) >= low - 1e-9 && bend(value) <= high + 1e-9);
  const gap = (high - low) / (1.6 * count),
    kept = [];
  for (const value of inside) if (!kept.length || bend(value) - bend(kept[kept.length - 1]) >= gap) kept.push(value);
  return kept;
};

// Acklam's approximation of the inverse of the normal distribution (error below 1.2e-9).
function probit(p) {
  const a = [
    -39.69683028665376, 220.9460984245205, -275.9285104469687, 138.357751867269, -30.66479806614716, 2.506628277459239,
  ];
  const b = [-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572];
  const c = [
    -0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968,
    2.938163982698783,
  ];
  const d = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
  const poly = (all, x) => all.reduce((sum, factor) => sum * x + factor, 0);
  if (p <= 0) return -Infinity;
  if (p >= 1) return Infinity;
  if (p > 0.5) return -probit(1 - p);
  if (p < 0.02425) {
    const q = Math.sqrt(-2 * Math.log(p));
    return poly(c, q) / (poly(d, q) * q + 1);
  }
  const q = p - 0.5,
    r = q * q;
  return (poly(a, r) * q) / (poly(b, r) * r + 1);
}

const nines = (share) => -Math.log10(1 - Math.min(share, 0.99999));
const RATES = [
  0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95,
  0.98, 0.99,
];
const SHARES = [0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999];

const KINDS = {
  linear: { bend: (value) => value, ticks: evenTicks },
  log: {
    bend: Math.log10,
    ticks(low, high, count) {
      if (high - low < 1) return evenTicks(10 ** low, 10 ** high, count).filter((value) => value > 0);
      const stride = Math.ceil((high - low) / Math.max(2, count)),
        ticks = [];
      for (let power = Math.ceil(low - 1e-9); power <= high + 1e-9; power++)
        if (power % stride === 0) ticks.push(10 ** power);
      return ticks.length > 2 || high - low > 3
        ? ticks
        : chosenTicks(
            ticks.concat(ticks.flatMap((t) => [t * 2, t * 5, t / 2, t / 5])).sort((a, b) => a - b),
            Math.log10,
          )(low, high, count);
    },
  },
  // The axes of a DET curve: normally distributed scores give straight lines.
  probit: { bend: probit, ticks: chosenTicks(RATES, probit) },
  // Sparsity: 90, 99 and 99.9 % at equal distances.
  nines: { bend: nines, ticks: chosenTicks(SHARES, nines) },
};

class Scale {
  // `domain` is already transformed.
  constructor(kind, domain, range) {
    Object.assign(this, { kind: KINDS[kind], domain, range });
    this.factor = (range[1] - range[0]) / (domain[1] - domain[0]);
  }
  at(value) {
    return this.range[0] + (this.kind.bend(value) - this.domain[0]) * this.factor;
  }
  bent(pixel) {
    return this.domain[0] + (pixel - this.range[0]) / this.factor;
  }
  ticks(count) {
    return this.kind.ticks(this.domain[0], this.domain[1], count);
  }
}
