"use strict";

// Pictures, drawn once they come into view and at the size they are shown at: a browser's own lazy
// loading begins thousands of pixels before, and keeps every picture it decoded for later, 4 MB for
// a screenshot, up to some 600 MB. A bitmap made of one belongs to nobody else and is given back.
(() => {
  const { h } = legato;
  const AT_ONCE = 4;
  const queue = [];
  let busy = 0;

  const loaded = (image, src) => new Promise((resolve, reject) => {
    image.onload = resolve;
    image.onerror = reject;
    image.src = src;
  });

  async function paint(canvas) {
    const image = new Image();
    try {
      await loaded(image, canvas.dataset.src);
      const size = { resizeWidth: canvas.width, resizeHeight: canvas.height, resizeQuality: "high" };
      const bitmap = await createImageBitmap(image, size);
      canvas.getContext("2d").drawImage(bitmap, 0, 0);
      bitmap.close();
      canvas.dataset.painted = "yes";
    } catch {
      if (!canvas.dataset.before) {
        canvas.replaceWith(h("span", { class: "no-picture" }, "picture missing"));
      }
    } finally {
      image.removeAttribute("src");
    }
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

  // size: {width, height} of the picture; wide: pixels to draw it with, all of its own at the most;
  // before: a picture to show until then, and for good if there will be no other
  legato.thumb = (src, alt, size, wide, before = null) => {
    const known = size && size.width ? size : { width: 1280, height: 720 };
    const across = Math.min(wide, known.width);
    const high = Math.max(1, Math.round((across * known.height) / known.width));
    const canvas = h("canvas", { role: "img", "aria-label": alt, width: across, height: high, "data-src": src });
    if (before) {
      canvas.getContext("2d").drawImage(before, 0, 0, across, high);
      canvas.dataset.before = "yes";
    }
    seen.observe(canvas);
    return canvas;
  };
})();
