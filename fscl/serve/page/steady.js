/* A steady answer from many unsteady ones: probabilities are averaged over time, and a leader must lead for a while. */

const UNKNOWN = "unknown";
const HALF_LIFE = 350; // milliseconds after which an old answer counts half
const LEAD = 0.1; // by how much another answer must lead
const LEAD_FOR = 300; // milliseconds

export class Steady {
  constructor() {
    this.reset();
  }

  reset() {
    this.shares = new Map(); // by label key
    this.at = null;
    this.shown = null;
    this.rival = null;
    this.rivalSince = 0;
  }

  /** Take one answer, at a time in milliseconds; returns [{key, label, share}], and `shown` is the steady one. */
  take(answer, now) {
    const keep = this.at === null ? 0 : 0.5 ** ((now - this.at) / HALF_LIFE);
    this.at = now;
    for (const entry of this.shares.values()) entry.share *= keep;
    const votes = answer.unknown
      ? [{ key: UNKNOWN, label: null, probability: 1 }]
      : answer.ranked.map((each) => ({ ...each, key: JSON.stringify(each.label) }));
    for (const { key, label, probability } of votes) {
      const entry = this.shares.get(key) ?? { key, label, share: 0 };
      entry.share += (1 - keep) * probability;
      this.shares.set(key, entry);
    }
    for (const [key, entry] of this.shares) if (entry.share < 0.005) this.shares.delete(key);
    const ranked = [...this.shares.values()].sort((a, b) => b.share - a.share);
    this.choose(ranked, now);
    return ranked;
  }

  choose(ranked, now) {
    const [first] = ranked;
    if (!first || this.shown === null) {
      this.shown = first ?? null;
      return;
    }
    const present = this.shares.get(this.shown.key);
    if (first.key === this.shown.key) {
      this.shown = first;
      this.rival = null;
      return;
    }
    if (this.rival !== first.key) {
      this.rival = first.key;
      this.rivalSince = now;
    }
    const leads = !present || first.share - present.share >= LEAD;
    if (leads && now - this.rivalSince >= LEAD_FOR) {
      this.shown = first;
      this.rival = null;
    } else if (present) this.shown = present;
  }
}

/* Near-equal frames: a camera that stands still shows the same thing again and again, which teaches nothing more. */

const SIDE = 16;
const NEAR = 3.5; // mean difference of grey values, 0 to 255, of 16 x 16 fields

/** A small grey print of a frame, from the pixels of a 16 x 16 canvas. */
export function print(pixels) {
  const grey = new Float32Array(SIDE * SIDE);
  for (let i = 0; i < grey.length; i += 1) {
    grey[i] = 0.299 * pixels[4 * i] + 0.587 * pixels[4 * i + 1] + 0.114 * pixels[4 * i + 2];
  }
  return grey;
}

export function nearEqual(one, other) {
  let sum = 0;
  for (let i = 0; i < one.length; i += 1) sum += Math.abs(one[i] - other[i]);
  return sum / one.length < NEAR;
}

export const PRINT_SIDE = SIDE;
