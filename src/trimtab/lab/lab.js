"use strict";
(() => {
  for (const section of document.querySelectorAll("section")) {
    const lines = (colour) => section.querySelectorAll(`.charts:not(.small) .line.s${colour}`);
    const boxes = [...section.querySelectorAll("input[data-s]")];
    const shown = (box) => { for (const line of lines(box.dataset.s)) line.classList.toggle("off", !box.checked); };
    for (const box of boxes) box.addEventListener("change", () => shown(box));
    for (const button of section.querySelectorAll("button[data-all]")) {
      button.addEventListener("click", () => { for (const box of boxes) { box.checked = button.dataset.all === "1"; shown(box); } });
    }
    for (const row of section.querySelectorAll("tr[data-s]")) {
      const pick = (on) => { section.classList.toggle("picking", on); for (const line of lines(row.dataset.s)) line.classList.toggle("picked", on); };
      row.addEventListener("pointerenter", () => pick(true));
      row.addEventListener("pointerleave", () => pick(false));
    }
  }
})();
