"use strict";
// Everything that an agent said is set as text, never as markup.

const $ = (id) => document.getElementById(id);
let token = sessionStorage.getItem("token") || "";
let shown = null;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") element.addEventListener("click", value);
    else if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function draw(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

const count = (number) => Math.round(number).toLocaleString("en");
const share = (part, whole) => (whole ? Math.round((100 * part) / whole) : 0);
const saved = (row) => (row.cost_without ? 100 - share(row.cost_with, row.cost_without) : 0);
const ago = (seconds) => {
  const past = Date.now() / 1000 - seconds;
  if (past < 60) return "now";
  if (past < 3600) return `${Math.floor(past / 60)} min ago`;
  if (past < 86400) return `${Math.floor(past / 3600)} h ago`;
  return new Date(seconds * 1000).toLocaleDateString();
};

async function ask(path) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers });
  $("door").hidden = answer.status !== 403;
  return answer.ok ? answer.json() : null;
}

function bar(row) {
  const fill = make("i");
  fill.style.width = `${Math.min(100, share(row.view, row.budget))}%`;
  return make("div", { class: "bar", role: "img", "aria-label": `${share(row.view, row.budget)} % of the budget` }, fill);
}

function listed(row) {
  return make("button", { class: "row", click: () => open(row.name) },
    make("span", {}, make("b", {}, row.label || row.name), make("small", {}, `${row.model} · ${row.requests} requests · ${ago(row.last)}`)),
    make("span", {}, bar(row), make("small", { class: "number" }, `${count(row.view)} / ${count(row.budget)} tokens`)),
    make("small", { class: "number" }, `${row.events.length ? row.events[row.events.length - 1].number : 0} events · list ${count(row.history)} tokens`),
    make("span", { class: "saved number" }, `${saved(row)} %`));
}

async function refresh() {
  const found = await ask("/gateway/sessions");
  if (!found) return;
  const rows = found.sessions;
  const sum = (name) => rows.reduce((total, row) => total + row[name], 0);
  if (rows.length) {
    $("sum").textContent = `${rows.length} sessions · ${count(sum("requests"))} requests · ${count(sum("tokens_with"))} tokens in place of ${count(sum("tokens_without"))} · cost saved, cache counted: ${100 - share(sum("cost_with"), sum("cost_without"))} %`;
  }
  $("list").replaceChildren(...rows.map(listed));
  const now = rows.find((row) => row.name === shown);
  if (now && $("one").dataset.requests !== String(now.requests)) show(now);
}

function card(number, caption) {
  return make("div", { class: "card" }, make("b", {}, number), make("small", {}, caption));
}

function chart(row) {
  const points = row.points, most = Math.max(row.budget, ...points.map((point) => point[0])) * 1.1;
  const svg = draw("svg", { viewBox: `0 0 100 100`, preserveAspectRatio: "none", role: "img", "aria-label": "Tokens of each request: the view, and above it the whole list, cut off" });
  const x = (place) => (points.length < 2 ? 0 : (100 * place) / (points.length - 1));
  const y = (tokens) => 100 - Math.min(100, (100 * tokens) / most);
  const line = (which) => points.map((point, place) => `${x(place)},${y(point[which])}`).join(" ");
  svg.append(
    draw("polyline", { class: "raw", points: line(1) }),
    draw("polyline", { class: "view", points: line(0) }),
    draw("line", { class: "budget", x1: 0, x2: 100, y1: y(row.budget), y2: y(row.budget) }));
  return svg;
}

function open(name) {
  shown = name;
  location.hash = name;
  refresh().then(() => $("one").scrollIntoView({ block: "start" }));
}

function show(row) {
  const one = $("one");
  one.hidden = false;
  one.dataset.requests = String(row.requests);
  const wasOpen = new Set([...one.querySelectorAll("details[open]")].map((each) => each.dataset.number));
  one.replaceChildren(
    make("h3", {}, "Session"),
    make("h2", {}, row.label || row.name),
    make("p", { class: "soft" }, `${row.api} · ${row.model} · since ${new Date(row.began * 1000).toLocaleString()}`),
    make("div", { class: "cards" },
      card(`${share(row.view, row.budget)} %`, `of the budget of ${count(row.budget)} tokens is in the view`),
      card(count(row.history), "tokens in the whole list"),
      card(`${saved(row)} %`, "of the cost saved, cache and notes counted"),
      card(count(row.tokens_with), `tokens sent; ${count(row.tokens_without)} without views`),
      card(count(row.notes_tokens), "tokens of a model for notes")),
    chart(row),
    make("small", {}, "Blue: tokens of each view. Grey: of the whole list. Dashed: the budget."),
    make("h3", {}, row.events.length ? "Events, the newest first" : "Nothing has left the view yet."),
    ...[...row.events].reverse().map((event) => happened(row, event, wasOpen.has(String(event.number)))));
}

function happened(row, event, isOpen) {
  const what = event.error || `${count(event.tokens_before)} tokens became ${count(event.tokens_after)}`;
  const details = make("details", { "data-number": event.number },
    make("summary", {}, make("span", { class: `kind ${event.kind}` }, event.kind), ` ${event.reason}: ${what} `, make("small", {}, ago(event.at))));
  const fill = async () => {
    if (details.dataset.filled) return;
    details.dataset.filled = "yes";
    const views = await ask(`/gateway/sessions/${row.name}/events/${event.number}`);
    if (!views) return;
    const was = new Set(views.before.map((each) => each.text)), is = new Set(views.after.map((each) => each.text));
    const notesBefore = notes(views.before), notesAfter = notes(views.after);
    if (notesBefore && notesAfter && notesBefore !== notesAfter) {
      details.append(make("h4", {}, "The notes, as they were edited"), compared(notesBefore, notesAfter));
    }
    details.append(make("div", { class: "pair" },
      make("div", {}, make("h4", {}, "Before"), ...views.before.map((each) => message(each, is.has(each.text) ? "" : "gone"))),
      make("div", {}, make("h4", {}, "After"), ...views.after.map((each) => message(each, was.has(each.text) ? "" : "new")))));
  };
  details.addEventListener("toggle", () => details.open && fill());
  details.open = isOpen;
  return details;
}

const notes = (view) => view.filter((each) => each.is_ours).map((each) => each.text).join("\n");

function compared(before, after) {
  const was = before.split("\n"), is = after.split("\n");
  const had = new Set(was), has = new Set(is);
  const lines = [...was.filter((line) => !has.has(line)).map((line) => make("span", { class: "minus" }, `- ${line}\n`)),
    ...is.map((line) => (had.has(line) ? document.createTextNode(`  ${line}\n`) : make("span", { class: "plus" }, `+ ${line}\n`)))];
  return make("pre", { tabindex: "0" }, ...lines);
}

function message(each, state) {
  const text = make("pre", {});
  for (const part of each.text.split(/(ctx:\/\/[0-9a-f]{16})/)) {
    text.append(/^ctx:\/\/[0-9a-f]{16}$/.test(part) ? make("button", { class: "ref", click: (pressed) => read(part, pressed.target) }, part) : part);
  }
  return make("div", { class: `message ${each.is_ours ? "ours" : ""} ${state}` }, make("small", {}, each.is_ours ? `${each.role} · the memory's` : each.role), text);
}

async function read(ref, button) {
  const found = await ask(`/gateway/texts/${ref.slice(6)}`);
  const told = found ? found.text : "It is not in the gateway's store.";
  button.closest(".message").append(make("details", { open: "" }, make("summary", {}, ref), make("pre", { tabindex: "0" }, told)));
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value;
  sessionStorage.setItem("token", token);
  refresh();
});
shown = location.hash.slice(1) || null;
refresh();
setInterval(refresh, 2000);
