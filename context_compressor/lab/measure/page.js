"use strict";

function make(tag, kind, ...held) {
  const made = document.createElement(tag);
  if (kind) made.className = kind;
  made.append(...held);
  return made;
}

/** Return for each turn the view before it, with what was added since, and the view that was sent. */
function follow(turns) {
  let view = [];
  return turns.map(([kept, first, count, ...rest]) => {
    const before = [...view, ...Array.from({ length: count }, (_, i) => first + i)];
    view = [...view.slice(0, kept), ...rest];
    return { before, view };
  });
}

function showMessage([role, kind, index, head, left, tail]) {
  const tag = kind ? [make("span", `kind ${kind}`, kind === "stub" ? "offloaded" : kind), " "] : [];
  const name = index === null ? role : `${role}, message ${index}`;
  const first = make("small", "", `${head.trim().slice(0, 100)}`);
  const cut = left ? [make("span", "cut", `… ${left.toLocaleString("en")} characters left out of this report …`)] : [];
  const text = make("pre", "", head, ...cut, tail);
  text.tabIndex = 0;
  const shown = make("details", "", make("summary", "", ...tag, name, first), text);
  shown.open = kind === "notes";
  return shown;
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (one) => one.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

async function start(box) {
  const { messages, turns, tokens, events } = await unpack(box.querySelector("script").textContent);
  const [controls, place] = [box.querySelector(".controls"), box.querySelector(".shown")];
  const [entry, slider, back, on] = controls.querySelectorAll("input, button");
  const seen = follow(turns);
  const list = (title, indexes) =>
    make("div", "", make("h4", "", `${title}: ${indexes.length} message${indexes.length === 1 ? "" : "s"}`), ...indexes.map((i) => showMessage(messages[i])));

  function show(wanted) {
    const turn = Math.min(Math.max(Math.trunc(wanted) || 1, 1), seen.length);
    const { before, view } = seen[turn - 1];
    const [had, has] = [new Set(before), new Set(view)];
    const left = before.filter((i) => !has.has(i));
    const came = view.filter((i) => !had.has(i));
    const happened = events.filter(([at]) => at === turn).map(([, label]) => ` · ${label}`);
    const count = `${tokens[turn - 1].toLocaleString("en")} tokens`;
    const parts = [make("p", "", `Turn ${turn} of ${seen.length}: ${count}${happened.join("")}`)];
    if (left.length || came.length) {
      parts.push(make("div", "pair", list("What left the view", left), list("What came into it", came)));
    }
    place.replaceChildren(...parts, list("The whole view", view));
    entry.value = slider.value = turn;
    back.disabled = !events.some(([at]) => at < turn);
    on.disabled = !events.some(([at]) => at > turn);
  }

  entry.max = slider.max = seen.length;
  entry.onchange = () => show(entry.value);
  slider.oninput = () => show(slider.value);
  back.onclick = () => show(events.findLast(([at]) => at < entry.value)[0]);
  on.onclick = () => show(events.find(([at]) => at > entry.value)[0]);
  controls.hidden = false;
  show(events.length ? events[0][0] : seen.length);
  return show;
}

for (const box of document.querySelectorAll("details.views")) {
  let show = null;
  const begin = () => (show ??= start(box));
  box.addEventListener("toggle", begin);
  for (const link of [...document.links].filter((one) => one.hash === `#${box.id}`)) {
    link.addEventListener("click", async () => {
      box.open = true;
      (await begin())(link.textContent.replaceAll(",", ""));
    });
  }
}
