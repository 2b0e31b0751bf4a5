// Numbers, times and counts as people read them.

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 99.95 || Number.isInteger(value)) {
    return Math.round(value).toLocaleString("en-US");
  }
  const digits = { minimumSignificantDigits: 3, maximumSignificantDigits: 3 };
  return value.toLocaleString("en-US", size >= 0.01 ? digits : { maximumSignificantDigits: 1 });
}

export function share(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const percent = Math.round(1000 * value) / 10;
  const digits = Number.isInteger(percent) || Math.abs(percent) >= 1000 ? 0 : 1;
  return `${percent.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })}\u00a0%`;
}

export function plural(count, word, words = `${word}s`) {
  return `${number(count)} ${count === 1 ? word : words}`;
}

export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 5400) return `${Math.round(s / 60)} min`;
  if (s < 172800) return `${Math.round(s / 3600)} h`;
  return `${Math.round(s / 86400)} days`;
}

// Steadier than `duration`, for ages that are shown every second.
export function age(seconds) {
  const s = Math.max(0, Math.round(seconds));
  return s < 10 ? `${s} s` : duration(s);
}

export function clock(at) {
  return new Date(1000 * at).toLocaleTimeString("en-GB");
}

export function moment(at, now) {
  const day = (seconds) => new Date(1000 * seconds).toDateString();
  if (day(at) === day(now)) return clock(at);
  return `${new Date(1000 * at).toLocaleDateString("en-CA")} ${clock(at)}`;
}

export const dropped = (waste) => (waste ? waste.dropped_first + waste.dropped_second : null);

// What a proposal is for. Prices of the two filters differ, so it may save at one and not in all.
export function describeSaving({ saves_per_hour: saves, before, after }) {
  if (saves > 0) return `saves ${number(saves)} messages an hour`;
  const second = 3600 * (before.dropped_second - after.dropped_second);
  return second > 0 ? `saves ${number(second)} messages an hour at the second filter` : "keeps to the limits";
}

// The share of what receivers get that they throw away.
export function wasted(waste) {
  const all = waste.wanted + dropped(waste);
  return all > 0 ? dropped(waste) / all : null;
}
