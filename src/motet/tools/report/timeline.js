// The timeline: as wide as is asked for; its ticks follow.
(() => {
  const { all, seconds } = report;
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
      const least = total / Math.min(600, Math.max(2, scroll.clientWidth * wide / 90)), power = 10 ** Math.floor(Math.log10(least));
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
    stretch(1, 0);
    addEventListener("resize", () => stretch(1, 0));
    for (const button of all("[data-time]", section)) {
      button.addEventListener("click", () => stretch(button.dataset.time === "in" ? 2 : 0.5, scroll.clientWidth / 2));
    }
    scroll.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      stretch(Math.exp(-event.deltaY / 300), event.clientX - scroll.getBoundingClientRect().left);
    }, { passive: false });
  }
})();
