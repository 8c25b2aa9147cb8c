// News while a run trains. The page loads itself into a hidden frame, which hands over its data by a message: a page that was opened
// from disk may not read files, but it may do this, and nothing that the reader has chosen is lost.

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
    // A browser that refuses the frame gets the plain way.
    const patience = setTimeout(() => {
      end();
      location.reload();
    }, 20_000);
    addEventListener("message", hear);
    document.body.append(frame);
  }, 1000 * seconds);
}
