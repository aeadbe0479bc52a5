// The table of kernels: sorted by any column; its limits, and the roofs, follow the rates.
(() => {
  const { all, seconds } = report;
  for (const table of all("table.kernels")) {
    const body = table.tBodies[0];
    all("th", table).forEach((head, column) => {
      let down = true;
      head.addEventListener("keydown", (event) => { if (event.key === "Enter") head.click(); });
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
