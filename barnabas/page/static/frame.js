// One animation frame: displays that asked are drawn once per frame.
// A hidden page gets no frames and draws nothing.

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
      // A display that fails to draw does not affect the others.
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
