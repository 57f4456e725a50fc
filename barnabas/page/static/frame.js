// One animation frame: displays ask to be drawn, and are drawn once, whatever came in between.
// A page that nobody sees gets no frames, and draws nothing.

const asked = new Set();
let scheduled = false;

function drawAll() {
  scheduled = false;
  const displays = [...asked];
  asked.clear();
  for (const display of displays) {
    try {
      display.draw();
    } catch (error) {
      // One display that cannot draw what it was told leaves the others standing.
      console.error(error);
    }
  }
}

/** `display.draw()` is called in the next frame. */
export function askFrame(display) {
  asked.add(display);
  if (!scheduled) {
    scheduled = true;
    requestAnimationFrame(drawAll);
  }
}
