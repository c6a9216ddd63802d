"use strict";
// Search: only the entries that have the text are shown, with what is folded in
// them open. A link to an entry opens what it is folded in. Texts are only read.
(() => {
  const entries = [...document.querySelectorAll("article")].map((at) => ({ at, text: at.textContent.toLowerCase() }));
  const folded = [...document.querySelectorAll("main details")].map((at) => ({ at, open: at.open }));
  const box = document.createElement("div");
  const input = document.createElement("input");
  const count = document.createElement("small");
  box.id = "find";
  input.type = "search";
  input.placeholder = "Find in this page";
  input.setAttribute("aria-label", "Find in this page");
  count.setAttribute("role", "status");
  box.append(input, " ", count);
  document.querySelector("main").before(box);
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    let found = 0;
    for (const entry of entries) {
      const has = text !== "" && entry.text.includes(text);
      found += has;
      entry.at.hidden = text !== "" && !has;
      entry.at.classList.toggle("found", has);
    }
    for (const fold of folded) {
      fold.at.open = text === "" ? fold.open : fold.at.textContent.toLowerCase().includes(text);
    }
    count.textContent = text === "" ? "" : found + " of " + entries.length;
  });
  const reveal = () => {
    const at = document.querySelector(":target");
    if (at === null) return;
    for (let up = at; up !== null; up = up.parentElement) {
      if (up.tagName === "DETAILS") up.open = true;
    }
    at.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
