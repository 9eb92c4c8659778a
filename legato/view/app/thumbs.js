"use strict";

// Small copies of pictures, made once they come into view: a browser's own lazy loading begins
// thousands of pixels before, and keeps every picture decoded at its full size, 4 MB for a
// screenshot.
(() => {
  const { h } = legato;
  const AT_ONCE = 4;
  const sources = new WeakMap();
  const queue = [];
  let busy = 0;

  async function paint(canvas) {
    const image = new Image();
    image.src = sources.get(canvas);
    try {
      await image.decode();
    } catch {
      canvas.replaceWith(h("span", { class: "no-picture" }, "picture missing"));
      return;
    }
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    canvas.dataset.painted = "yes";
    image.src = "";
  }

  async function next() {
    if (busy >= AT_ONCE || !queue.length) return;
    busy += 1;
    try {
      const canvas = queue.shift();
      if (canvas.isConnected) await paint(canvas);
    } finally {
      busy -= 1;
      next();
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      queue.push(entry.target);
      next();
    }
  }, { rootMargin: "50px" });

  // size: {width, height} of the picture; wide: pixels of the copy; before: a copy to show until then
  legato.thumb = (src, alt, size, wide, before = null) => {
    const high = Math.round(size && size.width ? (wide * size.height) / size.width : (wide * 9) / 16);
    const canvas = h("canvas", { role: "img", "aria-label": alt, width: wide, height: high });
    if (before) canvas.getContext("2d").drawImage(before, 0, 0, wide, high);
    sources.set(canvas, src);
    seen.observe(canvas);
    return canvas;
  };
})();
