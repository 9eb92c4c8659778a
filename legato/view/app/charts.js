"use strict";

// Small charts as SVG and plain boxes. Every mark has a title, which is its tooltip.
(() => {
  const { h, svg } = legato;

  // [{name, value, share (0..1 of the longest), note, href, cls}]
  legato.bars = (items, format) => {
    if (!items.length) return legato.empty("nothing yet");
    return h("ol", { class: "bars" }, items.map((item) =>
      h("li", { title: item.note || null },
        item.href ? h("a", { class: "name", href: item.href }, item.name)
          : h("span", { class: "name" }, item.name),
        h("span", { class: "track" },
          h("span", { class: `bar ${item.cls || ""}`, style: { width: `${100 * item.share}%` } })),
        h("span", { class: "value" }, format ? format(item.value) : item.value))));
  };

  legato.legend = (items) =>
    h("ul", { class: "legend" }, items.map(([cls, name]) =>
      h("li", {}, h("span", { class: `swatch ${cls}` }), name)));

  // One bar of several parts: [{cls, value, name}]
  legato.stack = (parts, total, format = legato.seconds) => {
    const whole = total || parts.reduce((sum, p) => sum + p.value, 0) || 1;
    return h("div", { class: "stack" }, parts.filter((p) => p.value > 0).map((p) =>
      h("span", {
        class: p.cls,
        style: { width: `${(100 * p.value) / whole}%` },
        title: `${p.name}: ${format(p.value)} (${legato.percent(p.value / whole)})`,
      })));
  };

  const W = 560, H = 190, LEFT = 40, RIGHT = 8, TOP = 8, BOTTOM = 24;

  function frame(yMax, yFormat, xLabels) {
    const root = svg("svg", { class: "chart", viewBox: `0 0 ${W} ${H}`, role: "img" });
    for (const part of [0, 0.5, 1]) {
      const y = TOP + (1 - part) * (H - TOP - BOTTOM);
      root.append(
        svg("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: y, y2: y }),
        svg("text", { class: "axis", x: LEFT - 5, y: y + 4, "text-anchor": "end" }, yFormat(part * yMax)));
    }
    xLabels.forEach(([at, text], i) => {
      const anchor = i === 0 ? "start" : i === xLabels.length - 1 ? "end" : "middle";
      root.append(svg("text", {
        class: "axis", x: LEFT + at * (W - LEFT - RIGHT), y: H - 6, "text-anchor": anchor,
      }, text));
    });
    return root;
  }

  const X = (at) => LEFT + at * (W - LEFT - RIGHT);
  const Y = (share) => TOP + (1 - share) * (H - TOP - BOTTOM);

  // series: [{cls, name, points: [[x 0..1, y, title]]}]
  legato.lines = (series, { yMax = 1, yFormat = legato.number, xLabels = [] } = {}) => {
    if (!series.some((s) => s.points.length)) return legato.empty("nothing yet");
    const root = frame(yMax, yFormat, xLabels);
    for (const { cls, name, points } of series) {
      root.append(svg("polyline", {
        class: `line ${cls}`,
        points: points.map(([x, y]) => `${X(x)},${Y(y / yMax)}`).join(" "),
      }));
      for (const [x, y, title] of points) {
        root.append(svg("circle", { class: `dot ${cls}`, cx: X(x), cy: Y(y / yMax), r: 3 },
          svg("title", {}, `${name}: ${title}`)));
      }
    }
    return root;
  };

  // Areas that add up: series as above without titles, all with the same x.
  legato.areas = (series, { yMax = 1, yFormat = legato.number, xLabels = [] } = {}) => {
    if (!series.length || !series[0].points.length) return legato.empty("nothing yet");
    const root = frame(yMax, yFormat, xLabels);
    let below = series[0].points.map(() => 0);
    for (const { cls, name, points } of series) {
      const top = points.map(([, y], i) => below[i] + y);
      const up = points.map(([x], i) => `${X(x)},${Y(top[i] / yMax)}`);
      const back = points.map(([x], i) => `${X(x)},${Y(below[i] / yMax)}`).reverse();
      root.append(svg("polygon", { class: `area ${cls}`, points: [...up, ...back].join(" ") },
        svg("title", {}, name)));
      below = top;
    }
    return root;
  };

  // bins: [{label, parts: [{cls, value, name}]}], the parts of a bin beside each other
  legato.columns = (bins, { yFormat = legato.number } = {}) => {
    const values = bins.flatMap((bin) => bin.parts.map((p) => p.value));
    const yMax = Math.max(1e-12, ...values);
    if (!values.some((v) => v > 0)) return legato.empty("nothing yet");
    const root = frame(yMax, yFormat, []);
    const width = (W - LEFT - RIGHT) / bins.length;
    bins.forEach((bin, i) => {
      const each = (width - 3) / bin.parts.length;
      bin.parts.forEach((part, n) => {
        root.append(svg("rect", {
          class: `column ${part.cls}`, x: LEFT + i * width + 1.5 + n * each, width: Math.max(1, each - 0.5),
          y: Y(part.value / yMax), height: Y(0) - Y(part.value / yMax),
        }, svg("title", {}, `${bin.label} ${part.name}: ${yFormat(part.value)}`)));
      });
      root.append(svg("text", {
        class: "axis", x: LEFT + (i + 0.5) * width, y: H - 6, "text-anchor": "middle",
      }, bin.label));
    });
    return root;
  };

  legato.PHASES = {
    reset_s: ["phase-reset", "reset"],
    wait_after_reset_s: ["phase-settle", "first screen ready"],
    model_s: ["phase-model", "model"],
    act_s: ["phase-act", "act"],
    wait_s: ["phase-wait", "wait until ready"],
    obs_s: ["phase-observe", "observe"],
    wait_before_eval_s: ["phase-before", "before grading"],
    eval_s: ["phase-grade", "grade"],
    other: ["phase-other", "other"],
  };

  // Seconds of a phase, as stacks and bars take them.
  legato.phase = (name, value) => ({ cls: legato.PHASES[name][0], name: legato.PHASES[name][1], value });
})();
