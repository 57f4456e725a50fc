// Formatting of numbers. Missing values are a dash, never "NaN" or "null".

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
export const NOTHING = "–";
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** True for a finite number. */
export function isNumber(value) {
  return typeof value === "number" && Number.isFinite(value);
}

export function count(value) {
  return isNumber(value) ? WHOLE.format(value) : NOTHING;
}

/** Milliseconds: "7.4 ms", "640 ms", "1.84 s". */
export function duration(ms) {
  if (!isNumber(ms)) return NOTHING;
  if (ms >= 9995) return `${(ms / 1000).toFixed(1)} s`;
  if (ms >= 999.5) return `${(ms / 1000).toFixed(2)} s`;
  return `${ms < 9.95 && !Number.isInteger(ms) ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** Time of day of milliseconds since 1970. */
export function clock(atMs, withMs = false) {
  if (!isNumber(atMs)) return NOTHING;
  const date = new Date(atMs);
  if (Number.isNaN(date.getTime())) return NOTHING;
  const two = (part) => String(part).padStart(2, "0");
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return withMs ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** The smallest of 1, 2, 5, 10, 20, 50 … that is at least `value`. */
export function niceAbove(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1)));
  return [1, 2, 5, 10].map((step) => step * power).find((nice) => nice >= value * 0.999999);
}

/** Short form for axes: 1,500 is 1.5k. */
export function short(value) {
  if (value >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
  if (value >= 1e3) return `${+(value / 1e3).toFixed(1)}k`;
  return String(value);
}

/** Bytes in the largest unit that leaves a number of at least 1. */
export function bytes(value) {
  if (!isNumber(value)) return NOTHING;
  let [rest, unit] = [value, 0];
  while (rest >= 1024 && unit < UNITS.length - 1) {
    rest /= 1024;
    unit += 1;
  }
  return `${unit && rest < 10 ? rest.toFixed(1) : Math.round(rest)} ${UNITS[unit]}`;
}
