// The texts of a page whose contrast against what lies under them is below WCAG AA, each as one line.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3]));
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.map((part) => linear(part / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (each) => {
    const layers = [];
    for (let at = each; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };

  const poor = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim();
    const each = texts.currentNode.parentElement;
    if (!text || !each.checkVisibility() || each.closest(".unseen, :disabled, noscript, option")) continue;
    const style = getComputedStyle(each);
    const below = ground(each);
    const colour = over(rgba(each.namespaceURI.includes("svg") ? style.fill : style.color), below);
    const [low, high] = [luminance(colour), luminance(below)].sort((one, other) => one - other);
    const ratio = (high + 0.05) / (low + 0.05);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (isLarge ? 3 : 4.5)) poor.push(`${ratio.toFixed(2)} ${each.getAttribute("class")} ${text}`);
  }
  return poor;
};
