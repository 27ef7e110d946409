(() => {
  // Saves a chart: the SVG of the page, its title and keys shown, with a style of its own; as PNG drawn at twice its size.
  const data = JSON.parse(document.getElementById("data").textContent);
  const element = (tag, attributes) => { const e = document.createElementNS("http://www.w3.org/2000/svg", tag); for (const k in attributes) e.setAttribute(k, attributes[k]); return e; };
  const framed = (figure) => {
    const svg = figure.querySelector("svg").cloneNode(true), box = svg.querySelector(".paper").dataset.box;
    const [x, y, width, height] = box.split(" ").map(Number);
    for (const hidden of svg.querySelectorAll(".cursor, .off")) hidden.remove();
    for (const [name, value] of Object.entries({ viewBox: box, width, height })) svg.setAttribute(name, value);
    const style = element("style", {});
    style.textContent = data.paper;
    svg.prepend(style, element("rect", { x, y, width, height, fill: "#ffffff" }));
    return { text: new XMLSerializer().serializeToString(svg), width, height };
  };
  const offer = (name, href) => { const link = document.createElement("a"); link.download = name; link.href = href; link.click(); };
  const address = (text) => `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  const drawn = ({ text, width, height }) => new Promise((done, failed) => {
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = 2 * width; canvas.height = 2 * height;
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      done(canvas.toDataURL("image/png"));
    };
    image.onerror = failed;
    image.src = address(text);
  });
  document.addEventListener("click", async (event) => {
    const button = event.target instanceof Element ? event.target.closest("button[data-save]") : null;
    if (!button) return;
    const figure = button.closest("figure"), name = figure.id.replace(/[^\w.-]+/g, "-").slice(0, 80), picture = framed(figure);
    if (button.dataset.save === "svg") offer(`${name}.svg`, address(picture.text)); else offer(`${name}.png`, await drawn(picture));
  });
})();
