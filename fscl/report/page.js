"use strict";
// The page can be read without this script. With it, tables sort, and figures say the value under the pointer.
(() => {
  // Tables: each heading of a table.sortable becomes a button. A cell's number is its data-value; a column that has none
  // sorts by its words.

  function makeSortable(table) {
    const body = table.tBodies[0];
    const rows = [...body.rows]; // in the order of the file
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const cells = rows.map((row) => row.cells[column]);
        const numeric = cells.some((cell) => cell?.hasAttribute("data-value"));
        const ascends = !numeric || head.dataset.order === "ascending"; // the best first, or the first of the alphabet
        const orders = ascends ? ["ascending", "descending"] : ["descending", "ascending"];
        const order = orders[orders.indexOf(head.getAttribute("aria-sort")) + 1]; // none after the second
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        if (order) head.setAttribute("aria-sort", order);
        const key = numeric ? (cell) => Number.parseFloat(cell?.dataset.value) : (cell) => cell?.textContent.trim() ?? "";
        body.append(...(order ? sorted(rows, cells.map(key), order === "ascending" ? 1 : -1) : rows));
      });
    });
  }

  function sorted(rows, keys, sign) {
    const compare = (a, b) => {
      if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b); // missing ones last both ways
      return sign * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
    };
    const places = rows.map((_, place) => place).sort((i, j) => compare(keys[i], keys[j]) || i - j);
    return places.map((place) => rows[place]);
  }

  // Figures: one floating box for all of them. What it says stands in the SVG: in the titles of circles, and as counts
  // of a matrix.

  const REACH = 30; // pixels from the pointer to a point
  const MEET = 4; // pixels; points as close as this to the nearest one are named with it
  const MOST_NAMED = 8;
  const box = document.createElement("div");
  box.className = "tip";
  box.setAttribute("role", "status");
  let marked = [];
  const follow = []; // what puts the box back in its place when the page moves under it

  function show(text, x, y) {
    box.textContent = text;
    const left = Math.min(x + 14, document.documentElement.clientWidth - box.offsetWidth - 6);
    const above = y - box.offsetHeight - 12;
    box.style.left = `${Math.max(left, 6)}px`;
    box.style.top = `${above >= 6 ? above : y + 20}px`;
  }

  function hide() {
    box.textContent = "";
    mark([]);
  }

  function mark(points) {
    marked.forEach((point) => point.circle.classList.remove("on"));
    marked = points;
    marked.forEach((point) => point.circle.classList.add("on"));
  }

  // The box replaces the browser's own, which would come later and lie over it.
  function takeTitle(element) {
    const title = element.querySelector("title");
    title?.remove();
    return title?.textContent ?? "";
  }

  function readPoints(svg) {
    return [...svg.querySelectorAll(".tips")].flatMap((line) =>
      [...line.querySelectorAll("circle")].map((circle) => {
        return { circle, line, x: circle.cx.baseVal.value, y: circle.cy.baseVal.value, text: takeTitle(circle) };
      }),
    );
  }

  function nearestTo(svg, points, x, y) {
    const toScreen = svg.getScreenCTM();
    const here = new DOMPoint(x, y).matrixTransform(toScreen.inverse());
    let [nearest, distance] = [null, REACH / toScreen.a];
    for (const point of points) {
      const far = Math.hypot(point.x - here.x, point.y - here.y);
      if (far < distance) [nearest, distance] = [point, far];
    }
    return nearest;
  }

  function showPoint(svg, points, nearest, x, y) {
    const toScreen = svg.getScreenCTM();
    const near = (point) => Math.hypot(point.x - nearest.x, point.y - nearest.y) <= MEET / toScreen.a;
    const here = points.filter(near);
    const texts = here.slice(0, MOST_NAMED).map((point) => point.text);
    if (here.length > MOST_NAMED) texts.push(`and ${here.length - MOST_NAMED} more`);
    const at = new DOMPoint(nearest.x, nearest.y).matrixTransform(toScreen);
    mark(here);
    show(texts.join("\n"), x ?? at.x, y ?? at.y);
    return true;
  }

  function readMatrix(rectangle) {
    takeTitle(rectangle);
    const rows = rectangle.dataset.cells.split(";").map((row) => {
      return new Map(row ? row.split(",").map((cell) => cell.split(":").map(Number)) : []);
    });
    const sums = rows.map((row) => [...row.values()].reduce((sum, count) => sum + count, 0));
    return { rectangle, rows, sums };
  }

  function cellText({ rectangle, rows, sums }, x, y) {
    const place = rectangle.getBoundingClientRect();
    const column = Math.floor(((x - place.left) / place.width) * rows.length);
    const row = Math.floor(((y - place.top) / place.height) * rows.length);
    if (!(row in rows) || !(column in rows)) return "";
    if (!sums[row]) return `true class ${row + 1}: no images`;
    const count = rows[row].get(column) ?? 0;
    const share = ((100 * count) / sums[row]).toFixed(1);
    return `true class ${row + 1}, answered ${column + 1}: ${share} % (${count} of ${sums[row]})`;
  }

  // Arrow keys: left and right along a line, up and down between the lines.
  const MOVES = {
    ArrowLeft: (from, to) => to.line === from.line && from.x - to.x,
    ArrowRight: (from, to) => to.line === from.line && to.x - from.x,
    ArrowUp: (from, to) => Math.abs(to.x - from.x) < 0.5 && from.y - to.y,
    ArrowDown: (from, to) => Math.abs(to.x - from.x) < 0.5 && to.y - from.y,
  };

  function moved(points, from, key) {
    const ahead = points.filter((to) => MOVES[key](from, to) > 0);
    return ahead.reduce((best, to) => (MOVES[key](from, to) < MOVES[key](from, best) ? to : best), ahead[0] ?? from);
  }

  function makeTelling(svg) {
    const points = readPoints(svg);
    const matrices = [...svg.querySelectorAll(".cells[data-cells]")].map(readMatrix);
    const point = (event) => {
      const [x, y] = [event.clientX, event.clientY];
      const nearest = nearestTo(svg, points, x, y);
      const text = matrices.map((matrix) => cellText(matrix, x, y)).find(Boolean);
      if (nearest) showPoint(svg, points, nearest, x, y);
      else if (text) show(text, x, y);
      else hide();
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    // A finger that is lifted has left too, but its reader has not.
    svg.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide());
    if (!points.length) return;
    svg.tabIndex = 0;
    let current = points[0];
    svg.addEventListener("focus", () => svg.matches(":focus-visible") && showPoint(svg, points, current));
    svg.addEventListener("blur", hide);
    follow.push(() => svg.matches(":focus-visible") && marked.length > 0 && showPoint(svg, points, current));
    svg.addEventListener("keydown", (event) => {
      if (!(event.key in MOVES) || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault(); // the page stays where it is
      current = moved(points, current, event.key);
      showPoint(svg, points, current);
    });
  }

  // The point of the keyboard stays chosen; that of a pointer is no longer under it.
  function scrolled() {
    if (!follow.some((place) => place())) hide();
  }

  document.querySelectorAll("table.sortable").forEach(makeSortable);
  document.body.append(box);
  document.querySelectorAll("figure svg").forEach(makeTelling);
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  document.addEventListener("pointerdown", (event) => event.target.closest("figure svg") || hide());
  document.addEventListener("scroll", scrolled, { capture: true, passive: true }); // figures scroll too, on a phone
})();
