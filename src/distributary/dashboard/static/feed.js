// Follows the server's events. While the page is hidden it does not: browsers allow few connections
// to a server, and nobody looks.

const SILENT_MS = 15000; // the server writes every few seconds even if the control plane is away
const RETRY_MS = 2000;

export function follow(onDocument, onLost) {
  let source = null;
  let heardAt = Date.now();

  function open() {
    close();
    heardAt = Date.now();
    source = new EventSource("/events");
    source.onmessage = (event) => {
      heardAt = Date.now();
      onDocument(JSON.parse(event.data));
    };
    source.onerror = () => {
      onLost();
      if (source?.readyState === EventSource.CLOSED) setTimeout(openIfSeen, RETRY_MS);
    };
  }

  function close() {
    source?.close();
    source = null;
  }

  function openIfSeen() {
    if (document.hidden) close();
    else if (!source || source.readyState === EventSource.CLOSED) open();
  }

  document.addEventListener("visibilitychange", openIfSeen);
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", openIfSeen);
  setInterval(() => {
    if (source && Date.now() - heardAt > SILENT_MS) {
      onLost();
      open();
    }
  }, 1000);
  openIfSeen();
}

// An answer of the server, or an error that says why there is none.
export async function ask(path, values = {}) {
  const query = new URLSearchParams(values).toString();
  const response = await fetch(query ? `${path}?${query}` : path);
  const found = await response.json();
  if (!response.ok) throw new Error(found.says);
  return found;
}
