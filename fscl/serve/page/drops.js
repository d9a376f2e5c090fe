/* Dropping files: on a zone of the page, and nowhere else. */

/** A drop zone for files; `over` marks it while a drag is above it. */
export function takesDrops(element, took) {
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  element.addEventListener("dragover", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    event.dataTransfer.dropEffect = "copy";
    element.classList.add("over");
  });
  element.addEventListener("dragleave", (event) => {
    if (!element.contains(event.relatedTarget)) element.classList.remove("over");
  });
  element.addEventListener("drop", (event) => {
    element.classList.remove("over");
    if (!holdsFiles(event)) return;
    event.preventDefault();
    event.stopPropagation();
    took(event.dataTransfer);
  });
}
