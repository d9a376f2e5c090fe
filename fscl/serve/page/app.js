// The least page that works with the API: what the model knows, kept up to date.
const about = document.getElementById("about");
const list = document.getElementById("classes");

async function load() {
  const model = await (await fetch("/api/v1/model")).json();
  if (!model.exists) {
    about.textContent = "There is no model yet.";
    return;
  }
  about.textContent = `${model.name}: ${model.n_classes} classes, ${model.n_examples} examples`;
  const { classes } = await (await fetch("/api/v1/classes")).json();
  list.replaceChildren(
    ...classes.map((each) => {
      const item = document.createElement("li");
      item.textContent = `${each.label} (${each.examples})`;
      return item;
    }),
  );
}

new EventSource("/api/v1/events").addEventListener("state", load);
load();
