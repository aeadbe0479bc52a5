"use strict";
(() => {
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
    const choose = () => {
      for (const other of all(".chosen")) other.classList.remove("chosen");
      for (const each of marked.get(key)) each.classList.add("chosen");
      fill(element.closest("section").querySelector(".details"), key);
    };
    element.addEventListener("click", choose);
    element.addEventListener("keydown", (event) => { if (event.key === "Enter") choose(); });
  }

  // The graph: moved by dragging, zoomed by its buttons and the wheel with ctrl.
  for (const canvas of all(".canvas")) {
    const svg = canvas.querySelector("svg.graph"), view = svg.querySelector(".view");
    const width = Number(svg.dataset.width), height = Number(svg.dataset.height);
    const printed = svg.getAttribute("viewBox");
    let scale = 1, x = 0, y = 0;
    const show = () => view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    const fit = (least) => {
      const box = canvas.getBoundingClientRect();
      scale = Math.max(least, Math.min(1.15, box.width / width, box.height / height));
      x = Math.max(0, (box.width - width * scale) / 2);
      y = Math.max(0, (box.height - height * scale) / 2);
      show();
    };
    const zoom = (factor, atX, atY) => {
      const next = Math.min(5, Math.max(0.02, scale * factor));
      x = atX - (atX - x) * next / scale;
      y = atY - (atY - y) * next / scale;
      scale = next;
      show();
    };
    // A graph that fits need not be any higher; one that does not is read from its beginning.
    svg.removeAttribute("viewBox");
    canvas.style.height = Math.min(720, Math.max(260, height * Math.min(1.15, canvas.clientWidth / width) + 4)) + "px";
    fit(0.62);
    for (const button of all("[data-zoom]", canvas)) {
      button.addEventListener("click", () => {
        const what = button.dataset.zoom, box = canvas.getBoundingClientRect();
        if (what === "fit") fit(0.02);
        else if (what === "one") { x = Math.max(0, (box.width - width) / 2); y = 0; scale = 1; show(); }
        else zoom(what === "in" ? 1.3 : 1 / 1.3, box.width / 2, box.height / 2);
      });
    }
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (event.target.closest("button")) return;
      held = [event.clientX - x, event.clientY - y];
    });
    addEventListener("pointermove", (event) => {
      if (!held) return;
      canvas.classList.add("held");
      [x, y] = [event.clientX - held[0], event.clientY - held[1]];
      show();
    });
    addEventListener("pointerup", () => { held = null; canvas.classList.remove("held"); });
    addEventListener("beforeprint", () => { svg.setAttribute("viewBox", printed); view.removeAttribute("transform"); });
    addEventListener("afterprint", () => { svg.removeAttribute("viewBox"); show(); });
  }

  // The timeline: as wide as is asked for; its ticks follow.
  const NS = "http://www.w3.org/2000/svg";
  for (const section of all("section.function")) {
    const scroll = section.querySelector(".scroll"), svg = section.querySelector("svg.time");
    const total = Number(svg.dataset.seconds), ticks = svg.querySelector(".ticks");
    let wide = 1;
    const stretch = (factor, at) => {
      const next = Math.min(400, Math.max(1, wide * factor));
      const place = (scroll.scrollLeft + at) / wide;
      wide = next;
      svg.style.width = 100 * wide + "%";
      scroll.scrollLeft = place * wide - at;
      const least = total / Math.min(600, 10 * wide), power = 10 ** Math.floor(Math.log10(least));
      const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least * 0.999);
      ticks.replaceChildren();
      for (let moment = step; moment < total; moment += step) {
        const line = document.createElementNS(NS, "line"), text = document.createElementNS(NS, "text");
        const where = 100 * moment / total + "%";
        for (const [name, value] of [["x1", where], ["x2", where], ["y1", 18], ["y2", svg.getAttribute("height")]]) {
          line.setAttribute(name, value);
        }
        text.setAttribute("x", where);
        text.setAttribute("y", 13);
        text.textContent = seconds(moment);
        ticks.append(line, text);
      }
    };
    for (const button of all("[data-time]", section)) {
      button.addEventListener("click", () => stretch(button.dataset.time === "in" ? 2 : 0.5, scroll.clientWidth / 2));
    }
    scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      stretch(Math.exp(-event.deltaY / 300), event.clientX - scroll.getBoundingClientRect().left);
    }, { passive: false });
  }

  // The table of kernels: sorted by any column; its limits follow the rates.
  for (const table of all("table.kernels")) {
    const body = table.tBodies[0];
    all("th", table).forEach((head, column) => {
      let down = true;
      head.addEventListener("click", () => {
        const value = (row) => row.cells[column].dataset.v;
        const rows = Array.from(body.rows).sort((a, b) => value(a) === undefined
          ? a.cells[column].textContent.localeCompare(b.cells[column].textContent, undefined, { numeric: true })
          : value(b) - value(a));
        body.append(...(down ? rows : rows.reverse()));
        down = !down;
      });
    });
  }
  for (const section of all("section.function")) {
    const inputs = all("input[data-rate]", section);
    const work = () => {
      for (const row of all("table.kernels tr[data-flops]", section)) {
        const rate = {};
        for (const input of inputs) {
          if (input.dataset.device === row.dataset.device) rate[input.dataset.rate] = Number(input.value) * 1e9;
        }
        const computing = Number(row.dataset.flops) / rate.flops, moving = Number(row.dataset.bytes) / rate.bytes;
        const limit = Math.max(computing, moving), cost = Number(row.dataset.seconds) / limit;
        const sound = Number.isFinite(limit) && limit > 0;
        const cell = (name) => row.querySelector("td." + name);
        cell("limit").textContent = sound ? seconds(limit) : "-";
        cell("limit").dataset.v = sound ? limit : 0;
        cell("by").textContent = sound ? (computing >= moving ? "arithmetic" : "memory") : "-";
        cell("cost").textContent = sound && cost ? Number(cost.toPrecision(3)) + " ×" : "-";
        cell("cost").dataset.v = sound ? cost : 0;
      }
    };
    // The roof on the same rates; logarithms of both scales run from 0 to 100.
    const roof = (line) => {
      const [left, right, low, high] = line.dataset.scales.split(" ").map(Number), rate = {};
      for (const input of inputs) {
        if (input.dataset.device === line.dataset.device) rate[input.dataset.rate] = Number(input.value) * 1e9;
      }
      if (!(rate.flops > 0 && rate.bytes > 0)) return;
      const across = (value) => 100 * Math.log(value / left) / Math.log(right / left);
      const up = (value) => 100 - 100 * Math.log(value / low) / Math.log(high / low);
      const ends = [[left, left * rate.bytes], [rate.flops / rate.bytes, rate.flops], [right, rate.flops]];
      line.setAttribute("points", ends.map(([x, y]) => across(x) + "," + up(y)).join(" "));
    };
    for (const input of inputs) {
      input.addEventListener("input", () => { work(); all(".roof", section).forEach(roof); });
    }
  }
})();
