"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const svgns = "http://www.w3.org/2000/svg";
  const minus = (text) => text.replace(/-/g, "\u2212");
  const shown = (v) => v === null || v === undefined ? "\u2013" : minus(Math.abs(v) >= 1e6 || (v !== 0 && Math.abs(v) < 1e-3) ? v.toExponential(2) : String(Number(v.toPrecision(4))));
  const made = (tag, attributes) => { const e = document.createElementNS(svgns, tag); for (const k in attributes) e.setAttribute(k, attributes[k]); return e; };

  const nearest = (steps, x) => {
    let low = 0, high = steps.length - 1;
    while (high - low > 1) { const mid = (low + high) >> 1; if (steps[mid] <= x) low = mid; else high = mid; }
    return x - steps[low] <= steps[high] - x ? low : high;
  };
  const charts = data.charts.map((chart, place) => {
    const figure = document.querySelector(`figure[data-c="${place}"]`);
    const svg = figure.querySelector("svg");
    return { ...chart, svg, cursor: svg.querySelector(".cursor"), values: [...figure.querySelectorAll(".keys var")], step: figure.querySelector(".step") };
  });
  for (const chart of charts) chart.rest = chart.values.map((v) => v.textContent);

  const xOf = (chart, step) => chart.x[2] + (step - chart.x[0]) / (chart.x[1] - chart.x[0]) * (chart.x[3] - chart.x[2]);
  const yOf = (chart, value) => {
    let [low, high, start, end] = chart.y, v = value;
    if (chart.log) { v = Math.log10(Math.max(v, low)); low = Math.log10(low); high = Math.log10(high); }
    return start + Math.min(1, Math.max(0, (v - low) / (high - low))) * (end - start);
  };
  const point = (chart, step) => {
    chart.cursor.replaceChildren(made("path", { d: `M${xOf(chart, step)} ${chart.y[3]}V${chart.y[2]}` }));
    chart.lines.forEach((line, k) => {
      const i = nearest(line.s, step), value = line.v[i];
      let text = shown(value);
      if (line.u) text += " to " + shown(line.u[1][nearest(line.u[0], step)]);
      else if (value !== null) chart.cursor.append(made("circle", { cx: xOf(chart, line.s[i]), cy: yOf(chart, value), r: 3 }));
      if (chart.values[k]) chart.values[k].textContent = text;
    });
    chart.step.textContent = `step ${Math.round(step)}`;
    chart.cursor.setAttribute("visibility", "visible");
  };
  const clear = () => { for (const chart of charts) { chart.cursor.setAttribute("visibility", "hidden"); chart.step.textContent = ""; chart.values.forEach((v, k) => { v.textContent = chart.rest[k]; }); } };
  for (const chart of charts) {
    let waiting = null;
    chart.svg.addEventListener("pointermove", (event) => {
      const box = chart.svg.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width * 460;
      const share = Math.min(1, Math.max(0, (x - chart.x[2]) / (chart.x[3] - chart.x[2])));
      const step = Math.round(chart.x[0] + share * (chart.x[1] - chart.x[0]));
      if (waiting === null) requestAnimationFrame(() => { for (const other of charts) point(other, waiting); waiting = null; });
      waiting = step;
    });
    chart.svg.addEventListener("pointerleave", () => requestAnimationFrame(clear));
  }

  const tip = document.getElementById("tip");
  const told = (row, i) => {
    const at = (name) => row[name][i];
    const log_r = at("log_r");
    const lines = [
      `token ${row.at[i]}   id ${at("tokens")}`,
      `ratio     ${log_r === null ? "\u2013" : shown(Math.exp(log_r))}   log ${shown(log_r)}`,
      `behavior  ${shown(at("behavior"))}`, `raw       ${shown(at("raw"))}`,
      `proximal  ${shown(at("proximal"))}`, `current   ${shown(at("current"))}`,
      `weight    ${shown(at("weight"))}`, `advantage ${shown(at("advantage"))}`,
      `version   ${shown(at("versions"))}, trained at ${shown(row.version)}`,
    ];
    if (!at("mask")) lines.push(at("versions") === -1 ? "written by the environment" : "not trained"); else if (!at("kept")) lines.push("rejected by a gate");
    return lines.join("\n");
  };
  document.addEventListener("pointerover", (event) => {
    const span = event.target instanceof Element ? event.target.closest("span[data-t]") : null;
    if (!span) { tip.style.display = "none"; return; }
    tip.textContent = told(data.rollouts[Number(span.parentElement.dataset.r)], Number(span.dataset.t));
    tip.style.display = "block";
    const box = span.getBoundingClientRect(), size = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - size.width - 8))}px`;
    tip.style.top = `${box.bottom + size.height + 10 < innerHeight ? box.bottom + 6 : box.top - size.height - 6}px`;
  });
})();
