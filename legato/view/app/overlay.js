"use strict";

// A screenshot with actions drawn on it. The drawing is in screen pixels, whatever the picture's.
(() => {
  const { h, svg } = legato;
  const SMALL = 320;
  const RINGS = { double_click: 2, triple_click: 3 };
  const ARROWS = { up: [0, -1], down: [0, 1], left: [-1, 0], right: [1, 0] };

  // In white below and in colour above, to be seen on any background.
  function twice(tag, props, unit) {
    return [
      svg(tag, { ...props, class: "halo", "stroke-width": 5 * unit }),
      svg(tag, { ...props, class: "ink", "stroke-width": 2.2 * unit }),
    ];
  }

  function head([x, y], [fromX, fromY], unit) {
    const angle = Math.atan2(y - fromY, x - fromX);
    const wing = (turn) =>
      `${x - 9 * unit * Math.cos(angle + turn)},${y - 9 * unit * Math.sin(angle + turn)}`;
    return svg("polygon", { class: "ink-fill", points: `${x},${y} ${wing(-0.5)} ${wing(0.5)}` });
  }

  function path(points, unit) {
    const line = twice("polyline", { points: points.map((p) => p.join(",")).join(" ") }, unit);
    const tip = points[points.length - 1];
    const before = [...points].reverse().find((p) => p[0] !== tip[0] || p[1] !== tip[1]);
    return before ? [...line, head(tip, before, unit)] : line;
  }

  function words(text, x, y, unit, anchor) {
    const props = { x, y, "font-size": 13 * unit, "text-anchor": anchor };
    return [
      svg("text", { ...props, class: "word-halo", "stroke-width": 4 * unit }, text),
      svg("text", { ...props, class: "word" }, text),
    ];
  }

  function marks(action, unit, label) {
    const { action_type: kind, x, y } = action;
    if (kind === "drag") {
      const points = [[x, y], ...(action.path || []), [action.to_x, action.to_y]];
      return [...twice("circle", { cx: x, cy: y, r: 6 * unit }, unit), ...path(points, unit)];
    }
    if (kind === "scroll") {
      const [dx, dy] = ARROWS[action.direction] || [0, 1];
      const end = [x + dx * 40 * unit, y + dy * 40 * unit];
      return [...twice("circle", { cx: x, cy: y, r: 4 * unit }, unit), ...path([[x, y], end], unit)];
    }
    if (x === undefined) return [];
    const rings = [];
    for (let ring = 0; ring < (RINGS[kind] || 1); ring += 1) {
      rings.push(...twice("circle", { cx: x, cy: y, r: (10 + 7 * ring) * unit }, unit));
    }
    rings.push(svg("circle", { class: "ink-fill", cx: x, cy: y, r: 2.5 * unit }));
    const letter = kind === "right_click" ? "R" : kind === "middle_click" ? "M"
      : kind === "mouse_down" ? "↓" : kind === "mouse_up" ? "↑" : "";
    const note = [label, letter].filter(Boolean).join(" ");
    return note ? [...rings, ...words(note, x + 14 * unit, y - 12 * unit, unit, "start")] : rings;
  }

  // actions: as in a record; screen: [width, height] in pixels; wide: pixels across of the picture
  legato.overlay = (actions, screen, wide) => {
    const [width, height] = screen;
    const unit = width / (wide > SMALL ? 640 : 360); // or a mark on a small picture is not seen
    const root = svg("svg", {
      class: "overlay", viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true",
    });
    const several = actions.filter((a) => a.x !== undefined && a.x !== null).length > 1;
    const said = [];
    actions.forEach((action, i) => {
      root.append(...marks(action, unit, several ? String(i + 1) : ""));
      if (action.x === undefined || action.x === null) said.push(legato.describe(action));
    });
    if (said.length) {
      const text = said.join("  ·  ");
      const short = text.length > 90 ? text.slice(0, 89) + "…" : text;
      root.append(...words(short, width / 2, height - 10 * unit, unit, "middle"));
    }
    return root;
  };

  // The box of a picture has its size before the picture is there, so that nothing jumps.
  legato.ratio = (image) => ({ "--ratio": image && image.width ? image.width / image.height : 16 / 9 });

  const picture = (run, image, alt, wide) => {
    const src = legato.pictureUrl(run, image.sha256);
    return src ? legato.thumb(src, alt, image, wide)
      : h("span", { class: "no-picture" }, "no picture");
  };

  // wide: pixels to draw the picture with
  legato.shown = (run, image, actions, screen, alt, wide = 320) => {
    if (!image) return h("div", { class: "shot" }, h("span", { class: "no-picture" }, "no picture"));
    const box = h("div", { class: "shot", style: legato.ratio(image) }, picture(run, image, alt, wide));
    if (actions.length) box.append(legato.overlay(actions, screen || [image.width, image.height], wide));
    return box;
  };

  // Both pictures on top of each other, blended; pixels need not be read for that.
  legato.difference = (run, before, after, wide) => {
    if (!before || !after) return h("div", { class: "shot" }, h("span", { class: "no-picture" }, "–"));
    if (before.sha256 === after.sha256) {
      return h("div", { class: "shot same", style: legato.ratio(before) }, h("span", {}, "nothing changed"));
    }
    return h("div", { class: "shot difference", style: legato.ratio(before) },
      picture(run, before, "before", wide), picture(run, after, "difference", wide));
  };
})();
