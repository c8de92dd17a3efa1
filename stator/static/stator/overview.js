// Refreshes the overview while somebody looks at it. Without this file the page reloads itself once a minute.
"use strict";

(() => {
  const live = document.getElementById("stator-live");
  if (!live) return;
  const every = Number(live.dataset.every) * 1000;
  // Somebody at 3 a.m. must see that what they look at is old.
  const say = (text) => { document.getElementById("stator-said").textContent = text; };
  const editing = () => live.contains(document.activeElement) && document.activeElement.matches("input, button, select");

  const keep = () => ({
    closed: new Set([...live.querySelectorAll("details:not([open])")].map((part) => part.id)),
    scrolled: new Map([...live.querySelectorAll(".stator-wide[id]")].map((part) => [part.id, part.scrollLeft])),
    focused: live.contains(document.activeElement) ? document.activeElement.id : "",
  });

  const restore = (kept) => {
    for (const part of live.querySelectorAll("details")) part.open = !kept.closed.has(part.id);
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
    const answer = await fetch(address, { credentials: "same-origin", signal: AbortSignal.timeout(15000) });
    if (answer.redirected) throw new Error("you are logged out; reload the page");
    if (!answer.ok) throw new Error(`the site answered ${answer.status}`);
    const text = await answer.text();
    if (editing()) return;
    const kept = keep();
    live.innerHTML = text;
    restore(kept);
  };

  const turn = async () => {
    if (document.hidden) return;
    if (editing()) {
      say("not refreshed while you type");
      return;
    }
    try {
      await refresh();
    } catch (error) {
      say(`not refreshed: ${error.name === "TimeoutError" ? "no answer in 15 s" : error.message}`);
    }
  };

  const loop = async () => {
    await turn();
    setTimeout(loop, every);
  };
  setTimeout(loop, every);
  document.addEventListener("visibilitychange", turn);
})();
