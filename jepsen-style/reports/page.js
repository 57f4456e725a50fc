"use strict";
for (const button of document.querySelectorAll("[data-copies]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copies);
    try {
      await navigator.clipboard.writeText(text.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}
const timeline = document.querySelector(".timeline");
const paper = document.querySelector(".paper");
const plot = document.querySelector(".paper .plot, .paper .lane");
if (plot) {
  const end = Number(timeline.dataset.end);
  const faults = [...paper.querySelectorAll(".fault")].map((bar) => {
    const from = parseFloat(bar.style.left) / 100;
    return [from, from + parseFloat(bar.style.width) / 100, bar.title.split(" at ")[0]];
  });
  let at = 0;
  const mark = (fraction) => {
    at = Math.min(Math.max(fraction, 0), 1);
    const on = faults.filter(([from, to]) => from <= at && at <= to).map((fault) => fault[2]);
    paper.style.setProperty("--at", at);
    paper.style.setProperty("--marked", 1);
    document.getElementById("moment").textContent = [(at * end).toFixed(2) + " s", ...on].join(" · ");
  };
  paper.addEventListener("pointermove", (event) => {
    const place = plot.getBoundingClientRect();
    mark((event.clientX - place.left) / place.width);
  });
  timeline.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step && event.target === timeline) {
      mark(at + step * (event.shiftKey ? 0.05 : 0.005));
      event.preventDefault();
    }
  });
}
