// Elements of the page, found and made. Text goes in as text: a name is never read as HTML.

export const element = (selector) => document.querySelector(selector);

export function make(tag, className, text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

/** Seconds in words. */
export function duration(seconds) {
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

/** Asks in a dialog; whether the answer is yes. */
export function confirmed(question) {
  const dialog = element("#confirm");
  element("#question").textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

/** Lets files be dropped on an element. */
export function droppable(target, take) {
  const handle = (type, work) =>
    target.addEventListener(type, (event) => {
      event.preventDefault(); // else the browser shows the file in the place of the page
      event.stopPropagation();
      target.classList.toggle("over", type === "dragover");
      work?.(event);
    });
  handle("dragover");
  handle("dragleave");
  handle("drop", (event) => take(event.dataTransfer.files[0]));
}
