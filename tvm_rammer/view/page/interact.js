// The page around the canvases, and everything that a person can do.

const painters = panels.map((panel) => new PanelPainter(panel, addFigure(panel)));
const axis = new Surface(document.getElementById("axis"));
const overview = new Overview(document.getElementById("overview"));

function addFigure(panel) {
  const figure = element("figure"), caption = element("figcaption"), canvas = element("canvas");
  caption.append(element("b", panel.label), element("span", ` \u2014 ${duration(panel.makespan)}`));
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  canvas.setAttribute("aria-label", `Timeline ${panel.label}: arrow keys go from rTask to rTask`);
  figure.append(caption, canvas);
  document.getElementById("panels").append(figure);
  return canvas;
}

// Painting: at most once a frame.

let requested = false;

function repaint() {
  if (requested) return;
  requested = true;
  requestAnimationFrame(() => { requested = false; paintAll(); });
}

function paintAll() {
  for (const painter of painters) painter.paint();
  paintAxis(axis);
  overview.paint();
  if (view.pinned) followPinned(view.pinned);
}

/** What is said about a pinned rTask stays beside it. */
function followPinned(place) {
  const painter = painters.find(({ panel }) => panel === place.panel), lane = place.panel.lanes[place.veu];
  const { left, top } = painter.surface.canvas.getBoundingClientRect();
  const x = painter.x(lane.start[place.slot]), y = top + painter.top(place.veu) + painter.bar;
  const seen = x <= painter.surface.width && painter.x(lane.stop[place.slot]) >= GUTTER && y > 0 && y < window.innerHeight;
  if (seen) showTooltip(place, left + Math.max(GUTTER, x), y);
  else hideTooltip();
}

/** Lanes as high as lets all of them fit into the window, within reason. */
function resize() {
  const lanes = panels.reduce((sum, panel) => sum + panel.lanes.length, 0);
  // Below the header, and without the captions.
  const room = window.innerHeight - 340 - 45 * panels.length;
  const pitch = Math.min(40, Math.max(12, Math.floor(room / Math.max(1, lanes))));
  readColours();
  for (const painter of painters) painter.resize(pitch);
  axis.resize(26);
  overview.resize();
  repaint();
}

// Legend and buttons.

function addLegend() {
  const busy = FAMILIES.map(() => 0);
  for (const panel of panels) for (const lane of panel.lanes) {
    for (let slot = 0; slot < lane.count; slot++) {
      busy[panel.program.operators[lane.operator[slot]].family] += lane.stop[slot] - lane.start[slot];
    }
  }
  const all = busy.reduce((sum, time) => sum + time, 0) || 1;
  FAMILIES.forEach((family, index) => {
    if (!panels.some(({ program }) => program.operators.some((operator) => operator.family === index))) return;
    const button = element("button"), swatch = element("i"), share = busy[index] / all * 100;
    swatch.style.background = family.colour;
    button.type = "button";
    button.title = "Share of the computing time; click to hide or show";
    button.append(swatch, family.name, element("span", share > 0 && share < 1 ? "<1%" : `${Math.round(share)}%`));
    button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      family.hidden = !family.hidden;
      button.setAttribute("aria-pressed", String(!family.hidden));
      overview.paintStrips();
      repaint();
    });
    document.getElementById("legend").append(button);
  });
}

const criticalButton = document.getElementById("critical"), search = document.getElementById("search");

function toggleCritical() {
  view.critical = !view.critical;
  criticalButton.setAttribute("aria-pressed", String(view.critical));
  repaint();
}

function zoomBy(factor) {
  view.zoom(factor, (view.from + view.to) / 2);
  repaint();
}

function fit() {
  view.show(0, FULL);
  repaint();
}

criticalButton.addEventListener("click", toggleCritical);
document.getElementById("in").addEventListener("click", () => zoomBy(1 / 1.6));
document.getElementById("out").addEventListener("click", () => zoomBy(1.6));
document.getElementById("fit").addEventListener("click", fit);
search.addEventListener("input", () => { view.find(search.value); repaint(); });

// The focus.

function pin(place) {
  view.pinned = place;
  if (place) speak(place);
  else hideTooltip();
  repaint();
}

function placeAt(painter, event) {
  const veu = Math.floor(event.offsetY / painter.pitch), lane = painter.panel.lanes[veu];
  if (!lane || event.offsetX < GUTTER) return null;
  const slot = lane.nearest(painter.time(event.offsetX), 3 / painter.scale);
  if (slot < 0 || FAMILIES[painter.panel.program.operators[lane.operator[slot]].family].hidden) return null;
  return { panel: painter.panel, veu, slot };
}

function hover(painter, event) {
  view.hovered = placeAt(painter, event);
  if (!view.pinned && view.hovered) showTooltip(view.hovered, event.clientX, event.clientY);
  else if (!view.pinned) hideTooltip();
  repaint();
}

/** Bring an rTask into view and say what it is. */
function visit(painter, place) {
  const lane = painter.panel.lanes[place.veu], { canvas } = painter.surface;
  const start = lane.start[place.slot], length = view.to - view.from;
  if (start < view.from || lane.stop[place.slot] > view.to) view.show(start - length / 3, length);
  const y = canvas.getBoundingClientRect().top + painter.top(place.veu);
  if (y < 120 || y > window.innerHeight - painter.pitch) window.scrollBy(0, y - window.innerHeight / 2);
  pin(place);
}

function zoomTo({ panel, veu, slot }) {
  const lane = panel.lanes[veu], length = Math.max(1, lane.stop[slot] - lane.start[slot]);
  view.show(lane.start[slot] - 3 * length, 7 * length);
  repaint();
}

/** The next rTask in a direction: along a vEU, or on the one above or below at the same time. */
function neighbour(painter, key) {
  const { lanes } = painter.panel, pinned = view.pinned?.panel === painter.panel ? view.pinned : null;
  if (!pinned) {
    const veu = lanes.findIndex((lane) => lane.count > 0);
    return veu < 0 ? null : { panel: painter.panel, veu, slot: Math.min(lanes[veu].count - 1, lanes[veu].firstAfter(view.from)) };
  }
  const { veu, slot } = pinned;
  if (key === "ArrowLeft" || key === "ArrowRight") {
    const next = slot + (key === "ArrowRight" ? 1 : -1);
    return next < 0 || next >= lanes[veu].count ? pinned : { ...pinned, slot: next };
  }
  const step = key === "ArrowDown" ? 1 : -1;
  for (let other = veu + step; other >= 0 && other < lanes.length; other += step) {
    if (lanes[other].count) return { ...pinned, veu: other, slot: lanes[other].nearest(lanes[veu].start[slot], Infinity) };
  }
  return pinned;
}

// Wheel, drag and keys.

function wheel(event, time, timePerPixel) {
  event.preventDefault();
  const unit = event.deltaMode === 1 ? 18 : 1;
  const along = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) view.pan(along * unit * timePerPixel);
  else view.zoom(Math.exp(Math.max(-300, Math.min(300, event.deltaY * unit)) * 0.0022), time);
  repaint();
}

/** Calls `move(event, dx, dy)` while the pointer is down, `click(event)` if it stayed in place. */
function onDrag(canvas, { begin = () => {}, move, click = () => {} }) {
  let travelled = -1;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    travelled = 0;
    canvas.setPointerCapture(event.pointerId);
    begin(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (travelled < 0) return;
    travelled += Math.abs(event.movementX) + Math.abs(event.movementY);
    if (travelled > 3) canvas.classList.add("dragging");
    move(event, event.movementX, event.movementY);
  });
  const stop = (event) => {
    if (travelled >= 0 && travelled <= 3 && event.type === "pointerup") click(event);
    travelled = -1;
    canvas.classList.remove("dragging");
  };
  canvas.addEventListener("pointerup", stop);
  canvas.addEventListener("pointercancel", stop);
}

for (const painter of painters) {
  const { canvas } = painter.surface;
  canvas.addEventListener("wheel", (event) => {
    // Over the names of the vEUs the wheel scrolls the page.
    if (event.offsetX >= GUTTER) wheel(event, painter.time(event.offsetX), 1 / painter.scale);
  }, { passive: false });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons === 0) hover(painter, event); });
  canvas.addEventListener("pointerleave", () => {
    view.hovered = null;
    if (!view.pinned) hideTooltip();
    repaint();
  });
  canvas.addEventListener("dblclick", (event) => {
    const place = placeAt(painter, event);
    if (place) zoomTo(place);
  });
  onDrag(canvas, {
    move(event, dx, dy) {
      view.pan(-dx / painter.scale);
      if (event.pointerType === "mouse") window.scrollBy(0, -dy);
      if (!view.pinned) hideTooltip();
      repaint();
    },
    click: (event) => pin(placeAt(painter, event)),
  });
  canvas.addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow") || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const place = neighbour(painter, event.key);
    if (place) visit(painter, place);
  });
}

const overviewCanvas = overview.surface.canvas;
const centreOn = (event) => {
  const length = view.to - view.from;
  view.show(overview.time(event.offsetX) - length / 2, length);
  repaint();
};
onDrag(overviewCanvas, { begin: centreOn, move: centreOn });
overviewCanvas.addEventListener("wheel", (event) => wheel(event, overview.time(event.offsetX), FULL / overview.surface.width), { passive: false });

const KEYS = {
  "+": () => zoomBy(1 / 1.6), "=": () => zoomBy(1 / 1.6), "-": () => zoomBy(1.6),
  "0": fit, c: toggleCritical, "/": () => search.focus(), Escape: () => pin(null),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === search) {
    if (event.key === "Escape") search.blur();
    return;
  }
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});

window.addEventListener("resize", resize);
window.addEventListener("scroll", repaint, { passive: true });
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", resize);
new ResizeObserver(resize).observe(document.getElementById("panels"));

addLegend();
resize();
