// Refreshes the overview while somebody looks at it. Without this file the page reloads itself once a minute.
"use strict";

(() => {
  const live = document.getElementById("stator-live");
  if (!live) return;
  const every = Number(live.dataset.every) * 1000;
  // Together with the interval about 10 s until people see that the server is away; more for a page that is seldom read.
  const PATIENCE = Math.max(4000, every / 4);
  // Somebody at 3 a.m. must see that what they look at is old.
  const say = (text) => { document.getElementById("stator-said").textContent = text; };
  const editing = () => live.contains(document.activeElement) && document.activeElement.matches("input, button, select");

  // What the server opened; what differs from it was opened or closed by hand.
  let given = new Map();
  const opened = () => new Map([...live.querySelectorAll("details[id]")].map((part) => [part.id, part.open]));

  // A tab in the background shows how many problems there are.
  const title = document.title.replace(/^\(\d+\) /, "");
  const count = () => {
    const problems = Number(document.getElementById("stator-troubles")?.dataset.statorCount);
    document.title = problems ? `(${problems}) ${title}` : title;
  };

  // A link to what is folded unfolds it.
  const unfold = () => {
    for (let part = document.getElementById(window.location.hash.slice(1)); part; part = part.parentElement) {
      if (part.tagName === "DETAILS") part.open = true;
    }
  };

  // A graph that is wider than the window begins with the worst of its states, or with the fullest.
  const center = () => {
    const graph = document.querySelector("#stator-wide-graph");
    const box = [".heat-3", ".heat-2", ".heat-1", ".box:not(.empty)"].map((one) => graph?.querySelector(one)).find(Boolean);
    if (!box) return;
    const [inner, outer] = [box.getBoundingClientRect(), graph.getBoundingClientRect()];
    graph.scrollLeft += inner.left + inner.width / 2 - outer.left - outer.width / 2;
  };

  const keep = () => ({
    turned: new Map([...opened()].filter(([id, open]) => given.get(id) !== open)),
    scrolled: new Map([...live.querySelectorAll(".stator-wide[id]")].map((part) => [part.id, part.scrollLeft])),
    focused: live.contains(document.activeElement) ? document.activeElement.id : "",
  });

  const restore = (kept) => {
    given = opened();
    for (const [id, open] of kept.turned) {
      const part = document.getElementById(id);
      if (part) part.open = open;
    }
    for (const [id, left] of kept.scrolled) {
      const part = document.getElementById(id);
      if (part) part.scrollLeft = left;
    }
    if (kept.focused) document.getElementById(kept.focused)?.focus({ preventScroll: true });
  };

  const refresh = async () => {
    const address = new URL(window.location.href);
    address.searchParams.set("live", "1");
    address.hash = "";
    const answer = await fetch(address, { credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) });
    if (answer.redirected) throw new Error("you are logged out; reload the page to log in");
    if (!answer.ok) throw new Error(`the site answered ${answer.status}`);
    const text = await answer.text();
    // A click needs its press and its release on the same element.
    if (editing() || live.matches(":active")) return;
    say("");
    const kept = keep();
    live.innerHTML = text;
    restore(kept);
    count();
  };

  const turn = async () => {
    if (document.hidden) return;
    if (editing()) {
      say("Not refreshed while you type");
      return;
    }
    try {
      await refresh();
    } catch (error) {
      const why = error.name === "TimeoutError" ? `no answer in ${PATIENCE / 1000} s` : error.message;
      say(`Not refreshed since ${live.querySelector(".stator-clock time").textContent}: ${why}`);
    }
  };

  const loop = async () => {
    await turn();
    setTimeout(loop, every);
  };
  given = opened();
  unfold();
  center();
  setTimeout(loop, every);
  window.addEventListener("hashchange", unfold);
  document.addEventListener("visibilitychange", turn);
})();
