// Keeps the changing part of a page up to date, and listens for a few keys. Every page works without it.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const sign = byId("live-sign");
  const say = (text, isOff) => {
    if (!sign) return;
    sign.hidden = false;
    sign.textContent = text;
    sign.classList.toggle("off", isOff);
  };

  // The server escapes all that it sends. What was open or had the focus stays so.
  const replace = (part, html) => {
    const open = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
    const focused = document.activeElement;
    const place = part.contains(focused) && focused !== part ? address(part, focused) : null;
    const scrolled = [...part.querySelectorAll(".scroll")].map((box) => [box.scrollLeft, box.scrollTop]);
    part.innerHTML = html;
    open.forEach((id) => byId(id)?.setAttribute("open", ""));
    [...part.querySelectorAll(".scroll")].forEach((box, at) => scrolled[at] && box.scrollTo(...scrolled[at]));
    if (place) find(part, place)?.focus({ preventScroll: true });
  };
  const able = "a[href], button, input, summary, [tabindex]";
  const address = (part, element) => {
    const box = element.closest("details[id]");
    const within = box && part.contains(box) ? box : part;
    const place = [...within.querySelectorAll(able)].indexOf(element);
    return { id: element.id, href: element.getAttribute("href"), box: within === part ? "" : within.id, place };
  };
  const find = (part, { id, href, box, place }) => {
    if (id) return byId(id);
    const within = (box && byId(box)) || part;
    const all = [...within.querySelectorAll(able)];
    return (href && all.find((one) => one.getAttribute("href") === href)) || (href ? null : all[place]);
  };

  const follow = (url, handlers) => {
    const source = new EventSource(url);
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data), source));
    }
    return source;
  };

  // A hidden page needs nothing, and a browser has few connections to one node.
  const whileSeen = (start) => {
    let source = null;
    const look = () => {
      if (document.hidden) {
        source?.close();
        source = null;
      } else if (!source) {
        source = start();
      }
    };
    document.addEventListener("visibilitychange", look);
    addEventListener("pagehide", () => source?.close());
    look();
  };

  const live = byId("live");
  if (live && "EventSource" in window) {
    whileSeen(() => {
      const source = follow(live.dataset.live, {
        part: (html) => {
          replace(live, html);
          live.dataset.parts = Number(live.dataset.parts || 0) + 1;
          say("live", false);
        },
        over: (told, source) => {
          source.close();
          say(told ? "stopped" : "ended", true);
          sign.title = told;
        },
      });
      source.onerror = () => say("not connected", true);
      return source;
    });
  }

  const log = byId("log");
  if (log?.dataset.log && "EventSource" in window) {
    const most = 5000;
    const note = byId("log-note");
    whileSeen(() => {
      let isFirst = true;
      const source = follow(log.dataset.log, {
        lines: ({ lines, note: told }) => {
          if (isFirst && lines.length) log.replaceChildren();
          if (lines.length) isFirst = false;
          const isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
          for (const line of lines) {
            const row = document.createElement("div");
            row.textContent = line;
            log.append(row);
          }
          while (log.childElementCount > most) log.firstElementChild.remove();
          if (isAtEnd) log.scrollTop = log.scrollHeight;
          if (told) note.textContent = told;
          note.hidden = !told && log.childElementCount > 0;
        },
        over: (_, source) => source.close(),
      });
      // The browser connects again by itself, and is then sent the last lines anew.
      source.onopen = () => {
        isFirst = true;
      };
      return source;
    });
  }
  if (log) log.scrollTop = log.scrollHeight;

  // A link that logs in has its token behind the `#`, which no server is sent and no log has.
  const login = byId("login");
  if (login && location.hash.startsWith("#token=")) {
    const token = location.hash.slice("#token=".length);
    history.replaceState(null, "", location.pathname + location.search);
    byId("token").value = decodeURIComponent(token);
    login.submit();
  }

  const keys = byId("keys");
  const opener = byId("keys-open");
  if (opener && keys) {
    opener.hidden = false;
    opener.addEventListener("click", () => keys.showModal());
  }
  let isGoing = false;
  addEventListener("keydown", (event) => {
    const isText = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (isText || event.ctrlKey || event.metaKey || event.altKey) return;
    const wasGoing = isGoing;
    isGoing = false;
    if (wasGoing) {
      const link = document.querySelector(`#nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) {
        event.preventDefault();
        location.assign(link.href);
      }
    } else if (event.key === "g") {
      isGoing = true;
    } else if (event.key === "?" && keys) {
      event.preventDefault();
      keys.open ? keys.close() : keys.showModal();
    } else if (event.key === "/" && byId("search")) {
      event.preventDefault();
      byId("search").focus();
    } else if (event.key === "Escape") {
      const asked = event.target.closest?.("details.confirm[open], header details[open]");
      asked?.removeAttribute("open");
      asked?.querySelector("summary")?.focus();
    }
  });
  // One menu at a time.
  addEventListener("click", (event) => {
    document.querySelectorAll("details.confirm[open], header details[open]").forEach((open) => {
      if (!open.contains(event.target)) open.removeAttribute("open");
    });
  });
})();
