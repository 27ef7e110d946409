// A table is filtered by the words typed above it: a row stays when it has them all.
document.querySelectorAll("input.table-filter").forEach((input) => {
  const rows = [...document.querySelectorAll(`#${input.dataset.table} tbody tr`)].map((row) => [row, row.textContent.toLowerCase()]);
  const count = input.closest("p").querySelector(".table-count");
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let kept = 0;
    for (const [row, text] of rows) {
      const stays = words.every((word) => text.includes(word));
      row.hidden = !stays;
      kept += stays;
    }
    count.textContent = `${kept} of ${rows.length}`;
  };
  input.addEventListener("input", show);
  show();
});
