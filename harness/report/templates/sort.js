// Tables sort by any column, by mouse or keyboard; without this script they are plain tables.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, at) => {
    if (head.classList.contains("drawn")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...body.rows].sort((a, b) => compare(a.cells[at], b.cells[at], down ? -1 : 1)));
    });
  });
}

function compare(a, b, sign) { // empty cells stay last
  const [x, y] = [a, b].map((cell) => cell.dataset.sort ?? cell.textContent.trim());
  if (x === "" || y === "") return (x === "") - (y === "");
  const [m, n] = [Number(x), Number(y)];
  return sign * (Number.isNaN(m) || Number.isNaN(n) ? x.localeCompare(y) : m - n);
}
