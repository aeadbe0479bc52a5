// The graph: its level, moved by dragging, zoomed by its buttons, the wheel with ctrl, and keys; labels that fit.
(() => {
  const { all, choose } = report;

  // Shorter and shorter forms of a text: facts lose their first ones; names, the file and line of the first one, then
  // its modules.
  function* shorter(whole) {
    const facts = whole.split(" · "), [first, ...others] = whole.split(" + "), name = first.split(": ").pop();
    for (let from = 0; from < facts.length; from++) yield facts.slice(from).join(" · ");
    if (facts.length > 1) return;
    const starts = Array.from(name.matchAll(/[./](?=.)/g), (match) => match.index + 1);
    if (name !== first) starts.unshift(0);
    for (const start of starts) yield ["…" + name.slice(start), ...others].join(" + ");
  }

  // Shortens texts to their room; where no form fits, the last one loses its end.
  function fitLabels(svg) {
    for (const text of all("text[data-fit]", svg)) {
      const room = Number(text.dataset.fit), whole = text.dataset.whole || text.textContent;
      text.dataset.whole = whole;
      let shown = whole;
      for (shown of shorter(whole)) {
        text.textContent = shown;
        if (!text.isConnected || text.getComputedTextLength() <= room) break;
      }
      while (text.isConnected && text.getComputedTextLength() > room && shown.length > 1) {
        shown = shown.slice(0, Math.max(1, Math.floor(shown.length * room / text.getComputedTextLength()) - 1));
        text.textContent = shown.trimEnd() + "…";
      }
    }
  }

  function open(canvas, svg) {
    const view = svg.querySelector(".view"), printed = svg.getAttribute("viewBox");
    const width = Number(svg.dataset.width), height = Number(svg.dataset.height);
    let scale = 1, x = 0, y = 0;
    const show = () => view.setAttribute("transform", `translate(${x} ${y}) scale(${scale})`);
    const self = {
      svg,
      size: () => [canvas.clientWidth, canvas.clientHeight],
      // A graph that fits need not be any higher; one that does not is read from its beginning.
      fit(least) {
        canvas.style.height =
          Math.min(720, Math.max(260, height * Math.min(1.15, canvas.clientWidth / width) + 4)) + "px";
        scale = Math.max(least, Math.min(1.15, canvas.clientWidth / width, canvas.clientHeight / height));
        x = Math.max(0, (canvas.clientWidth - width * scale) / 2);
        y = Math.max(0, (canvas.clientHeight - height * scale) / 2);
        show();
      },
      one() { x = Math.max(0, (canvas.clientWidth - width) / 2); y = 0; scale = 1; show(); },
      zoom(factor, atX, atY) {
        const next = Math.min(5, Math.max(0.02, scale * factor));
        x = atX - (atX - x) * next / scale;
        y = atY - (atY - y) * next / scale;
        scale = next;
        show();
      },
      move(byX, byY) { x += byX; y += byY; show(); },
      // Moves until a node is inside.
      reveal(node) {
        const box = node.getBoundingClientRect(), frame = canvas.getBoundingClientRect();
        if (!box.width) return;
        const inside = box.left >= frame.left && box.right <= frame.right && box.top >= frame.top &&
          box.bottom <= frame.bottom;
        if (inside) return;
        self.move(frame.left + frame.width / 2 - box.left - box.width / 2,
                  frame.top + frame.height / 2 - box.top - box.height / 2);
      },
      print(on) {
        if (on) { svg.setAttribute("viewBox", printed); view.removeAttribute("transform"); return; }
        svg.removeAttribute("viewBox");
        show();
      },
    };
    svg.removeAttribute("viewBox");
    return self;
  }

  report.canvases = [];
  for (const canvas of all(".canvas")) {
    const levels = all(".level", canvas), select = canvas.querySelector(".levels");
    const drawings = levels.map((level) => open(canvas, level.querySelector("svg.graph")));
    let at = levels.findIndex((level) => !level.hidden);
    const fitted = new Set();
    const current = () => drawings[at];
    const showLevel = (index) => {
      at = index;
      levels.forEach((level, place) => { level.hidden = place !== index; });
      if (select) select.value = String(index);
      if (!fitted.has(index)) fitLabels(current().svg);
      fitted.add(index);
      current().fit(0.62);
    };
    if (select) select.addEventListener("change", () => showLevel(Number(select.value)));
    // A module is opened by showing the next level, at its first operation.
    const enter = (node) => {
      if (!node.classList.contains("module") || at + 1 >= levels.length) return;
      const name = node.querySelector(".name").dataset.whole;
      showLevel(at + 1);
      const inside = all(".node", current().svg).find(
        (each) => (each.querySelector(".name").dataset.whole || "").startsWith(name));
      if (inside) { current().reveal(inside); inside.focus({ preventScroll: true }); choose(inside); }
    };
    for (const node of all(".node", canvas)) node.addEventListener("dblclick", () => enter(node));
    showLevel(at);
    for (const button of all("[data-zoom]", canvas)) {
      button.addEventListener("click", () => {
        const what = button.dataset.zoom, [width, height] = current().size();
        if (what === "fit") current().fit(0.02);
        else if (what === "one") current().one();
        else current().zoom(what === "in" ? 1.3 : 1 / 1.3, width / 2, height / 2);
      });
    }
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      current().zoom(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      if (!event.target.closest("button, select, label")) held = [event.clientX, event.clientY];
    });
    addEventListener("pointermove", (event) => {
      if (!held) return;
      canvas.classList.add("held");
      current().move(event.clientX - held[0], event.clientY - held[1]);
      held = [event.clientX, event.clientY];
    });
    addEventListener("pointerup", () => { held = null; canvas.classList.remove("held"); });
    addEventListener("beforeprint", () => current().print(true));
    addEventListener("afterprint", () => current().print(false));
    addEventListener("resize", () => current().fit(0.62));

    // Arrows go to the nearest node in their direction.
    const nearest = (node, across, down) => {
      const centre = (each) => {
        const box = each.getBoundingClientRect();
        return [box.left + box.width / 2, box.top + box.height / 2];
      };
      const [x, y] = centre(node);
      let best = null, least = Infinity;
      for (const each of all(".node", current().svg)) {
        const [atX, atY] = centre(each), along = (atX - x) * across + (atY - y) * down;
        const beside = Math.abs((atX - x) * down) + Math.abs((atY - y) * across);
        if (each !== node && along > 1 && along + 3 * beside < least) [best, least] = [each, along + 3 * beside];
      }
      return best;
    };
    const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };
    canvas.addEventListener("keydown", (event) => {
      const node = event.target.closest(".node"), [width, height] = current().size();
      if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("select")) return;
      if (node && event.key === "Enter") { choose(node); enter(node); }
      else if (node && ARROWS[event.key]) {
        const next = nearest(node, ...ARROWS[event.key]);
        if (next) { current().reveal(next); next.focus({ preventScroll: true }); choose(next); }
      } else if (event.key === "+") current().zoom(1.3, width / 2, height / 2);
      else if (event.key === "-") current().zoom(1 / 1.3, width / 2, height / 2);
      else if (event.key === "0") current().fit(0.02);
      else return;
      event.preventDefault();
    });
    report.canvases.push({
      canvas,
      showWhole() { showLevel(levels.length - 1); },
      reveal(node) { current().reveal(node); },
    });
  }
})();
