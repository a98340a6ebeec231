// What is said about the rTask in focus.

const tooltip = document.getElementById("tooltip");
const MOST_NAMED = 3;
let described = null;

function element(name, text = "", className = "") {
  const made = document.createElement(name);
  made.textContent = text;
  if (className) made.className = className;
  return made;
}

/** The facts about an rTask: [name, text] or [name, text, whether it asks for attention]. */
function factsOf({ panel, veu, slot }) {
  const lane = panel.lanes[veu], position = lane.position[slot];
  const [, first, behind, wave] = panel.program.tasks[veu].slice(4 * position, 4 * position + 4);
  const { kernel } = panel.program.operators[lane.operator[slot]];
  const length = lane.stop[slot] - lane.start[slot], step = Math.max(1, length / 50);
  const idle = lane.start[slot] - (slot ? lane.stop[slot - 1] : 0);
  const facts = [
    ["duration", duration(length)],
    ["runs", `${duration(lane.start[slot], step)} to ${duration(lane.stop[slot], step)}`],
    ["tiles", `[${first}, ${behind}) of ${kernel.tiles}`],
    ["kernel", kernel.name],
  ];
  const made = [kernel.origin, kernel.tiling].filter((text) => text).join(", ");
  if (made) facts.push(["made by", made]);
  facts.push(["place", `vEU ${veu} #${position}, wave ${wave}`]);
  if (idle > 0) facts.push(["idle before", duration(idle)]);
  facts.push(...waitFacts(panel, { veu, slot }));
  if (lane.critical[slot]) facts.push(["critical", "on the critical path", true]);
  return facts;
}

/** What an rTask waits for, the last to end first: that is the one that held it up. */
function waitFacts(panel, place) {
  const started = panel.lanes[place.veu].start[place.slot];
  const endOf = ({ veu, slot }) => panel.lanes[veu].stop[slot];
  const awaited = panel.linked(panel.program.waits, place).sort((a, b) => endOf(b) - endOf(a));
  const facts = awaited.slice(0, MOST_NAMED).map((other) => {
    return ["waits for", `${named(other)}, done ${duration(Math.max(0, started - endOf(other)))} before`];
  });
  if (awaited.length > MOST_NAMED) facts.push(["", `and ${awaited.length - MOST_NAMED} that ended sooner`]);
  const waiters = panel.linked(panel.program.waiters, place);
  if (waiters.length > MOST_NAMED) facts.push(["awaited by", `${waiters.length} rTasks`]);
  else if (waiters.length) facts.push(["awaited by", waiters.map(named).join("; ")]);
  return facts;
}

function named({ panel, veu, slot }) {
  const lane = panel.lanes[veu];
  return `vEU ${veu} #${lane.position[slot]} ${panel.program.operators[lane.operator[slot]].name}`;
}

function describe(place) {
  const { name, family } = place.panel.program.operators[place.panel.operatorAt(place)];
  const kind = element("em", FAMILIES[family].name), swatch = element("i"), list = element("dl");
  swatch.style.background = FAMILIES[family].colour;
  kind.prepend(swatch);
  for (const [term, text, alert] of factsOf(place)) list.append(element("dt", term), element("dd", text, alert ? "alert" : ""));
  tooltip.replaceChildren(element("strong", name), kind, list);
  described = place;
}

function showTooltip(place, x, y) {
  if (!samePlace(place, described)) describe(place);
  tooltip.hidden = false;
  const { width, height } = tooltip.getBoundingClientRect();
  tooltip.style.left = `${Math.max(8, x + 16 + width > window.innerWidth ? x - width - 16 : x + 16)}px`;
  tooltip.style.top = `${Math.max(8, Math.min(y + 18, window.innerHeight - height - 8))}px`;
}

function hideTooltip() { tooltip.hidden = true; }

function speak(place) {
  const facts = factsOf(place).map(([term, text]) => `${term} ${text}`).join(", ");
  document.getElementById("spoken").textContent = `${named(place)}, ${facts}`;
}
