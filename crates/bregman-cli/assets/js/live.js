// Updates while a run trains. The page loads itself into a hidden frame, which posts its data as a message: a page
// opened from disk may not read files, but it may do this, and zoom and selections are kept.

const NEWS = "?news";
const isMessenger = location.search === NEWS && parent !== window;

function deliver() {
  parent.postMessage({ bregman: byId("data").textContent }, "*");
}

function follow(show) {
  const seconds = state.data.live,
    line = byId("live");
  line.hidden = !seconds;
  if (!seconds) return;
  line.textContent = `live, ${new Date(state.data.written).toLocaleTimeString()}`;
  setTimeout(() => {
    const frame = html("iframe", { hidden: true, src: `${location.href.split(/[?#]/)[0]}${NEWS}` });
    const end = () => {
      clearTimeout(patience);
      removeEventListener("message", hear);
      frame.remove();
    };
    const hear = (event) => {
      if (event.source !== frame.contentWindow || !event.data.bregman) return;
      end();
      const data = JSON.parse(event.data.bregman);
      if (data.written !== state.data.written) show(data);
      else follow(show);
    };
    // If the browser refuses the frame, reload the page.
    const patience = setTimeout(() => {
      end();
      location.reload();
    }, 20_000);
    addEventListener("message", hear);
    document.body.append(frame);
  }, 1000 * seconds);
}
