// Refreshes lists and the live parts of pages, and goes on with an act on many. Without it all of this works by hand.
"use strict";

(() => {
    const SLOWER = 15000;
    const READ = 700;
    // A server that is away may never answer.
    const LONGEST = 5000;
    const WORDS = {401: "You are logged out.", 403: "You may no longer see this object.", 404: "The object was deleted."};

    class LivePart {
        constructor(root) {
            this.root = root;
            this.status = root.querySelector(".stator-status");
            this.every = Number(root.dataset.statorEvery) * 1000;
            this.pause = this.every;
            this.tell(`Live, updated ${this.time()}.`);
            document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
            this.wait();
        }

        tell(words, bad = false) {
            if (this.status.textContent !== words) {
                this.status.textContent = words;
            }
            this.status.classList.toggle("stator-bad", bad);
        }

        wait() {
            clearTimeout(this.timer);
            this.timer = setTimeout(() => this.refresh(), this.pause);
        }

        async refresh() {
            clearTimeout(this.timer);
            if (document.hidden) {
                return;
            }
            if (this.isBusy()) {
                this.wait();
                return;
            }
            try {
                const answer = await fetch(this.root.dataset.statorLive, {
                    credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(LONGEST),
                });
                // A page that asks for a password is where those are led who are not logged in.
                const status = answer.redirected ? 401 : answer.status;
                if (status in WORDS) {
                    this.tell(`${WORDS[status]} This is what it was at ${this.time()}.`, true);
                    return;
                }
                if (!answer.ok) {
                    throw new Error(`the site answered ${status}`);
                }
                const page = new DOMParser().parseFromString(await answer.text(), "text/html");
                this.pause = this.every;
                if (this.isPressed()) {
                    this.wait();
                    return;
                }
                this.show(page);
                this.shown = new Date();
                this.tell(`Live, updated ${this.time()}.`);
            } catch (error) {
                this.pause = Math.min(this.pause * 2, SLOWER);
                this.tell(`Not refreshed since ${this.time()} (${reason(error)}); trying again.`, true);
            }
            this.wait();
        }

        time() {
            return moment(this.shown || new Date(performance.timeOrigin), Number(this.root.dataset.statorAhead));
        }

        // A click needs its press and its release on the same element.
        isPressed() {
            return this.root.matches(":active");
        }

        // Somebody is at work in it.
        isBusy() {
            return false;
        }

        show(page) {
            const also = this.root.dataset.statorAlso;
            const parts = also ? [this.root, page].map((part) => [...part.querySelectorAll(also)]) : [[], []];
            parts[0].forEach((old, number) => {
                old.innerHTML = parts[1][number]?.innerHTML ?? old.innerHTML;
            });
            for (const fresh of page.querySelectorAll("[data-stator-part]")) {
                const old = this.root.querySelector(`[data-stator-part="${fresh.dataset.statorPart}"]`);
                if (old && !isSelected(old)) {
                    replace(old, fresh);
                }
            }
        }
    }

    // A list: nothing changes while rows are chosen or something is typed.
    class LiveList extends LivePart {
        isBusy() {
            const typing = document.activeElement?.matches("input:not([type=checkbox]), select, textarea");
            return typing || this.root.querySelector("#result_list :checked") !== null || isSelected(this.rows());
        }

        rows() {
            return this.root.querySelector("#result_list tbody");
        }

        show(page) {
            super.show(page);
            const [old, fresh] = [this.rows(), page.querySelector("#result_list tbody")];
            if (!old || !fresh || old.innerHTML === fresh.innerHTML) {
                return;
            }
            const keys = (body) => [...body.querySelectorAll("input.action-select")].map((box) => box.value).join();
            if (old.rows.length === fresh.rows.length && keys(old) === keys(fresh)) {
                // The boxes stay, since Django's script knows them.
                [...old.rows].forEach((row, number) => [...row.cells].forEach((cell, column) => {
                    const other = fresh.rows[number].cells[column];
                    if (!cell.matches(".action-checkbox") && cell.innerHTML !== other.innerHTML) {
                        cell.replaceWith(document.adoptNode(other.cloneNode(true)));
                    }
                }));
                return;
            }
            old.replaceWith(document.adoptNode(fresh));
            window.Actions?.(document.querySelectorAll("tr input.action-select"));
            const [count, now] = [this.root, page].map((part) => part.querySelector(".paginator"));
            if (count && now) {
                count.replaceWith(document.adoptNode(now));
            }
        }
    }

    // As the page has its other times, whatever the zone of the browser: "2026-01-31 12:00:00 +0100".
    function moment(date, minutes) {
        const there = new Date(date.getTime() + minutes * 60000).toISOString().slice(0, 19).replace("T", " ");
        const zone = Math.trunc(Math.abs(minutes) / 60) * 100 + Math.abs(minutes) % 60;
        return `${there} ${minutes < 0 ? "-" : "+"}${String(zone).padStart(4, "0")}`;
    }

    function reason(error) {
        return error.name === "TimeoutError" ? `no answer in ${LONGEST / 1000} s` : error.message;
    }

    // Somebody is copying text out of it.
    function isSelected(part) {
        const selection = getSelection();
        return !selection.isCollapsed && selection.containsNode(part, true);
    }

    function replace(old, fresh) {
        const token = old.querySelector("[name=csrfmiddlewaretoken]");
        for (const input of token ? fresh.querySelectorAll("[name=csrfmiddlewaretoken]") : []) {
            // Masked anew in every answer, and as good as before.
            input.setAttribute("value", token.getAttribute("value"));
        }
        for (const details of old.querySelectorAll("details[open][data-stator-key]")) {
            const same = fresh.querySelector(`details[data-stator-key="${CSS.escape(details.dataset.statorKey)}"]`);
            if (same) {
                same.setAttribute("open", "");
            }
        }
        if (old.outerHTML === fresh.outerHTML) {
            return;
        }
        const scrolled = [...old.querySelectorAll("pre, .stator-drawing")].map((box) => [box.scrollLeft, box.scrollTop]);
        const controls = "a, button, summary";
        const focused = [...old.querySelectorAll(controls)].indexOf(document.activeElement);
        old.replaceWith(document.adoptNode(fresh));
        fresh.querySelectorAll("pre, .stator-drawing").forEach((box, number) => {
            [box.scrollLeft, box.scrollTop] = scrolled[number] || [0, 0];
        });
        if (focused >= 0) {
            fresh.querySelectorAll(controls)[focused]?.focus({preventScroll: true});
        }
    }

    // The graph may be wider than the screen.
    function showHere(root) {
        const drawing = root.querySelector(".stator-drawing");
        const here = root.querySelector(".stator-here rect");
        if (drawing && here) {
            const left = here.x.baseVal.value + here.width.baseVal.value / 2;
            drawing.scrollLeft = left - drawing.clientWidth / 2;
        }
    }

    document.addEventListener("DOMContentLoaded", () => {
        for (const root of document.querySelectorAll("[data-stator-live]")) {
            showHere(root);
            new LivePart(root);
        }
        for (const status of document.querySelectorAll("[data-stator-list]")) {
            // Themes have the table in other places.
            let root = status.parentElement;
            while (root.parentElement && !root.querySelector("#result_list")) {
                root = root.parentElement;
            }
            Object.assign(root.dataset, {
                statorEvery: status.dataset.statorList, statorAhead: status.dataset.statorAhead,
                statorLive: window.location.href,
            });
            new LiveList(root);
        }
    });

    window.addEventListener("load", () => {
        const form = document.querySelector("form[data-stator-go-on]");
        // Long enough to read how far it is, and to stop it.
        setTimeout(() => form?.requestSubmit(), READ);
    });
})();
