"use strict";
// The embedded data, unpacked; and what of it is shown. Times are nanoseconds.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** White or black, whichever reads better on a colour. */
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return 0.299 * r + 0.587 * g + 0.114 * b > 150 ? "#14181d" : "#ffffff";
}

const FAMILIES = DATA.families.map(([name, colour]) => ({ name, colour, ink: inkOn(colour), hidden: false }));

class Program {
  constructor({ kernels, operators, tasks, waits }) {
    this.kernels = kernels.map(([name, origin, tiling, tiles]) => ({ name, origin, tiling, tiles }));
    this.operators = operators.map(([name, kernel, family]) => ({ name, kernel: this.kernels[kernel], family }));
    this.tasks = tasks;
    this.waits = new Map();
    this.waiters = new Map();
    waits.forEach((flat, veu) => {
      for (let i = 0; i < flat.length; i += 3) {
        const [position, other, count] = flat.slice(i, i + 3);
        if (count === 0) continue;
        append(this.waits, placeKey(veu, position), [other, count - 1]);
        append(this.waiters, placeKey(other, count - 1), [veu, position]);
      }
    });
  }
}

function placeKey(veu, position) { return veu * 0x4000000 + position; }

/** A place is {panel, veu, slot}: an rTask in a timeline. */
function samePlace(a, b) {
  return a !== null && b !== null && a.panel === b.panel && a.veu === b.veu && a.slot === b.slot;
}

function append(map, key, value) {
  if (map.has(key)) map.get(key).push(value);
  else map.set(key, [value]);
}

/** What one vEU ran, as columns in the order of time. */
class Lane {
  constructor(flat, tasks) {
    const count = flat.length / 3;
    this.count = count;
    this.position = new Int32Array(count);
    this.start = new Float64Array(count);
    this.stop = new Float64Array(count);
    this.operator = new Int32Array(count);
    this.critical = new Uint8Array(count);
    this.slotOf = new Int32Array(tasks.length / 4).fill(-1);
    for (let slot = 0; slot < count; slot++) {
      const position = flat[3 * slot];
      this.position[slot] = position;
      this.start[slot] = flat[3 * slot + 1];
      this.stop[slot] = flat[3 * slot + 2];
      this.operator[slot] = tasks[4 * position];
      this.slotOf[position] = slot;
    }
  }

  /** The first slot that ends after a time. */
  firstAfter(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stop[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The slot nearest to a time, at most `reach` away; -1 if there is none. */
  nearest(time, reach) {
    const after = this.firstAfter(time);
    const distance = (slot) => slot < 0 || slot >= this.count ? Infinity
      : Math.max(0, this.start[slot] - time, time - this.stop[slot]);
    const best = distance(after - 1) < distance(after) ? after - 1 : after;
    return distance(best) <= reach ? best : -1;
  }
}

class Panel {
  constructor({ label, program, makespan, spans, critical }) {
    this.label = label;
    this.program = programs[program];
    this.makespan = makespan;
    this.lanes = spans.map((flat, veu) => new Lane(flat, this.program.tasks[veu]));
    this.chain = [];
    for (let i = 0; i < critical.length; i += 2) {
      const place = this.place(critical[i], critical[i + 1]);
      this.chain.push(place);
      this.lanes[place.veu].critical[place.slot] = 1;
    }
  }

  /** An rTask by its vEU and position; null if the timeline lacks it. */
  place(veu, position) {
    const slot = this.lanes[veu].slotOf[position];
    return slot < 0 ? null : { panel: this, veu, slot };
  }

  /** The places in one of the program's two maps: what an rTask waits for, or what waits for it. */
  linked(map, { veu, slot }) {
    const found = map.get(placeKey(veu, this.lanes[veu].position[slot])) ?? [];
    return found.map(([other, position]) => this.place(other, position)).filter((place) => place);
  }

  operatorAt({ veu, slot }) { return this.lanes[veu].operator[slot]; }
}

const programs = DATA.programs.map((program) => new Program(program));
const panels = DATA.panels.map((panel) => new Panel(panel));

const END = Math.max(1, ...panels.map((panel) => panel.makespan));
/** With room for the makespan's label behind the last rTask. */
const FULL = END * 1.06;
const SHORTEST = Math.min(20, END);

const view = {
  from: 0, to: FULL, critical: true, hovered: null, pinned: null, found: null,
  get focus() { return this.pinned ?? this.hovered; },

  show(from, length) {
    length = Math.min(FULL, Math.max(SHORTEST, length));
    this.from = Math.min(FULL - length, Math.max(0, from));
    this.to = this.from + length;
  },
  zoom(factor, around) { this.show(around - (around - this.from) * factor, (this.to - this.from) * factor); },
  pan(time) { this.show(this.from + time, this.to - this.from); },

  /** Only operators whose name contains the text stay bright. */
  find(text) {
    const wanted = text.trim().toLowerCase();
    this.found = wanted && new Map(programs.map((program) => [
      program, program.operators.map((operator) => operator.name.toLowerCase().includes(wanted)),
    ]));
  },
};

/** Three significant digits, or with `step` as many as tell two ticks apart. */
function duration(time, step) {
  const [scale, unit] = Math.abs(time) < 999.5 ? [1, "ns"] : Math.abs(time) < 999.5e3 ? [1e3, "\u00b5s"]
    : Math.abs(time) < 999.5e6 ? [1e6, "ms"] : [1e9, "s"];
  const value = time / scale;
  const digits = step ? Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9))
    : value === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value)) + 1e-9));
  return `${step || scale === 1 ? value.toFixed(scale === 1 && !step ? 0 : digits) : Number(value.toFixed(digits))} ${unit}`;
}
