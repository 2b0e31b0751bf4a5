// What is wrong with a page, in sentences. Contrast follows WCAG 2.2: the relative luminance of a text's
// colour and of what lies behind it, with all that is translucent mixed in.
(least) => {
  const faults = [];
  const seen = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const name = (element) => `<${element.tagName.toLowerCase()} id="${element.id}" class="${element.getAttribute("class") ?? ""}"> ${(element.textContent ?? "").trim().slice(0, 40)}`;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(seen);

  function labelOf(element) {
    const by = element.getAttribute("aria-labelledby");
    if (by) return by.split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ").trim();
    return (element.getAttribute("aria-label") ?? "").trim();
  }

  // --- names
  for (const field of all("input, select, textarea")) {
    const labels = [...(field.labels ?? [])].map((label) => label.textContent.trim()).join("");
    if (!labels && !labelOf(field)) faults.push(`no label: ${name(field)}`);
  }
  for (const each of all("a, button, summary, [role=button]")) {
    if (!each.textContent.trim() && !labelOf(each)) faults.push(`no name: ${name(each)}`);
  }
  for (const image of all("img")) if (!image.hasAttribute("alt")) faults.push(`no alt: ${name(image)}`);
  for (const image of all("[role=img], figure[tabindex]")) if (!labelOf(image)) faults.push(`no name: ${name(image)}`);
  for (const table of all("table")) {
    if (!labelOf(table)) faults.push(`no name: ${name(table)}`);
    for (const head of table.querySelectorAll("th")) {
      if (!head.getAttribute("scope")) faults.push(`no scope: ${name(head)}`);
    }
  }
  for (const section of all("section, nav, dialog, fieldset")) {
    const legend = section.tagName === "FIELDSET" && section.querySelector("legend");
    const own = section.querySelector(":scope > h2");
    if (!labelOf(section) && !legend && !own) faults.push(`no name: ${name(section)}`);
  }

  // --- order
  const levels = all("h1, h2, h3, h4, h5, h6").map((head) => [Number(head.tagName[1]), head]);
  if (levels.filter(([level]) => level === 1).length !== 1) faults.push("not one h1");
  let before = 0;
  for (const [level, head] of levels) {
    if (level > before + 1) faults.push(`heading skips a level: ${name(head)}`);
    before = level;
  }
  for (const one of ["main", "header", "nav", "footer"]) {
    if (document.querySelectorAll(`body > ${one}, header > ${one}`).length !== 1) faults.push(`not one ${one}`);
  }
  if (!document.documentElement.lang) faults.push("no language");
  if (!document.title) faults.push("no title");
  const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
  for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push(`id twice: ${id}`);
  for (const each of document.querySelectorAll("[tabindex]")) {
    if (each.tabIndex > 0) faults.push(`tabindex above 0: ${name(each)}`);
  }
  for (const each of document.querySelectorAll("[aria-hidden=true]")) {
    if (each.querySelector("a, button, input, select")) faults.push(`hidden but in reach: ${name(each)}`);
  }

  // --- contrast
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const known = new Map();
  function parse(colour) {
    if (!known.has(colour)) {
      canvas.clearRect(0, 0, 1, 1);
      canvas.fillStyle = colour;
      canvas.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
      known.set(colour, [r, g, b, a / 255]);
    }
    return known.get(colour);
  }
  const mix = ([r, g, b, a], [R, G, B]) => [r * a + R * (1 - a), g * a + G * (1 - a), b * a + B * (1 - a)];
  function behind(element) {
    const layers = [];
    for (let each = element; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found[3]) layers.push(found);
      if (found[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => mix(layer, below), [255, 255, 255]);
  }
  const linear = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let counted = 0;
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !seen(element) || element.closest(":disabled, noscript, script")) continue;
    const style = getComputedStyle(element);
    if (element.closest(".unseen") || style.clipPath !== "none") continue;
    const ground = behind(element);
    const ink = parse(element.closest("svg") ? style.fill : style.color);
    const [one, other] = [luminance(mix(ink, ground)), luminance(ground)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    counted += 1;
    if (contrast < least) faults.push(`contrast ${contrast.toFixed(2)}: ${name(element)}`);
  }
  if (counted < 10) faults.push(`only ${counted} texts`);

  // --- width
  const wide = document.documentElement;
  if (wide.scrollWidth > wide.clientWidth) faults.push(`scrolls sideways: ${wide.scrollWidth} > ${wide.clientWidth}`);
  return faults;
}
