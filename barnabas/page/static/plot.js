// Plots: scales, lines and ticks, as numbers and path strings, without the DOM.

import { isNumber, niceAbove } from "./numbers.js";

const BROKEN_AFTER_MS = 2600;

/** Linear scale. */
export function linear(from, to, low, high) {
  const factor = (high - low) / (to - from || 1);
  return (value) => low + (value - from) * factor;
}

/** Logarithmic scale. */
export function logarithmic(from, to, low, high) {
  const scale = linear(Math.log10(from), Math.log10(to), low, high);
  return (value) => scale(Math.log10(Math.max(value, from)));
}

export function highest(samples, keys, least) {
  let most = least;
  for (const sample of samples)
    for (const key of keys) if (isNumber(sample[key]) && sample[key] > most) most = sample[key];
  return niceAbove(most);
}

/** The smallest power of ten that is at least the value. */
export function decadeAbove(value) {
  return 10 ** Math.ceil(Math.log10(Math.max(value, 1)) - 1e-9);
}

/** Runs of samples with a number, split at missing ones and where none came for a while. */
function runs(samples, key, brokenAfterMs) {
  const all = [];
  let run = null;
  let last = null;
  for (const sample of samples) {
    if (!isNumber(sample[key])) {
      run = null;
      continue;
    }
    if (run === null || sample.atMs - last > brokenAfterMs) all.push((run = []));
    run.push(sample);
    last = sample.atMs;
  }
  return all;
}

const point = (x, y) => `${x.toFixed(1)} ${y.toFixed(1)}`;

export function line(samples, key, x, y, brokenAfterMs = BROKEN_AFTER_MS) {
  return runs(samples, key, brokenAfterMs)
    .map((run) => `M${run.map((sample) => point(x(sample.atMs), y(sample[key]))).join("L")}`)
    .join("");
}

/** The area below the line, down to a base. */
export function area(samples, key, x, y, base, brokenAfterMs = BROKEN_AFTER_MS) {
  return runs(samples, key, brokenAfterMs)
    .map((run) => {
      const top = run.map((sample) => point(x(sample.atMs), y(sample[key]))).join("L");
      return `M${point(x(run[0].atMs), base)}L${top}L${point(x(run.at(-1).atMs), base)}Z`;
    })
    .join("");
}

/** Multiples of a step within a range. */
export function steps(from, to, step) {
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) found.push(value);
  return found;
}

/** Groups the marks of one lane that would overlap: [[first, …], …]. */
export function clusters(marks, widthMs) {
  const found = [];
  for (const mark of marks) {
    const last = found.at(-1);
    if (last && mark.atMs - last[0].atMs < widthMs) last.push(mark);
    else found.push([mark]);
  }
  return found;
}
