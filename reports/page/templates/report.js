// Sorting, filtering, tooltips and downloads for one report page. Reads the page's own embedded data, never a network.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const all = (selector, root = document) => Array.from(root.querySelectorAll(selector));

  // A column of runs with one value throughout stands once, in `same`: every row with all its columns.
  data.experiments.forEach(({ runs }) => {
    const { columns, same } = runs;
    runs.rows.forEach((own, i) => {
      let place = 0;
      runs.rows[i] = columns.map((c) => (c in same ? same[c] : own[place++]));
    });
  });

  // Sorting: a header button sorts its table by the first data-v of a cell, else by its text; empty cells go last.
  const value = (row, column) => {
    const cell = row.cells[column];
    const own = (cell.dataset.v ?? cell.querySelector("[data-v]")?.dataset.v.split(",")[0] ?? cell.textContent).trim();
    return own === "" || own === "–" ? null : own !== "" && isFinite(own) ? Number(own) : own;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));
  function sort(table, column, direction) {
    const sign = direction === "descending" ? -1 : 1;
    const rows = all("tbody tr", table).map((row, place) => ({ row, place, key: value(row, column) }));
    rows.sort((a, b) => {
      if (a.key === null || b.key === null) return (a.key === null) - (b.key === null) || a.place - b.place;
      return sign * compare(a.key, b.key) || a.place - b.place;
    });
    table.tBodies[0].append(...rows.map((r) => r.row));
    all("thead th", table).forEach((th, i) => (i === column ? th.setAttribute("aria-sort", direction) : th.removeAttribute("aria-sort")));
  }
  all("table.sortable").forEach((table) =>
    all("thead th", table).forEach((th, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...th.childNodes);
      th.append(button);
      button.addEventListener("click", () => sort(table, column, th.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending"));
    }),
  );

  // Filtering: every word must occur in the row.
  all("input[data-filter]").forEach((input) => {
    const table = document.getElementById(input.dataset.filter);
    const rows = all("tbody tr", table).map((row) => ({ row, text: row.textContent.toLowerCase() }));
    const count = document.getElementById(input.dataset.filter + "-count");
    const apply = () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach(({ row, text }) => {
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = `${shown} of ${rows.length} ${input.dataset.what}`;
    };
    input.addEventListener("input", apply);
    apply();
  });

  // A mark tells what it is on hover; a click on a run's mark leads to its row.
  const tip = document.getElementById("tip");
  document.addEventListener("pointermove", (event) => {
    const mark = event.target.closest("[data-tip]"), run = mark ? null : runAt(event);
    tip.hidden = !mark && !run;
    if (tip.hidden) return;
    tip.textContent = mark ? mark.dataset.tip : story(run);
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = Math.max(4, event.clientY - box.height - 12) + "px";
  });
  // A term tells its meaning to the keyboard and to a finger, too.
  all("[data-tip]:not(svg *)").forEach((term) => {
    const tell = () => {
      tip.hidden = false;
      tip.textContent = term.dataset.tip;
      const at = term.getBoundingClientRect(), box = tip.getBoundingClientRect();
      tip.style.left = Math.max(4, Math.min(at.left, innerWidth - box.width - 8)) + "px";
      tip.style.top = Math.max(4, at.top - box.height - 6) + "px";
    };
    term.addEventListener("focusin", tell);
    term.addEventListener("click", tell);
    term.addEventListener("focusout", () => (tip.hidden = true));
  });
  // What is in the closed appendix is opened to be printed.
  addEventListener("beforeprint", () => all("details.appendix").forEach((d) => (d.open = true)));
  const digits = (value, text) => (value === null ? "not known" : text(value));
  const spots = new WeakMap(); // a path of dots -> [x, y, row number] of each
  function runAt(event) {
    const mark = event.target.closest("svg [data-run], svg .dots");
    if (!mark) return null;
    const { columns, rows } = data.experiments[Number(mark.closest("[data-experiment]").dataset.experiment)].runs;
    const named = (row) => Object.fromEntries(columns.map((c, i) => [c, row[i]]));
    if (mark.dataset.run) return named(rows.find((r) => r[columns.indexOf("run_id")] === mark.dataset.run));
    if (!spots.has(mark)) {
      const numbers = mark.dataset.rows.split(" ").map(Number);
      spots.set(mark, [...mark.getAttribute("d").matchAll(/M(\S+) (\S+?)a(\d+)/g)].map(([, x, y, r], i) => [Number(x) + Number(r), Number(y), numbers[i]]));
    }
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(mark.getScreenCTM().inverse());
    const [nearest] = spots.get(mark).map(([x, y, n]) => [Math.hypot(x - at.x, y - at.y), n]).sort((a, b) => a[0] - b[0]);
    return named(rows[nearest[1]]);
  }
  function story({ arm, seed, run_id, val_loss, step_ms }) {
    const loss = digits(val_loss, (v) => v.toFixed(4)), ms = digits(step_ms, (v) => v.toPrecision(4));
    return `${arm}, ${seed === null ? run_id : "seed " + seed}: loss ${loss}, ${ms} ms a step`;
  }
  document.addEventListener("click", (event) => {
    const run = runAt(event);
    if (run) show(run.run_id);
  });
  function show(run) {
    all("tr.found").forEach((row) => row.classList.remove("found"));
    const row = all("tr[data-run]").find((r) => r.dataset.run === run);
    if (!row) return;
    row.hidden = false;
    row.classList.add("found");
    row.scrollIntoView({ block: "center" });
  }

  // The legend picks one arm out of a figure; a second press lets it go.
  all(".legend button").forEach((button) =>
    button.addEventListener("click", () => {
      const figure = button.closest("figure");
      const on = button.getAttribute("aria-pressed") !== "true";
      all(".legend button", figure).forEach((b) => b.setAttribute("aria-pressed", String(on && b === button)));
      all("svg .series", figure).forEach((g) => g.classList.toggle("dim", on && g.dataset.armGroup !== button.dataset.armGroup));
    }),
  );

  // A touch on an arm's marks picks it out in its figure; a second one, or one beside the marks, lets it go.
  all("figure svg").forEach((svg) =>
    svg.addEventListener("click", (event) => {
      const series = event.target.closest(".series"), figure = svg.closest("figure");
      const on = series && !series.classList.contains("picked");
      all("svg .series", figure).forEach((g) => {
        const same = series && g.dataset.armGroup === series.dataset.armGroup;
        g.classList.toggle("picked", Boolean(on && same));
        g.classList.toggle("dim", Boolean(on && !same));
      });
    }),
  );

  // Downloads: the data behind a figure or a table, as CSV. A text that a spreadsheet would take for a formula gets an apostrophe
  // in front (OWASP, CSV injection); numbers are left alone.
  const cell = (v) => {
    const text = v === null || v === undefined ? "" : typeof v === "string" ? v.replace(/^[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]/, "'$&") : String(v);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const tables = {
    runs: (e) => e.runs,
    curves: (e) => ({
      columns: ["run_id", "step", "val_loss", "train_time_s"],
      rows: Object.entries(e.curves).flatMap(([run, c]) => e.steps[c.step].map((s, i) => [run, s, c.val_loss[i], c.train_time_s[i]])),
    }),
  };
  const drawn = (e, { same_as, columns, rows, runs }) => {
    if (same_as) return drawn(e, e.figures[same_as]);
    const at = columns.map((c) => e.runs.columns.indexOf(c));
    return { columns, rows: rows ?? runs.map((i) => at.map((k) => e.runs.rows[i][k])) };
  };
  all("button[data-csv]").forEach((button) =>
    button.addEventListener("click", () => {
      const experiment = data.experiments[Number(button.dataset.experiment)];
      const name = button.dataset.csv;
      const table = (tables[name] ?? ((e) => drawn(e, e.figures[name])))(experiment);
      const lines = [table.columns, ...table.rows].map((row) => row.map(cell).join(","));
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([lines.join("\r\n") + "\r\n"], { type: "text/csv" }));
      link.download = `${experiment.plan.name.replaceAll("/", "-")}-${name}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    }),
  );

  // A link can carry a view: #sort=val_loss:descending&filter=r08
  const view = new URLSearchParams(location.hash.slice(1));
  const runs = document.querySelector("table.runs");
  if (runs && view.get("sort")) {
    const [key, direction] = view.get("sort").split(":");
    const column = all("thead th", runs).findIndex((th) => th.dataset.key === key);
    if (column >= 0) sort(runs, column, direction === "descending" ? "descending" : "ascending");
  }
  const box = document.querySelector("input[data-filter][data-what=runs]");
  if (box && view.get("filter")) {
    box.value = view.get("filter");
    box.dispatchEvent(new Event("input"));
  }
})();
