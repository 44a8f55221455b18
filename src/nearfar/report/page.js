"use strict";
(() => {
  const tip = document.getElementById("tip");
  for (const title of document.querySelectorAll("svg.chart :is(circle, polygon, rect) > title")) {
    title.parentNode.dataset.tip = title.textContent;
    title.remove();
  }
  document.addEventListener("pointermove", (event) => {
    const marked = event.target.closest ? event.target.closest("[data-tip]") : null;
    tip.hidden = !marked;
    if (!marked) return;
    tip.textContent = marked.dataset.tip;
    const box = tip.getBoundingClientRect();
    const right = event.clientX + 14 + box.width > innerWidth;
    tip.style.left = `${Math.max(4, right ? event.clientX - 14 - box.width : event.clientX + 14)}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - box.height - 8))}px`;
  });
  document.addEventListener("pointerleave", () => { tip.hidden = true; });

  for (const group of document.querySelectorAll(".tabs")) {
    const parts = [...group.children];
    const list = document.createElement("div");
    list.className = "tablist";
    list.setAttribute("role", "tablist");
    const buttons = parts.map((part, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = part.dataset.title;
      button.setAttribute("role", "tab");
      part.setAttribute("role", "tabpanel");
      button.addEventListener("click", () => show(place));
      button.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (step) show((place + step + parts.length) % parts.length, true);
      });
      list.append(button);
      return button;
    });
    const show = (chosen, focus) => {
      parts.forEach((part, place) => { part.hidden = place !== chosen; });
      buttons.forEach((button, place) => {
        button.setAttribute("aria-selected", String(place === chosen));
        button.tabIndex = place === chosen ? 0 : -1;
      });
      if (focus) buttons[chosen].focus();
    };
    group.prepend(list);
    group.classList.add("tabbed");
    show(0);
  }

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => { one.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((one) => { one.open = false; }));
})();
