"use strict";
// What the other parts of the page share: elements, details, marks.
const report = (() => {
  const known = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");
  const all = (selector, root) => Array.from((root || document).querySelectorAll(selector));

  function make(tag, text, parent) {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    if (parent) parent.appendChild(element);
    return element;
  }

  function fill(target, key, most) {
    const [title, lines] = known[key];
    target.replaceChildren();
    make("h4", title, target);
    const list = make("dl", undefined, target);
    list.className = "facts";
    for (const [name, value] of lines.slice(0, most || lines.length)) {
      make("dt", name, list);
      make("dd", value, list);
    }
    return list;
  }

  // Everything that stands for one operation is marked together, and the edges to and from it.
  const marked = new Map();
  for (const element of all("[data-o]")) {
    const key = element.dataset.o;
    if (!marked.has(key)) marked.set(key, []);
    marked.get(key).push(element);
  }
  const edges = all("[data-from]");

  function mark(key, on) {
    for (const element of marked.get(key) || []) element.classList.toggle("same", on);
    for (const edge of edges) {
      if (edge.dataset.from === key || edge.dataset.to === key) edge.classList.toggle("near", on);
    }
  }

  function seconds(value) {
    for (const [factor, unit] of [[1e9, "ns"], [1e6, "µs"], [1e3, "ms"]]) {
      if (value * factor < 999.5) return Number((value * factor).toPrecision(3)) + " " + unit;
    }
    return Number(value.toPrecision(3)) + " s";
  }

  // Shows what is known of an element, and marks what stands for the same operation.
  function choose(element) {
    const key = element.dataset.o;
    if (!known[key]) return;
    for (const other of all(".chosen")) other.classList.remove("chosen");
    for (const each of marked.get(key)) each.classList.add("chosen");
    fill(element.closest("section").querySelector(".details"), key);
  }

  for (const element of all("[data-o]")) {
    const key = element.dataset.o;
    if (!known[key]) continue;
    element.addEventListener("mouseenter", () => {
      mark(key, true);
      if (element.tagName === "TR") return;
      const list = fill(tip, key, 9);
      if (element.dataset.t) {
        const [begin, length] = element.dataset.t.split(" ").map(Number);
        make("dt", "here", list);
        make("dd", "from " + seconds(begin) + ", for " + seconds(length), list);
      }
      tip.hidden = false;
    });
    element.addEventListener("mousemove", (event) => {
      const right = event.clientX + 16 + tip.offsetWidth > innerWidth;
      const low = event.clientY + 16 + tip.offsetHeight > innerHeight;
      tip.style.left = Math.max(4, right ? event.clientX - tip.offsetWidth - 12 : event.clientX + 16) + "px";
      tip.style.top = Math.max(4, low ? event.clientY - tip.offsetHeight - 12 : event.clientY + 16) + "px";
    });
    element.addEventListener("mouseleave", () => { mark(key, false); tip.hidden = true; });
    element.addEventListener("click", () => choose(element));
    element.addEventListener("focus", () => { if (element.matches(":focus-visible")) choose(element); });
  }

  // The theme: the system's, or the one that was chosen last.
  const root = document.documentElement, themes = ["", "light", "dark"];
  const setTheme = (name) => {
    root.dataset.theme = name;
    const button = document.getElementById("theme");
    button.textContent = "theme: " + (name || "system");
  };
  const nextTheme = () => setTheme(themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length]);
  document.getElementById("theme").addEventListener("click", nextTheme);
  const asked = new URLSearchParams(location.search).get("theme");
  setTheme(themes.includes(asked) ? asked : "");

  return { all, make, known, seconds, choose, nextTheme };
})();
