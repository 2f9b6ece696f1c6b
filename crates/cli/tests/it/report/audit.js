// Returns what cannot be read of a document as it is laid out, a sentence each.
function audit(page) {
  const root = page.documentElement, width = root.clientWidth, faults = new Set();
  page.querySelectorAll('details').forEach(part => part.open = true);
  if (root.scrollWidth > width) faults.add(`the page is ${root.scrollWidth} px wide`);
  // Lines that a word is on.
  const lines = (text, from, to) => {
    const range = page.createRange();
    range.setStart(text, from);
    range.setEnd(text, to);
    const boxes = [...range.getClientRects()].filter(box => box.width > 0);
    return new Set(boxes.map(box => Math.round(box.top))).size;
  };
  const texts = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode, at = text.parentElement;
    if (at.closest('svg, pre, style')) continue;
    const size = parseFloat(page.defaultView.getComputedStyle(at).fontSize);
    if (size < 11) faults.add(`letters of ${size} px: ${text.data.slice(0, 40)}`);
    // A name may go on in the next line behind a hyphen where the window is narrow.
    const isWhole = at.closest('th:first-child') && width >= 800;
    for (const word of text.data.matchAll(isWhole ? /\S+/g : /[^\s-]+-*/g)) {
      if (lines(text, word.index, word.index + word[0].length) > 1) {
        faults.add(`${at.closest('th') ? 'a name' : at.tagName} is broken: ${word[0]}`);
      }
    }
  }
  for (const plot of page.querySelectorAll('svg')) {
    const around = plot.getBoundingClientRect(), scale = around.width / plot.viewBox.baseVal.width;
    const labels = [...plot.querySelectorAll('text')]
      .map(label => [label.textContent, label.getBoundingClientRect()]);
    const size = 12 * scale;
    if (size < 10) faults.add(`letters of a plot of ${size.toFixed(1)} px`);
    labels.forEach(([name, box], index) => {
      const isIn = box.left > around.left - 1 && box.right < around.right + 1
        && box.bottom < around.bottom + 1;
      if (!isIn) faults.add(`a label is cut: ${name}`);
      for (const [other, its] of labels.slice(index + 1)) {
        const isApart = box.left >= its.right - .5 || its.left >= box.right - .5
          || box.top >= its.bottom - 2 || its.top >= box.bottom - 2;
        if (!isApart) faults.add(`labels overlap: ${name} and ${other}`);
      }
    });
  }
  return [...faults];
}
