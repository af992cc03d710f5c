"use strict";
(() => {
  const held = JSON.parse(document.getElementById("held").textContent);
  const views = [...document.querySelectorAll(".view")];
  const byName = Object.fromEntries(held.estimands.map((one) => [one.name, one]));
  const percent = (value) =>
    value === null ? "unknown" : (100 * value).toFixed(1) + "%";
  const make = (tag, text) => {
    const element = document.createElement(tag);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  document.querySelectorAll(".control").forEach((one) => (one.hidden = false));

  // Tables are sorted by the number of a cell, or by its text where it has none.
  const compare = new Intl.Collator(undefined, { numeric: true }).compare;
  for (const table of document.querySelectorAll("table.sortable")) {
    const head = [...table.tHead.rows[0].cells];
    head.forEach((cell, column) => {
      const button = make("button", cell.textContent);
      button.type = "button";
      cell.replaceChildren(button);
      button.addEventListener("click", () => {
        const falls = cell.getAttribute("aria-sort") === "ascending";
        head.forEach((other) => other.removeAttribute("aria-sort"));
        cell.setAttribute("aria-sort", falls ? "descending" : "ascending");
        const key = (row) => row.cells[column];
        const order = (a, b) =>
          key(a).dataset.value !== undefined && key(b).dataset.value !== undefined
            ? key(a).dataset.value - key(b).dataset.value
            : compare(key(a).textContent, key(b).textContent);
        const rows = [...table.tBodies[0].rows].sort(order);
        table.tBodies[0].append(...(falls ? rows.reverse() : rows));
      });
    });
  }

  const choice = document.getElementById("estimand");
  const choose = () =>
    views.forEach((view) => (view.hidden =
      choice.value !== "" && view.dataset.name !== choice.value));
  choice.addEventListener("input", choose);
  choose();
  addEventListener("beforeprint", () => views.forEach((view) => (view.hidden = false)));
  addEventListener("afterprint", choose);

  for (const view of views) {
    const slider = view.querySelector(".threshold");
    if (!slider) continue;
    const { values, people } = byName[view.dataset.name].curve;
    const show = () => {
      const value = values[slider.value];
      slider.setAttribute("aria-valuetext", String(value));
      view.querySelector(".threshold-answer").textContent =
        `${people[slider.value].toLocaleString("en")} of ` +
        `${held.total.toLocaleString("en")} ${held.unit.many} surely exceed ${value}.`;
    };
    slider.addEventListener("input", show);
    show();
  }

  const share = document.getElementById("share-treated");
  if (share) {
    const curve = held.value;
    const number = (value) => curve.is_signed
      ? (value > 0 ? "+" : "") + value.toFixed(1)
      : Number(value.toPrecision(4)).toString();
    const show = () => {
      const at = share.value;
      share.setAttribute("aria-valuetext", percent(curve.share[at]));
      document.getElementById("share-answer").textContent =
        `Treating ${percent(curve.share[at])} ${curve.phrase} ` +
        `${number(curve.lower[at])} to ${number(curve.upper[at])} ${curve.unit} ` +
        `(estimated bounds ${number(curve.bound_lower[at])} to ` +
        `${number(curve.bound_upper[at])}).`;
    };
    share.addEventListener("input", show);
    show();
  }

  // Figures for slides: in the colors of paper, on white, with the title that is read aloud.
  const paper = { blue: "#1f5fa8", orange: "#b34d12", grey: "#8a8f98", ink: "#1c2430" };
  const space = "http://www.w3.org/2000/svg";
  const titled = (figure) => {
    const copy = figure.cloneNode(true);
    const title = figure.getAttribute("aria-label");
    const lines = [""];
    for (const word of title.split(" "))
      if ((lines.at(-1) + word).length < 68) lines.push(`${lines.pop()} ${word}`.trim());
      else lines.push(word);
    const { width, height } = figure.viewBox.baseVal;
    const room = 14 * lines.length + 10;
    const add = (tag, attributes, text = "") => {
      const element = document.createElementNS(space, tag);
      for (const [name, value] of Object.entries(attributes))
        element.setAttribute(name, value);
      element.textContent = text;
      return element;
    };
    copy.setAttribute("viewBox", `0 ${-room} ${width} ${height + room}`);
    copy.setAttribute("width", width);
    copy.setAttribute("height", height + room);
    copy.prepend(
      add("rect", { x: 0, y: -room, width, height: height + room, fill: "#fff" }),
      ...lines.map((line, at) => add("text", { x: 8, y: 14 * (at + 1) - room + 2,
        fill: paper.ink, "font-family": "sans-serif", "font-size": 11 }, line)));
    const text = new XMLSerializer().serializeToString(copy)
      .replace(/var\(--(\w+)\)/g, (_, name) => paper[name]);
    return { text, width, height: height + room };
  };
  const save = (blob, name) => {
    const link = make("a");
    link.download = name;
    link.href = URL.createObjectURL(blob);
    link.click();
  };
  const saveFigure = (figure, kind) => {
    const { text, width, height } = titled(figure);
    const name = figure.getAttribute("aria-label").toLowerCase()
      .replace(/[^a-z0-9]+/g, "-").slice(0, 60).replace(/^-|-$/g, "") + `.${kind}`;
    const drawing = new Blob([text], { type: "image/svg+xml" });
    if (kind === "svg") return save(drawing, name);
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas");
      [canvas.width, canvas.height] = [3 * width, 3 * height];
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(blob, name), "image/png");
    };
    image.src = URL.createObjectURL(drawing);
  };
  for (const figure of document.querySelectorAll("figure > svg")) {
    const line = make("p", "Save this figure: ");
    line.className = "download";
    for (const kind of ["png", "svg"]) {
      const button = make("button", kind.toUpperCase());
      button.type = "button";
      button.addEventListener("click", () => saveFigure(figure, kind));
      line.append(button, " ");
    }
    figure.parentElement.after(line);
  }

  // One person: both ends, what binds them, and which part of the width can shrink.
  const describe = (one, at) => {
    const c = one.columns;
    const noise = Math.max(
      0, c.upper[at] - c.lower[at] - Math.max(0, c.bound_upper[at] - c.bound_lower[at]));
    const rest = Math.max(0, c.bound_upper[at] - c.bound_lower[at]);
    const item = make("li");
    item.append(
      make("b", `${one.label}: ${percent(c.lower[at])} to ${percent(c.upper[at])}.`),
      ` Estimated bounds: ${percent(c.bound_lower[at])} to ${percent(c.bound_upper[at])}.` +
      ` The lower end comes from: ${one.terms[c.binding_lower[at]]}.` +
      ` The upper end comes from: ${one.terms[c.binding_upper[at]]}.` +
      ` What would change it: more rows would remove up to ${(100 * noise).toFixed(1)} points of` +
      ` the width; the other ${(100 * rest).toFixed(1)} stay unless covariates tell more` +
      ` about this ${held.unit.one}.`);
    item.append(draw(one, at));
    return item;
  };
  const draw = ({ columns: c, limits: [floor, ceiling] }, at) => {
    const bar = make("div");
    bar.className = "bar";
    const place = (value) => Math.min(100, Math.max(0,
      (100 * (value - floor)) / (ceiling - floor)));
    for (const kind of ["", "bound_"]) {
      const part = make(kind ? "b" : "i");
      const [left, right] = ["lower", "upper"].map((end) => place(c[kind + end][at]));
      part.style.left = `${left}%`;
      part.style.width = `${Math.max(0.5, right - left)}%`;
      bar.append(part);
    }
    return bar;
  };
  const field = document.getElementById("row");
  const answer = document.getElementById("person");
  const find = () => {
    const wanted = field.value.trim();
    const at = held.rows.indexOf(wanted);
    if (!wanted) return answer.replaceChildren();
    if (at < 0) {
      const near = held.rows.filter((name) => name.startsWith(wanted)).slice(0, 8);
      return answer.replaceChildren(make("p", near.length
        ? `No ${held.key} ${wanted}; those that start so: ${near.join(", ")}.`
        : `No ${held.key} ${wanted} on this page.`));
    }
    const list = make("ul");
    list.append(...held.estimands.map((one) => describe(one, at)));
    if (held.estimands[0].columns.is_outside[at])
      list.append(make("li", "A covariate lies outside what one of the tables holds."));
    const differ = held.estimands[0].columns.disagreement?.[at];
    if (differ != null)
      list.append(make("li", `Learners differ by ${(100 * differ).toFixed(1)} points.`));
    answer.replaceChildren(make("p", `${held.key[0].toUpperCase()}${held.key.slice(1)} ${wanted}`), list);
  };
  field.addEventListener("input", find);

  const names = ["lower", "upper", "bound_lower", "bound_upper",
    "binding_lower", "binding_upper"];
  const quote = (text) => '"' + String(text).replaceAll('"', '""') + '"';
  const csv = document.getElementById("people-csv");
  csv.download = "people.csv";
  csv.addEventListener("click", () => {
    const lines = [[/[",\n]/.test(held.key) ? quote(held.key) : held.key, "estimand", ...names].join(",")];
    for (const { name, columns } of held.estimands)
      held.rows.forEach((row, at) => lines.push([quote(row), name, ...names.map(
        (column) => quote(columns[column][at]))].join(",")));
    csv.href = URL.createObjectURL(new Blob([lines.join("\n") + "\n"], { type: "text/csv" }));
  });
})();
