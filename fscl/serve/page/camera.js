/* The camera itself: starting and stopping it, and taking square frames. Nothing leaves the machine but to the service. */

import { print, PRINT_SIDE } from "./steady.js";

const FRAME = 256; // pixels; bases look at 32 to 260
const KEPT = 384; // pixels of a frame that is taught

const WHY = {
  NotAllowedError: "The browser was told not to use the camera. Allow it beside the address, then try again.",
  NotFoundError: "No camera was found. Files can be dropped or pasted instead.",
  NotReadableError: "The camera is in use by another program.",
};

export const camera = { stream: null, video: null, facing: "environment" };

export async function startCamera(video) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("This browser gives the camera only to pages of this machine (localhost) or with https.");
  }
  stopCamera();
  try {
    camera.stream = await navigator.mediaDevices.getUserMedia({
      audio: false,
      video: { width: { ideal: 640 }, height: { ideal: 480 }, facingMode: camera.facing },
    });
  } catch (error) {
    throw new Error(WHY[error.name] ?? `The camera did not start: ${error.message}`);
  }
  camera.video = video;
  video.srcObject = camera.stream;
  await video.play();
}

export function stopCamera() {
  camera.stream?.getTracks().forEach((track) => track.stop());
  if (camera.video) camera.video.srcObject = null;
  camera.stream = null;
}

/** The middle square of what the camera sees, drawn to a canvas of that side. */
function square(side, options) {
  const { video } = camera;
  const edge = Math.min(video.videoWidth, video.videoHeight);
  const canvas = new OffscreenCanvas(side, side);
  const context = canvas.getContext("2d", options);
  context.imageSmoothingQuality = "medium";
  context.drawImage(video, (video.videoWidth - edge) / 2, (video.videoHeight - edge) / 2, edge, edge, 0, 0, side, side);
  return { canvas, context };
}

export const ready = () => Boolean(camera.stream && camera.video?.videoWidth);
export const askedFrame = () => square(FRAME).canvas.convertToBlob({ type: "image/jpeg", quality: 0.85 });
export const keptFrame = () => square(KEPT).canvas.convertToBlob({ type: "image/jpeg", quality: 0.92 });

export function framePrint() {
  const { context } = square(PRINT_SIDE, { willReadFrequently: true });
  return print(context.getImageData(0, 0, PRINT_SIDE, PRINT_SIDE).data);
}
