/** What the browser keeps: settings for good, and for this tab where the worked example was entered from. */

const PLACE = "glassgear left";

export function remember(name, value) { try { localStorage.setItem(`glassgear ${name}`, value); } catch { /* private mode: not kept */ } }
export function remembered(name) { try { return localStorage.getItem(`glassgear ${name}`); } catch { return null; } }

/** Keep {model, prompt, open} for the end of the example, through reloads too. */
export function keepPlace(place) {
  try { sessionStorage.setItem(PLACE, JSON.stringify(place)); } catch { /* private mode: until the page is left */ }
  return place;
}

/** What was kept last in this tab, or null. */
export function keptPlace() {
  try {
    const found = JSON.parse(sessionStorage.getItem(PLACE));
    return typeof found?.model === "string" && typeof found.prompt === "string" && Number.isInteger(found.open) ? found : null;
  } catch { return null; }
}
