// The panels: bars, labels, the critical path, waits.

const GUTTER = 64;
/** Bars of at least so many pixels are painted one by one; shorter ones are summed up by column. */
const NARROW = 1.5;
const LABEL_FROM = 44;
/** So many arrows can be told apart; beyond, only those of the rTask in focus are drawn. */
const MOST_ARROWS = 250;
/** Likewise for changes of the critical path from one vEU to another. */
const MOST_CHANGES = 40;
/** How strongly a bar is painted: dimmed, then columns by the share of their time that is busy. */
const STRENGTHS = [0.13, 0.4, 0.6, 0.8, 1];
const FULLY = STRENGTHS.length - 1;
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

const colours = {};

function readColours() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ["page", "ink", "soft", "line", "lane", "accent"]) colours[name] = style.getPropertyValue(`--${name}`).trim();
}

/** A canvas in CSS pixels that stays sharp on any screen. */
class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
  }

  resize(height) {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.parentElement.clientWidth;
    this.height = height;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  clear() {
    this.context.clearRect(0, 0, this.width, this.height);
    return this.context;
  }
}

/** Rectangles by colour and strength: a canvas changes its colour more slowly than it fills. */
const buckets = FAMILIES.map(() => STRENGTHS.map(() => []));

function flushBuckets(context) {
  buckets.forEach((strengths, family) => strengths.forEach((bars, strength) => {
    context.fillStyle = FAMILIES[family].colour;
    context.globalAlpha = STRENGTHS[strength];
    for (let i = 0; i < bars.length; i += 4) context.fillRect(bars[i], bars[i + 1], bars[i + 2], bars[i + 3]);
    bars.length = 0;
  }));
  context.globalAlpha = 1;
}

class PanelPainter {
  constructor(panel, canvas) {
    this.panel = panel;
    this.surface = new Surface(canvas);
  }

  resize(pitch) {
    this.pitch = pitch;
    this.bar = pitch - (pitch > 14 ? 4 : 2);
    this.surface.resize(pitch * this.panel.lanes.length + 4);
    this.columns = new Float64Array((Math.ceil(this.surface.width) + 2) * FAMILIES.length);
  }

  get scale() { return (this.surface.width - GUTTER) / (view.to - view.from); }
  x(time) { return GUTTER + (time - view.from) * this.scale; }
  time(x) { return view.from + (x - GUTTER) / this.scale; }
  top(veu) { return veu * this.pitch + 2; }

  /** The vEUs that the window shows, first and behind the last. */
  visibleLanes() {
    const { top } = this.surface.canvas.getBoundingClientRect();
    const first = Math.floor(-top / this.pitch), last = Math.ceil((window.innerHeight - top) / this.pitch);
    return [Math.max(0, first), Math.min(this.panel.lanes.length, last)];
  }

  paint() {
    const context = this.surface.clear(), [first, last] = this.visibleLanes();
    context.save();
    context.beginPath();
    context.rect(GUTTER, 0, this.surface.width - GUTTER, this.surface.height);
    context.clip();
    this.paintBackground(context, first, last);
    const labels = [];
    for (let veu = first; veu < last; veu++) this.collectLane(veu, labels);
    flushBuckets(context);
    this.paintLabels(context, labels);
    if (view.critical) this.paintCritical(context, first, last);
    this.paintAllArrows(context, first, last);
    this.paintMakespan(context);
    if (view.focus) this.paintFocus(context, view.focus);
    context.restore();
    this.paintGutter(context, first, last);
  }

  paintBackground(context, first, last) {
    context.fillStyle = colours.lane;
    const start = Math.max(GUTTER, this.x(0)), stop = this.x(this.panel.makespan);
    for (let veu = first; veu < last; veu++) context.fillRect(start, this.top(veu), stop - start, this.bar);
    context.fillStyle = colours.line;
    for (const tick of ticks(this.surface.width)[1]) context.fillRect(Math.round(this.x(tick)), 0, 1, this.surface.height);
  }

  collectLane(veu, labels) {
    const lane = this.panel.lanes[veu], { operators } = this.panel.program, { scale } = this;
    const found = view.found && view.found.get(this.panel.program);
    const y = this.top(veu), right = this.surface.width;
    let left = Infinity, behind = -1, dimmed = -1;
    for (let slot = lane.firstAfter(view.from); slot < lane.count && lane.start[slot] < view.to; slot++) {
      const number = lane.operator[slot], { family } = operators[number];
      if (FAMILIES[family].hidden) continue;
      const start = this.x(lane.start[slot]), width = (lane.stop[slot] - lane.start[slot]) * scale;
      const bright = !found || found[number];
      if (width < NARROW && bright) {
        const column = Math.max(0, Math.floor(start));
        // A bar across two columns counts in both.
        const here = Math.min(width, column + 1 - start);
        this.columns[column * FAMILIES.length + family] += here;
        if (width > here) this.columns[(column + 1) * FAMILIES.length + family] += width - here;
        left = Math.min(left, column);
        behind = Math.max(behind, column + 2);
        continue;
      }
      if (!bright && start + width < dimmed) continue;
      if (!bright) dimmed = Math.floor(start + width) + 1;
      const gap = width > 4 ? 1 : 0;
      const from = Math.max(GUTTER - 2, start), length = Math.min(right + 2, start + width - gap) - from;
      buckets[family][bright ? FULLY : 0].push(from, y, Math.max(length, 0.5), this.bar);
      if (length > LABEL_FROM && bright && this.bar >= 11) labels.push(number, from, y, length);
    }
    this.collectColumns(y, left, Math.min(behind, Math.ceil(right) + 1));
  }

  /** The summed-up bars of a lane: each column in its main family, as strong as it is busy. */
  collectColumns(y, left, behind) {
    let runStart = left, runFamily = -1, runStrength = 0;
    for (let column = left; column <= behind; column++) {
      let family = -1, most = 0, busy = 0;
      if (column < behind) {
        for (let f = 0, at = column * FAMILIES.length; f < FAMILIES.length; f++, at++) {
          busy += this.columns[at];
          if (this.columns[at] > most) { most = this.columns[at]; family = f; }
          this.columns[at] = 0;
        }
      }
      const strength = Math.min(FULLY, 1 + Math.floor(busy * (FULLY - 0.2)));
      if (family === runFamily && strength === runStrength) continue;
      if (runFamily >= 0) buckets[runFamily][runStrength].push(runStart, y, column - runStart, this.bar);
      [runStart, runFamily, runStrength] = [column, family, strength];
    }
  }

  paintLabels(context, labels) {
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    const { operators } = this.panel.program;
    for (let i = 0; i < labels.length; i += 4) {
      const { name, family } = operators[labels[i]], room = labels[i + 3] - 10;
      context.fillStyle = FAMILIES[family].ink;
      context.fillText(shortened(context, name, room), Math.max(GUTTER, labels[i + 1]) + 5, labels[i + 2] + this.bar / 2 + 0.5);
    }
  }

  paintCritical(context, first, last) {
    const visible = this.panel.chain.filter(({ veu, slot }) => {
      const lane = this.panel.lanes[veu];
      return lane.stop[slot] >= view.from && lane.start[slot] <= view.to;
    });
    context.fillStyle = colours.accent;
    for (const { veu, slot } of visible) {
      if (veu < first || veu >= last) continue;
      const lane = this.panel.lanes[veu], start = this.x(lane.start[slot]);
      context.fillRect(start, this.top(veu) + this.bar - 2, Math.max(1, this.x(lane.stop[slot]) - start - 1), 3);
    }
    const changes = visible.slice(1).map((to, i) => [visible[i], to]).filter(([from, to]) => from.veu !== to.veu);
    if (changes.length > MOST_CHANGES) return;
    context.strokeStyle = colours.accent;
    context.lineWidth = 1.5;
    for (const [from, to] of changes) this.arrow(context, from, to);
  }

  /** All waits of what is in view, if they are few. */
  paintAllArrows(context, first, last) {
    const arrows = [];
    for (let veu = first; veu < last; veu++) {
      const lane = this.panel.lanes[veu];
      for (let slot = lane.firstAfter(view.from); slot < lane.count && lane.start[slot] < view.to; slot++) {
        const to = { panel: this.panel, veu, slot };
        for (const from of this.panel.linked(this.panel.program.waits, to)) arrows.push([from, to]);
        if (arrows.length > MOST_ARROWS) return;
      }
    }
    context.strokeStyle = colours.soft;
    context.lineWidth = 1;
    context.globalAlpha = view.focus ? 0.15 : 0.45;
    for (const [from, to] of arrows) this.arrow(context, from, to);
    context.globalAlpha = 1;
  }

  /** From the end of one bar down or up to the start of another. */
  arrow(context, from, to) {
    const { lanes } = this.panel, down = to.veu > from.veu;
    const x1 = this.x(lanes[from.veu].stop[from.slot]), x2 = this.x(lanes[to.veu].start[to.slot]);
    const y1 = this.top(from.veu) + (down ? this.bar : 0), y2 = this.top(to.veu) + (down ? 0 : this.bar);
    const head = down ? -4 : 4, middle = (y1 + y2) / 2;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1, middle, x2, middle, x2, y2);
    context.moveTo(x2 - 2.5, y2 + head);
    context.lineTo(x2, y2);
    context.lineTo(x2 + 2.5, y2 + head);
    context.stroke();
  }

  paintMakespan(context) {
    const x = Math.round(this.x(this.panel.makespan));
    context.fillStyle = colours.ink;
    context.fillRect(x, 0, 1.5, this.surface.height);
    context.font = `600 12px ${FONT}`;
    context.textBaseline = "top";
    const text = duration(this.panel.makespan);
    // Where it does not fit, the caption has it too.
    if (x + 8 + context.measureText(text).width <= this.surface.width) context.fillText(text, x + 6, 4);
  }

  /** The rTask in focus, the others of its operator, and the waits from and to it. */
  paintFocus(context, focus) {
    const operator = focus.panel.operatorAt(focus);
    if (focus.panel.program !== this.panel.program) return;
    context.strokeStyle = colours.ink;
    context.lineWidth = 1;
    this.panel.lanes.forEach((lane, veu) => {
      for (let slot = lane.firstAfter(view.from); slot < lane.count && lane.start[slot] < view.to; slot++) {
        if (lane.operator[slot] === operator) this.outline(context, veu, slot);
      }
    });
    if (focus.panel !== this.panel) return;
    context.lineWidth = 2.5;
    this.outline(context, focus.veu, focus.slot);
    context.lineWidth = 1.5;
    const { waits, waiters } = this.panel.program;
    for (const from of this.panel.linked(waits, focus)) this.arrow(context, from, focus);
    context.setLineDash([4, 3]);
    for (const to of this.panel.linked(waiters, focus)) this.arrow(context, focus, to);
    context.setLineDash([]);
  }

  outline(context, veu, slot) {
    const lane = this.panel.lanes[veu], x = this.x(lane.start[slot]);
    context.strokeRect(x, this.top(veu), Math.max(1.5, this.x(lane.stop[slot]) - x), this.bar);
  }

  paintGutter(context, first, last) {
    const every = Math.ceil(11 / this.pitch);
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    context.fillStyle = colours.soft;
    for (let veu = first; veu < last; veu++) {
      if (veu % every === 0) context.fillText(`vEU ${veu}`, 0, this.top(veu) + this.bar / 2 + 0.5);
    }
  }
}

function shortened(context, text, room) {
  const { width } = context.measureText(text);
  if (width <= room) return text;
  const letters = Math.floor(text.length * (room - 9) / width);
  return letters > 2 ? `${text.slice(0, letters)}\u2026` : "";
}

/** The step between two ticks, and the ticks in view. */
function ticks(width) {
  const rough = (view.to - view.from) / Math.max(2, (width - GUTTER) / 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let n = Math.ceil(view.from / step); n * step <= view.to; n++) found.push(n * step);
  return [step, found];
}
