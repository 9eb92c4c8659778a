"use strict";

// The one global name. Data files call legato.deliver(); every other script adds its part.
const legato = {};

(() => {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, props, children) {
    for (const [key, value] of Object.entries(props || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else if (key === "style") {
        for (const [name, of] of Object.entries(value)) node.style.setProperty(name, of);
      } else node.setAttribute(key, value === true ? "" : String(value));
    }
    // Strings become text nodes and nothing else: what a model or a page wrote stays text.
    node.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined && c !== false));
    return node;
  }

  legato.h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
  legato.svg = (tag, props, ...children) =>
    fill(document.createElementNS(SVG, tag), props, children);

  legato.number = (value, digits = 3) =>
    value === null || value === undefined || !Number.isFinite(value)
      ? "–"
      : Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(digits)));

  legato.percent = (share) =>
    share === null || share === undefined || !Number.isFinite(share)
      ? "–" : `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)}%`;

  // Figure and unit stay on one line.
  legato.seconds = (s) => {
    if (s === null || s === undefined || !Number.isFinite(s)) return "–";
    if (s < 1) return `${Math.round(1000 * s)}\u00a0ms`;
    if (s < 120) return `${s.toFixed(1)}\u00a0s`;
    return s < 7200 ? `${(s / 60).toFixed(1)}\u00a0min` : `${(s / 3600).toFixed(1)}\u00a0h`;
  };

  legato.moment = (unix) =>
    unix ? new Date(1000 * unix).toISOString().replace("T", " ").slice(0, 19) + " UTC" : "–";

  legato.count = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

  legato.mean = (values) =>
    values.length ? values.reduce((sum, v) => sum + v, 0) / values.length : null;

  legato.reward = (value) => (value === null || value === undefined ? "–" : value.toFixed(2));

  legato.signed = (value) =>
    value === null || value === undefined ? "–" : (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(2);

  legato.rewardClass = (value) =>
    value === null || value === undefined ? "none" : value >= 1 ? "full" : value > 0 ? "part" : "zero";

  const SEEN = /^[0-9a-f]{64}$/;

  // Where a picture of a run lies. Only a hash can become an address.
  legato.pictureUrl = (run, sha256) =>
    SEEN.test(sha256 || "") ? `data/${run.key}/images/${sha256}.png` : null;

  // An action in a few words; fields of its own come from a record, so all of it is text.
  legato.describe = (action) => {
    if (!action) return "";
    const { action_type: kind, x, y, to_x: toX, to_y: toY, path, ...rest } = action;
    const words = [String(kind)];
    if (x !== undefined) words.push(`${x},${y}`);
    if (toX !== undefined) words.push(`→ ${toX},${toY}`);
    for (const [name, value] of Object.entries(rest)) {
      if (name === "button" && value === "left") continue;
      words.push(name === "text" ? JSON.stringify(value) : String(value));
    }
    return words.join(" ");
  };

  legato.link = (...parts) => "#/" + parts.map((p) => encodeURIComponent(p)).join("/");
  legato.rolloutLink = (run, row, step = 0) =>
    legato.link("run", run.key, "rollout", row.rollout_id, step);
  legato.groupLink = (run, groupId) => legato.link("run", run.key, "group", groupId);

  legato.badge = (row) =>
    legato.h("span", { class: `badge status-${row.status}` }, row.status,
      row.truncated_by ? ` (${row.truncated_by})` : "");

  legato.rewardChip = (value) =>
    legato.h("span", { class: `reward reward-${legato.rewardClass(value)}` }, legato.reward(value));

  legato.section = (title, ...children) =>
    legato.h("section", { class: "card" }, legato.h("h2", {}, title), ...children);

  legato.empty = (text) => legato.h("p", { class: "empty" }, text);

  legato.tiles = (pairs) =>
    legato.h("dl", { class: "tiles" }, pairs.map(([name, value, note]) =>
      legato.h("div", {}, legato.h("dt", {}, name), legato.h("dd", {}, value),
        note ? legato.h("dd", { class: "note" }, note) : null)));
})();
