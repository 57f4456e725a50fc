// Actions on the cluster, with the token that the command printed.
// The token comes in the fragment of the URL, which is not sent to a server, and stays in this tab.

const KEY = "barnabas-token";

function readToken(kept) {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  try {
    if (given) {
      sessionStorage.setItem(KEY, given);
      history.replaceState(null, "", location.pathname + location.search);
    }
    return given || kept || sessionStorage.getItem(KEY) || "";
  } catch {
    return given || kept; // a browser that keeps nothing
  }
}

export class Control {
  /** `failed(line)` gets the text of a refusal. */
  constructor(failed) {
    this.failed = failed;
    this.token = "";
    this.faultsAllowed = false;
    this.takeToken();
  }

  /** The token in the URL. */
  takeToken() {
    this.token = readToken(this.token);
    this.refused = false;
  }

  get mayAct() {
    return this.faultsAllowed && this.token !== "" && !this.refused;
  }

  /** Why there are no buttons; may be empty. */
  get hint() {
    if (!this.faultsAllowed) return "Read-only: the page was started without --allow-faults.";
    if (this.refused)
      return "Read-only: the server has another token (was it restarted?). Open the URL that barnabas page printed.";
    if (!this.token)
      return "Read-only: to inject faults, open the URL with #token=… that barnabas page printed.";
    return "";
  }

  /** True if the action succeeded. The caller prevents double clicks. */
  async post(path, body) {
    let response;
    try {
      response = await fetch(`/control/${path}`, {
        method: "POST",
        headers: { "X-Barnabas-Token": this.token, "Content-Type": "application/json" },
        body: JSON.stringify(body ?? {}),
      });
    } catch {
      this.failed("The page's server does not answer.");
      return false;
    }
    if (response.ok) return true;
    if (response.status === 403) this.refused = true;
    const line = (await response.text().catch(() => "")).trim().split("\n")[0].slice(0, 300);
    this.failed(line || `The server refused (${response.status}).`);
    return false;
  }

  node(action, name) {
    return this.post(`${action}/${encodeURIComponent(name)}`);
  }

  link(action, between) {
    return this.post(action, { between });
  }
}

/** Marks a button as busy during its action. */
export function whileBusy(button, action) {
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-busy") === "true") return;
    button.setAttribute("aria-busy", "true");
    try {
      await action();
    } finally {
      button.removeAttribute("aria-busy");
    }
  });
}
