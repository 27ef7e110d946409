"""How charts are drawn: axes, lines, bars and colours as SVG text, on a page and as pictures of their own."""
