/* Talking with the service: one function for each kind of body, errors as the sentence of the service. */

const BASE = new URL("api/v1/", document.baseURI);

export class ServiceError extends Error {
  constructor(status, { kind = "internal", message = "The service failed without saying why." } = {}) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

/** Emits `token` when the service wants one, `away` when it does not answer, `there` when it does again. */
export const line = new EventTarget();
let away = false;
let asking = 0;

export function isAway(now) {
  if (now === away) return;
  away = now;
  clearInterval(asking);
  if (now) asking = setInterval(() => send("health").catch(() => undefined), 2000); // until it answers
  line.dispatchEvent(new Event(now ? "away" : "there"));
}

export const address = (path) => new URL(path.replace(/^\/?(api\/v1\/)?/, ""), BASE);

async function send(path, { method = "GET", body, type, signal, query = {} } = {}) {
  const url = address(path);
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-FSCL"] = "1";
  if (type) headers["Content-Type"] = type;
  let answer;
  try {
    answer = await fetch(url, { method, headers, body, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    isAway(true);
    throw new ServiceError(0, { kind: "away", message: "The service does not answer. Nothing was lost; try again." });
  }
  isAway(false);
  if (answer.status === 204) return null;
  const text = await answer.text();
  let value = {};
  try {
    value = text ? JSON.parse(text) : {};
  } catch {
    throw new ServiceError(answer.status, { message: `The service answered ${answer.status} without a sentence.` });
  }
  if (answer.ok) return value;
  if (value.error?.kind === "token") line.dispatchEvent(new Event("token"));
  const error = new ServiceError(answer.status, value.error);
  error.retryAfter = Number(answer.headers.get("Retry-After")) || 0;
  throw error;
}

const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** A busy service asks for another try: up to four, since another process is writing and will end. */
async function patiently(request) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await request();
    } catch (error) {
      if (error.kind !== "busy" || attempt === 3) throw error;
      await pause(Math.min(5, error.retryAfter || 1));
    }
  }
}

export const get = (path, query = {}, signal) => send(path, { query, signal });
export const post = (path, value = {}, signal) =>
  patiently(() => send(path, { method: "POST", body: JSON.stringify(value), type: "application/json", signal }));
export const remove = (path) => send(path, { method: "DELETE" });

/** Put one picture in the tray. */
export const putPicture = (blob, name, signal) =>
  patiently(() =>
    send("pictures", {
      method: "POST",
      body: blob,
      type: blob.type.startsWith("image/") ? blob.type : "application/octet-stream",
      query: name ? { name: name.slice(0, 200) } : {},
      signal,
    }),
  );

/** Ask for one frame; nothing is kept. */
export const askFrame = (blob, signal) =>
  send("predict", { method: "POST", body: blob, type: blob.type, query: { top: 5, nearest: 1 }, signal });
