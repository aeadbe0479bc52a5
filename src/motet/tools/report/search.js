// Search by name, and the keys of the page.
(() => {
  const { all, choose, known, nextTheme } = report;
  const field = document.getElementById("search"), said = document.getElementById("found");
  const help = document.getElementById("keys");
  let hits = [], at = -1;

  // Whether each of the words is in the title or a value of what is known of an element.
  function matches(key, words) {
    const [title, lines] = known[key];
    const text = [title, ...lines.map((line) => line[1])].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function search() {
    const words = field.value.toLowerCase().split(/[\s+]+/).filter(Boolean);
    document.body.classList.toggle("searching", words.length > 0);
    const found = new Set(words.length ? Object.keys(known).filter((key) => matches(key, words)) : []);
    for (const element of all("[data-o]")) element.classList.toggle("hit", found.has(element.dataset.o));
    hits = all("tr.hit");
    at = -1;
    said.textContent = words.length ? `${hits.length} of ${all("tr[data-o]").length} rows` : "";
  }

  // The next match: its row, its details, and its node.
  function next(step) {
    if (!hits.length) return;
    at = (at + step + hits.length) % hits.length;
    const row = hits[at], canvas = row.closest("section").querySelector(".canvas");
    choose(row);
    const own = report.canvases.find((each) => each.canvas === canvas);
    const select = `.node[data-o="${row.dataset.o}"]`;
    if (own && !canvas.querySelector(`.level:not([hidden]) ${select}`)) own.showWhole();
    const node = canvas.querySelector(`.level:not([hidden]) ${select}`);
    if (node) { canvas.scrollIntoView({ block: "nearest" }); own.reveal(node); }
    else row.scrollIntoView({ block: "nearest" });
    said.textContent = `${at + 1} of ${hits.length}`;
  }

  field.addEventListener("input", search);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") next(event.shiftKey ? -1 : 1);
    else if (event.key === "Escape") { field.value = ""; search(); field.blur(); }
  });
  addEventListener("keydown", (event) => {
    if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") field.focus();
    else if (event.key === "n" || event.key === "N") next(event.key === "n" ? 1 : -1);
    else if (event.key === "t") nextTheme();
    else if (event.key === "?") help.hidden = !help.hidden;
    else if (event.key === "Escape") help.hidden = true;
    else return;
    event.preventDefault();
  });
  document.getElementById("help").addEventListener("click", () => { help.hidden = !help.hidden; });
  for (const row of all("tr[data-o]")) row.tabIndex = 0;
})();
