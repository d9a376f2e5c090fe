/* From files, folders, drops and pastes to pictures in the tray of the service. */

import { putPicture } from "./api.js";
import { counted, notice } from "./dom.js";
import { known } from "./store.js";
import { startWork } from "./work.js";

const LONGEST = 512; // pixels; the service keeps no more
const AT_A_TIME = 3;
const ENDINGS = /\.(png|jpe?g|gif|bmp|webp|tiff?|ppm|heic|heif|avif)$/i;
const HIDDEN = /^(\.|Thumbs\.db$|desktop\.ini$|__MACOSX$)/;

const looksLikePicture = (file) => (file.type ? file.type.startsWith("image/") : ENDINGS.test(file.name));

/** Files with the folder that holds each, "" for loose ones: [{file, folder}], hidden ones left out. */
export function fromInput(input) {
  return [...input.files]
    .map((file) => {
      const parts = (file.webkitRelativePath || file.name).split("/");
      return { file, folder: parts.length > 1 ? parts.at(-2) : "", hidden: parts.some((part) => HIDDEN.test(part)) };
    })
    .filter((each) => !each.hidden);
}

/** The same from a drop or a paste. Entries must be asked for at once: the browser takes them back afterwards. */
export function fromTransfer(transfer) {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const entries = items.map((item) => item.webkitGetAsEntry?.());
  const loose = items.map((item) => item.getAsFile());
  return (async () => {
    const found = [];
    for (const [i, entry] of entries.entries()) {
      if (entry?.isDirectory) await walk(entry, found);
      else if (loose[i]) found.push({ file: loose[i], folder: "" });
    }
    return found;
  })();
}

async function walk(folder, found) {
  if (HIDDEN.test(folder.name)) return;
  const reader = folder.createReader();
  const entries = [];
  let part;
  do {
    part = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    entries.push(...part); // a reader gives a hundred at a time, and nothing when it is done
  } while (part.length);
  entries.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }));
  for (const entry of entries) {
    if (entry.isDirectory) await walk(entry, found);
    else if (!HIDDEN.test(entry.name)) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      found.push({ file, folder: folder.name });
    }
  }
}

const shown = new WeakSet(); // blobs that this browser can show
const copies = new Map(); // by id: {blob, url}
const MOST_COPIES = 1000;

/** Keep a copy of a picture that was sent: it need not be fetched, and the service lets go of what was taught. */
export function keepCopy(id, blob) {
  if (copies.has(id)) return;
  copies.set(id, { blob, url: URL.createObjectURL(blob) });
  if (copies.size <= MOST_COPIES) return;
  const [[oldest, { url }]] = copies;
  URL.revokeObjectURL(url);
  copies.delete(oldest);
}

export const copyOf = (id) => copies.get(id);

/** Where to get a picture of the tray: this page's own copy, or the service's. */
export const trayUrl = (id) => copies.get(id)?.url ?? `api/v1/pictures/${id}`;

/** A picture of at most 512 pixels a side. What the browser cannot decode is sent as it is; the service judges it. */
export async function shrunk(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, { imageOrientation: "from-image" });
  } catch {
    return file;
  }
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  if (scale === 1 && file.size < 300000) {
    bitmap.close();
    shown.add(file);
    return file;
  }
  const canvas = new OffscreenCanvas(
    Math.max(1, Math.round(bitmap.width * scale)),
    Math.max(1, Math.round(bitmap.height * scale)),
  );
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
  const type = file.type === "image/png" ? "image/png" : "image/jpeg";
  const blob = await canvas.convertToBlob({ type, quality: 0.92 });
  shown.add(blob);
  return blob;
}

/**
 * Send files to the tray, three at a time, with progress that can be stopped.
 * Those that cannot be read are named in one notice; `took(picture, item)` is called for each that is there.
 */
export async function sendAll(items, what, took) {
  const wanted = items.filter(({ file }) => looksLikePicture(file));
  const strange = items.length - wanted.length;
  const limits = known.model?.limits;
  const problems = strange ? [`${counted(strange, "file is", "files are")} no picture`] : [];
  if (!wanted.length) {
    notice(items.length ? `${problems.join("")}; nothing was taken.` : "There are no pictures in it.", { error: true });
    return [];
  }
  const work = startWork(`Sending ${what}`, wanted.length);
  const sent = [];
  const queue = wanted.map((item, place) => ({ item, place }));
  const worker = async () => {
    for (let next = queue.shift(); next && !work.signal.aborted; next = queue.shift()) {
      const { file } = next.item;
      try {
        const blob = await shrunk(file);
        if (limits && blob.size > limits.picture_bytes) throw new Error("it is too large");
        const picture = await putPicture(blob, file.name, work.signal);
        if (shown.has(blob)) keepCopy(picture.id, blob);
        sent.push({ picture, item: next.item, place: next.place });
        took?.(picture, next.item);
      } catch (error) {
        if (work.signal.aborted) return;
        if (["away", "token", "forbidden", "read_only"].includes(error.kind)) {
          queue.length = 0;
          throw error;
        }
        problems.push(`${file.name}: ${error.message}`);
      }
      work.step();
    }
  };
  try {
    await Promise.all(Array.from({ length: AT_A_TIME }, worker));
  } finally {
    work.end();
  }
  if (problems.length) {
    const more = problems.length > 3 ? `; and ${problems.length - 3} more` : "";
    notice(`Left out: ${problems.slice(0, 3).join("; ")}${more}`, { error: true });
  }
  if (work.signal.aborted) notice(`Stopped: ${sent.length} of ${wanted.length} pictures were sent.`);
  return sent.sort((a, b) => a.place - b.place);
}

/** A button that opens the browser's own dialog for files, or for a folder. */
export function fileInput({ folder = false, label, took, focus }) {
  const input = document.createElement("input");
  Object.assign(input, { type: "file", multiple: true, hidden: true, webkitdirectory: folder });
  if (!folder) input.accept = "image/*,.heic,.heif,.tif,.tiff,.ppm,.bmp";
  input.addEventListener("change", () => {
    const items = fromInput(input);
    input.value = "";
    took(items);
  });
  const open = document.createElement("button");
  open.type = "button";
  open.textContent = label;
  if (focus) open.dataset.focus = focus;
  open.addEventListener("click", () => input.click());
  return [open, input];
}
