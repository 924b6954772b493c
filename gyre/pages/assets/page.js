"use strict";
// Draws the figures in the reader's colours. Figures name colours by "$name"; rectangles come packed, four numbers each.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figure-data");
  const palettes = read("palettes");
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = new URLSearchParams(location.search).get("ground");
  const ground = () => chosen || (system.matches ? "dark" : "light");

  const decode = (packed) => {
    const bytes = Uint8Array.from(atob(packed.bdata), (c) => c.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  };
  for (const figure of Object.values(figures)) {
    for (const trace of figure.data) {
      if (!trace.rectangles) continue;
      const box = Object.fromEntries(Object.entries(trace.rectangles).map(([key, value]) => [key, decode(value)]));
      delete trace.rectangles;
      (figure.boxes ||= []).push({ name: trace.name, tips: trace.tips, ...box });
      delete trace.tips;
      const count = box.x0.length;
      const x = new Float32Array(5 * count);
      const y = new Float32Array(5 * count);
      for (let i = 0; i < count; i++) {
        x.set([box.x0[i], box.x0[i], box.x1[i], box.x1[i], NaN], 5 * i);
        y.set([box.y0[i], box.y1[i], box.y1[i], box.y0[i], NaN], 5 * i);
      }
      trace.x = x;
      trace.y = y;
    }
  }

  const paint = (value, colours) => {
    if (typeof value === "string") return value[0] === "$" && value.slice(1) in colours ? colours[value.slice(1)] : value;
    if (Array.isArray(value)) return value.map((item) => paint(item, colours));
    if (value === null || typeof value !== "object" || ArrayBuffer.isView(value) || "bdata" in value) return value;
    const keep = (key) => key === "text" || key === "ticktext"; // words, whatever they look like
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, keep(key) ? item : paint(item, colours)]));
  };

  const axis = (colours) => ({
    gridcolor: colours.grid, linecolor: colours.line, tickcolor: colours.line, zerolinecolor: colours.line,
    title: { font: { size: 12, color: colours.muted }, standoff: 8 }, tickfont: { size: 11 }, automargin: true,
  });
  const template = (colours) => ({
    layout: {
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: colours.ink },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      xaxis: axis(colours), yaxis: axis(colours),
      margin: { l: 56, r: 12, t: 8, b: 44 },
      showlegend: false,
      hoverlabel: { bgcolor: colours.panel, bordercolor: colours.line, font: { color: colours.ink, size: 12 } },
    },
  });
  const config = { responsive: true, displayModeBar: false };

  const draw = (fixed = false) => {
    document.documentElement.dataset.ground = ground();
    const colours = palettes[ground()];
    for (const plot of document.querySelectorAll(".plot")) {
      const { data, layout } = figures[plot.dataset.key];
      const painted = paint(layout, colours);
      if (plot.layout) for (const name of Object.keys(plot.layout)) keepZoom(name, plot.layout, painted);
      painted.template = template(colours);
      if (fixed) painted.width = plot.clientWidth;
      else painted.autosize = true;
      Plotly.react(plot, paint(data, colours), painted, config);
    }
  };
  const keepZoom = (name, old, next) => {
    if (/^xaxis/.test(name) && old[name].range && next[name]) next[name].range = old[name].range.slice();
  };

  // One legend for all kinds of figures, in HTML; a click hides what the name stands for, or shows it again.
  const legend = (plot) => {
    const { data } = figures[plot.dataset.key];
    const named = data.filter((trace) => trace.showlegend !== false);
    if (named.length < 2) return;
    const list = Object.assign(document.createElement("ul"), { className: "legend" });
    for (const trace of named) {
      const button = Object.assign(document.createElement("button"), { type: "button" });
      const key = document.createElement("i");
      const colour = trace.fillcolor || (trace.marker && trace.type === "bar" && trace.marker.color) || trace.line.color;
      const line = trace.type === "scatter" && !trace.fillcolor;
      key.className = line ? `line ${trace.line.dash || "solid"}` : trace.fillpattern ? "box hatched" : "box";
      key.style.color = `var(--${colour.slice(1)})`;
      if (trace.mode === "lines+markers") {
        key.className = "mark";
        key.textContent = { circle: "●", square: "■", diamond: "◆", "triangle-up": "▲" }[trace.marker && trace.marker.symbol] || "●";
      }
      button.append(key, trace.name);
      button.addEventListener("click", () => {
        const off = button.classList.toggle("off");
        for (const other of data) if (other === trace || (trace.legendgroup && other.legendgroup === trace.legendgroup)) other.visible = !off;
        draw();
      });
      list.appendChild(document.createElement("li")).append(button);
    }
    plot.before(list);
  };

  const clock = (time) => {
    const seconds = Math.round(time);
    const pad = (n) => String(n).padStart(2, "0");
    return `${Math.floor(seconds / 3600)}:${pad(Math.floor(seconds / 60) % 60)}:${pad(seconds % 60)}`;
  };
  const length = (seconds) => (seconds < 60 ? `${seconds.toFixed(1)} s` : seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(2)} h`);

  const place = (tip, event, frame) => {
    tip.style.display = "block";
    tip.style.left = "0";
    tip.style.left = `${Math.max(0, Math.min(event.clientX - frame.left + 14, frame.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - frame.top + 16}px`;
  };

  // What lies under the pointer in a figure of rectangles: what the figure says of it, or which stretch of time it is.
  const watch = (plot) => {
    const figure = figures[plot.dataset.key];
    if (!figure.boxes) return;
    const tip = plot.appendChild(Object.assign(document.createElement("div"), { className: "tip" }));
    plot.addEventListener("mouseleave", () => { tip.style.display = "none"; });
    plot.addEventListener("mousemove", (event) => {
      const { xaxis, yaxis } = plot._fullLayout;
      const frame = plot.getBoundingClientRect();
      const x = xaxis.p2d(event.clientX - frame.left - xaxis._offset);
      const y = yaxis.p2d(event.clientY - frame.top - yaxis._offset);
      tip.style.display = "none";
      for (const box of figure.boxes.toReversed()) {
        for (let i = 0; i < box.x0.length; i++) {
          if (x < box.x0[i] || x >= box.x1[i] || y > box.y0[i] || y < box.y1[i]) continue;
          if (box.tips) {
            tip.textContent = box.tips[i];
            place(tip, event, frame);
            return;
          }
          const lane = figure.lanes[figure.rows.findIndex((row) => y >= row && y < row + 1)] ?? "";
          const part = (box.y0[i] - box.y1[i]) / figure.fill;
          const share = part > 0.995 ? "" : `, ${(100 * part).toFixed(0)} % of this stretch`;
          const [start, end] = [box.x0[i], box.x1[i]].map((time) => time * figure.unit_s);
          tip.textContent = `${lane}: ${box.name}${share} · ${clock(start)} – ${clock(end)} (${length(end - start)})`;
          place(tip, event, frame);
          return;
        }
      }
    });
  };

  document.querySelectorAll(".plot").forEach(legend);
  draw();
  document.querySelectorAll(".plot").forEach(watch);
  system.addEventListener("change", () => draw());
  document.getElementById("ground").addEventListener("click", () => {
    chosen = ground() === "dark" ? "light" : "dark";
    draw();
  });
  addEventListener("beforeprint", () => {
    const kept = chosen;
    chosen = "light";
    document.body.classList.add("printing");
    draw(true);
    chosen = kept;
  });
  addEventListener("afterprint", () => {
    document.body.classList.remove("printing");
    draw();
  });
})();
