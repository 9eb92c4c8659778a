"use strict";

// Data comes as scripts, because a page from a file: address may not fetch() its neighbours.
(() => {
  const KEPT = 24; // rollouts kept in memory; the rest is loaded again when it is looked at
  const waiting = new Map(); // by script: the same name may be on its way twice, before and after a run grew
  const cache = new Map();
  const reads = new Map(); // how often a run was begun anew, by its key

  legato.deliver = (name, json) => {
    const entry = waiting.get(document.currentScript);
    if (!entry || entry.name !== name) return;
    waiting.delete(document.currentScript);
    entry.resolve(JSON.parse(json));
  };

  function fetchScript(name) {
    const again = reads.get(name.split("/")[0]);
    return new Promise((resolve, reject) => {
      const over = () => {
        script.remove();
        if (waiting.delete(script)) {
          reject(new Error(`data/${name}.js cannot be read; is the folder complete?`));
        }
      };
      const script = legato.h("script", {
        src: `data/${name}.js` + (again ? `?v=${again}` : ""), onload: over, onerror: over,
      });
      waiting.set(script, { name, resolve });
      document.head.append(script);
    });
  }

  legato.load = (name) => {
    if (cache.has(name)) {
      const found = cache.get(name);
      cache.delete(name);
      cache.set(name, found); // the most recently used one last
      return found;
    }
    const promise = fetchScript(name);
    cache.set(name, promise);
    promise.catch(() => { if (cache.get(name) === promise) cache.delete(name); });
    const rollouts = [...cache.keys()].filter((key) => key.includes("/rollout-"));
    for (const key of rollouts.slice(0, Math.max(0, rollouts.length - KEPT))) cache.delete(key);
    return promise;
  };

  function toRun(key, name, index) {
    const rows = index.rows.map((values, n) => {
      const row = { n, advantage: index.advantages[n] };
      index.columns.forEach((column, i) => { row[column] = values[i]; });
      row.verdictCounts = row.status === "ok" || row.status === "truncated";
      return row;
    });
    const groups = new Map();
    const byId = new Map();
    for (const row of rows) {
      byId.set(row.rollout_id, row);
      if (!groups.has(row.group_id)) groups.set(row.group_id, []);
      groups.get(row.group_id).push(row);
    }
    for (const members of groups.values()) {
      members.sort((a, b) => a.attempt - b.attempt || a.attempt_try - b.attempt_try);
    }
    return { ...index, key, name, rows, groups, byId };
  }

  const runs = new Map();

  legato.run = async (key) => {
    const { runs: known } = await legato.load("runs");
    if (!known[key]) throw new Error(`there is no run ${key} here`);
    if (!runs.has(key)) {
      const loading = legato.load(`${key}/index`).then((index) => toRun(String(key), known[key].name, index));
      runs.set(key, loading);
      loading.catch(() => { if (runs.get(key) === loading) runs.delete(key); });
    }
    return runs.get(key);
  };

  // Forgets what was read of a run that holds more records by now: the next look reads it anew.
  legato.grown = async (key, records) => {
    if (!runs.has(key) || (await runs.get(key)).rows.length >= records) return;
    runs.delete(key);
    for (const name of [...cache.keys()]) if (name.startsWith(`${key}/`)) cache.delete(name);
    reads.set(key, (reads.get(key) || 0) + 1);
  };

  legato.rollout = (run, row) => legato.load(`${run.key}/rollout-${row.n}`);

  // Replies of all rollouts, chunk after chunk; calls found(numbers) after each.
  legato.search = async (run, text, found, wanted) => {
    const needle = text.toLowerCase();
    const hits = new Set();
    for (let chunk = 0; chunk < run.chunks; chunk += 1) {
      const replies = await legato.load(`${run.key}/text-${chunk}`);
      if (!wanted()) return;
      replies.forEach((steps, i) => {
        if (steps.some((reply) => reply.toLowerCase().includes(needle))) hits.add(chunk * 100 + i);
      });
      found(hits, chunk + 1 === run.chunks);
    }
    if (!run.chunks) found(hits, true);
  };
})();
