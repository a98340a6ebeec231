// What stays in view above the panels: the time axis, and all of the time at a glance.

function paintAxis(surface) {
  const context = surface.clear(), scale = (surface.width - GUTTER) / (view.to - view.from);
  const [step, times] = ticks(surface.width);
  context.font = `11px ${FONT}`;
  context.textBaseline = "alphabetic";
  for (const time of times) {
    const x = Math.round(GUTTER + (time - view.from) * scale);
    context.fillStyle = colours.line;
    context.fillRect(x, surface.height - 6, 1, 6);
    context.fillStyle = colours.soft;
    context.textAlign = x < GUTTER + 20 ? "left" : "center";
    if (x < surface.width - 24) context.fillText(time ? duration(time, step) : "0", x, surface.height - 10);
  }
}

/** All of the time: for each panel a strip with the share of its vEUs that compute, by family. */
class Overview {
  constructor(canvas) {
    this.surface = new Surface(canvas);
    this.strips = document.createElement("canvas");
  }

  resize() {
    this.strip = panels.length > 3 ? 12 : panels.length > 1 ? 20 : 32;
    this.surface.resize(panels.length * (this.strip + 3) + 3);
    this.paintStrips();
  }

  x(time) { return GUTTER + time / FULL * (this.surface.width - GUTTER); }
  time(x) { return (x - GUTTER) / (this.surface.width - GUTTER) * FULL; }

  paintStrips() {
    this.strips.width = Math.max(1, this.surface.width);
    this.strips.height = this.surface.height;
    const context = this.strips.getContext("2d");
    panels.forEach((panel, index) => {
      const bottom = (index + 1) * (this.strip + 3);
      context.fillStyle = colours.lane;
      context.fillRect(GUTTER, bottom - this.strip, this.x(panel.makespan) - GUTTER, this.strip);
      this.shares(panel).forEach((share, at) => {
        const column = Math.floor(at / FAMILIES.length), family = at % FAMILIES.length;
        if (family === 0) this.level = bottom;
        const height = share * this.strip / panel.lanes.length;
        if (!height) return;
        context.fillStyle = FAMILIES[family].colour;
        context.fillRect(column, this.level - height, 1, height);
        this.level -= height;
      });
    });
  }

  /** vEUs that compute, by column and family. */
  shares(panel) {
    const width = Math.ceil(this.surface.width) + 1, found = new Float64Array(width * FAMILIES.length);
    for (const lane of panel.lanes) {
      for (let slot = 0; slot < lane.count; slot++) {
        const { family } = panel.program.operators[lane.operator[slot]];
        if (FAMILIES[family].hidden) continue;
        const start = this.x(lane.start[slot]), stop = this.x(lane.stop[slot]);
        for (let column = Math.floor(start); column < stop; column++) {
          found[column * FAMILIES.length + family] += Math.min(stop, column + 1) - Math.max(start, column);
        }
      }
    }
    return found;
  }

  paint() {
    const context = this.surface.clear();
    context.drawImage(this.strips, 0, 0);
    const from = this.x(view.from), to = this.x(view.to);
    context.fillStyle = colours.page;
    context.globalAlpha = 0.65;
    context.fillRect(GUTTER, 0, from - GUTTER, this.surface.height);
    context.fillRect(to, 0, this.surface.width - to, this.surface.height);
    context.globalAlpha = 1;
    context.strokeStyle = colours.soft;
    context.strokeRect(from + 0.5, 0.5, Math.max(2, to - from - 1), this.surface.height - 1);
    context.font = `11px ${FONT}`;
    context.textBaseline = "middle";
    context.fillStyle = colours.soft;
    context.fillText("load", 0, this.surface.height / 2);
  }
}
