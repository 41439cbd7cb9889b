"use strict";
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
function copy(text) {
  if (navigator.clipboard && isSecureContext) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  return Promise.resolve();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.copy");
  if (!button) return;
  const from = button.dataset.copyFrom;
  copy(from ? document.getElementById(from).textContent : button.dataset.copy).then(() => {
    const was = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = was; }, 1200);
  });
});
function valueOf(row, column) {
  const cell = row.cells[column];
  const data = cell.querySelector("data");
  const value = data ? (data.value === "inf" ? Infinity : Number(data.value)) : NaN;
  return Number.isNaN(value) ? cell.textContent.trim() : value;
}
for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows];
      rows.sort((one, other) => {
        const a = valueOf(one, column), b = valueOf(other, column);
        const both = typeof a === "number" && typeof b === "number";
        const order = both ? (a === b ? 0 : a - b) : typeof a === typeof b ? a.localeCompare(b) : typeof a === "number" ? -1 : 1;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}
addEventListener("beforeprint", () => {
  for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.shut = ""; }
});
addEventListener("afterprint", () => {
  for (const one of document.querySelectorAll("details[data-shut]")) { one.open = false; delete one.dataset.shut; }
});
