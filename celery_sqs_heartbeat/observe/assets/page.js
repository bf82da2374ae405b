"use strict";

// Everything from the worker is put into the page with textContent only.

const POLL_MS = 1000;
const PATIENCE_MS = 5000;
const COPIED_MS = 1500;
const HEALTH = {
  ok: "Keeper is healthy",
  late: "Keeper is late: leases may expire",
  stalled: "The worker's event loop is stalled: it neither starts tasks nor settles messages",
  unconnected: "The worker is not connected to SQS: no messages arrive",
  deaf: "SQS can't be reached or refuses polls: no messages arrive",
  dead: "Keeper is dead: leases expire",
  away: "The worker does not answer",
  locked: "The worker needs its token",
};
const TITLES = { late: "Keeper late", stalled: "Loop stalled", unconnected: "Not connected to SQS", deaf: "SQS unreachable", dead: "Keeper dead", away: "No answer", locked: "Token needed" };
const STATUSES = { expired: "expired", lost: "lost", capped: "no longer extended", refused: "not extended" };
const GOALS = { delete: "being deleted", release: "being released" };

let token = takeTokenFromAddress();
let lastAnswer = null;
const queues = new Map();
const happened = new Map();
const stops = new Map();

const { compare } = new Intl.Collator("en", { numeric: true });
const find = (id) => document.getElementById(id);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// The token is kept in memory only: not in the address, the history or any storage. It is read only
// from the part after "#", because a query is sent to the server and may end up in a log.
function takeTokenFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (location.hash || location.search) history.replaceState(null, "", location.pathname);
  return given || null;
}

async function ask(path) {
  const answer = await fetch(path, {
    cache: "no-store",
    credentials: "omit",
    headers: token ? { Authorization: `Bearer ${token}` } : {},
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (answer.status === 401) return null;
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function seconds(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size < 10) return `${value.toFixed(1)} s`;
  if (size < 120) return `${Math.round(value)} s`;
  if (size < 7200) return `${Math.round(value / 60)} min`;
  return `${(value / 3600).toFixed(1)} h`;
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function number(value) {
  return value.toLocaleString("en");
}

// The tab's title shows trouble, too, because the tab is usually in the background.
function setHealth(status, notWell = 0) {
  find("health").dataset.status = status;
  setText(find("health-text"), HEALTH[status]);
  const leases = notWell === 1 ? "1 lease not well" : `${number(notWell)} leases not well`;
  const trouble = TITLES[status] || (notWell ? leases : "");
  const title = trouble ? `⚠ ${trouble} · SQS leases` : "SQS leases";
  if (document.title !== title) document.title = title;
}

// navigator.clipboard exists only on loopback and with TLS.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const before = document.activeElement;
    const field = make("textarea", "", text);
    document.body.append(field);
    field.select();
    const isCopied = document.execCommand("copy");
    field.remove();
    if (before) before.focus();
    return isCopied;
  }
}

function newId(what, id) {
  const button = make("button", "id", id);
  button.type = "button";
  button.title = `Copy the ${what} ${id}`;
  button.setAttribute("aria-label", button.title);
  button.addEventListener("click", async () => {
    const isCopied = await copy(id);
    setText(find("copied"), isCopied ? `Copied the ${what} ${id}.` : `The browser did not copy ${id}.`);
    setText(button, isCopied ? "✓ copied" : "not copied");
    setTimeout(() => setText(button, id), COPIED_MS);
  });
  return button;
}

function showFigures(leases) {
  setHealth(leases.health.status, leases.not_well);
  setText(find("worker"), leases.worker || location.host);
  setText(find("in-flight"), number(leases.in_flight));
  setText(find("running"), number(leases.running));
  setText(find("waiting"), number(leases.waiting));
  setText(find("pending-deletes"), number(leases.pending_deletes));
  setText(find("pending-releases"), number(leases.pending_releases));
  showGroups(leases);
  setText(find("oldest"), seconds(leases.oldest));
  setText(find("tick"), seconds(leases.health.last_tick_age));
  setText(find("replaced"), `${leases.health.replaced} ×`);
  setText(find("standstills"), `${leases.health.standstills} ×`);
  const more = leases.leases_left_out;
  find("more").hidden = more === 0;
  setText(find("more"), `The ${number(leases.leases.length)} leases that expire first are listed, ${number(more)} are not. The counts include all.`);
  find("no-leases").hidden = leases.in_flight > 0;
}

// Only FIFO queues have groups that wait.
function showGroups(leases) {
  const stopped = leases.stopped_groups.length + leases.stopped_groups_left_out;
  for (const figure of document.querySelectorAll(".of-groups")) figure.hidden = leases.groups + stopped === 0;
  setText(find("groups"), number(leases.groups));
  setText(find("behind"), number(leases.behind));
  setText(find("stopped"), number(stopped));
}

// Rows, tasks and queues stay the same elements from poll to poll. This preserves the focus and
// collapsed sections.
function keep(known, key, parent, create) {
  let entry = known.get(key);
  if (!entry) {
    entry = create();
    known.set(key, entry);
    parent.append(entry.element);
  }
  entry.seen = true;
  return entry;
}

function sweep(known) {
  for (const [key, entry] of known) {
    if (entry.seen) {
      entry.seen = false;
      continue;
    }
    entry.element.remove();
    known.delete(key);
  }
}

function newQueue(name) {
  const element = make("details");
  element.open = true;
  const summary = make("summary", "", `${name} `);
  const count = make("span", "count");
  summary.append(count);
  element.append(summary);
  return { element, count, tasks: new Map() };
}

function newTask(name) {
  const element = make("div");
  const list = make("ul", "leases");
  const heading = make("h3", "", `${name || "task unknown"} `);
  const count = make("span", "count");
  heading.append(count);
  element.append(heading, list);
  return { element, count, list, rows: new Map() };
}

function newRow(lease) {
  const element = make("li", "lease");
  const id = newId("message id", lease.message_id);
  const track = make("div", "track");
  track.setAttribute("role", "img");
  const text = make("span", "left-text");
  element.append(id, track, text);
  return { element, track, text };
}

// The bar spans one visibility timeout before now and one after, with now in the middle.
function place(element, from, to, timeout) {
  const percent = (time) => Math.min(100, Math.max(0, 50 + (50 * time) / timeout));
  const left = percent(from);
  element.style.left = `${left}%`;
  element.style.width = `${Math.max(0, percent(to) - left)}%`;
}

function drawBar(track, lease) {
  const timeout = Math.max(1, lease.visibility_timeout);
  const end = lease.expires_in;
  const parts = [];
  const part = (name, from, to) => {
    const element = make("span", name);
    place(element, from, to, timeout);
    parts.push(element);
  };
  part("past", -lease.received_ago, Math.min(0, end));
  if (end > 0) {
    const isExtended = lease.status === "owned" && lease.goal !== "release";
    const due = isExtended ? Math.max(0, end - lease.threshold) : end;
    part("left", 0, due);
    part("threshold", due, end);
  }
  for (const ago of lease.extended_ago) {
    if (ago > timeout) continue;
    const mark = make("span", "mark");
    mark.style.left = `${50 - (50 * ago) / timeout}%`;
    parts.push(mark);
  }
  parts.push(make("span", "now"));
  track.replaceChildren(...parts);
}

function condition(lease) {
  return STATUSES[lease.status] || GOALS[lease.goal] || "";
}

function phase(lease) {
  if (lease.goal !== "hold") return "ended";
  return lease.running_for === null ? "waiting" : "running";
}

function counted(totals) {
  const all = totals.in_flight === 1 ? "1 lease" : `${number(totals.in_flight)} leases`;
  const phases = `${all}: ${number(totals.running)} running, ${number(totals.waiting)} waiting`;
  if (totals.groups === 0) return phases;
  const groups = totals.groups === 1 ? "1 group" : `${number(totals.groups)} groups`;
  const behind = totals.behind === 0 ? "" : ` (${number(totals.behind)} behind others)`;
  return `${phases}${behind} in ${groups}`;
}

function showRow(row, lease) {
  row.element.dataset.status = lease.status;
  drawBar(row.track, lease);
  const isOver = lease.expires_in <= 0;
  const time = seconds(Math.abs(lease.expires_in));
  const left = isOver ? `expired ${time} ago` : `${time} of ${seconds(lease.visibility_timeout)} left`;
  const extended = `${lease.extensions} × extended`;
  const does = { running: `running for ${seconds(lease.running_for)}`, waiting: lease.behind ? "behind another" : "waiting", ended: "" }[phase(lease)];
  const group = lease.group === null ? "" : `group ${lease.group}`;
  const shown = [does, condition(lease) || extended, group].filter(Boolean).join(", ");
  row.element.dataset.phase = phase(lease);
  row.track.setAttribute("aria-label", [left, does, extended, condition(lease), group].filter(Boolean).join(", "));
  row.text.replaceChildren(make("strong", "", isOver ? `expired ${time} ago` : `${time} left`), `, ${shown}`);
}

function showLeases(payload) {
  const ordered = [...payload.leases].sort(
    (one, other) =>
      other.held_for - one.held_for ||
      compare(one.group || "", other.group || "") ||
      compare(one.sequence_number || "", other.sequence_number || "") ||
      compare(one.message_id, other.message_id),
  );
  for (const lease of ordered) {
    const queue = keep(queues, lease.queue_url, find("queues"), () => newQueue(lease.queue));
    const name = lease.task || "";
    const task = keep(queue.tasks, name, queue.element, () => newTask(name));
    const row = keep(task.rows, lease.message_id, task.list, () => newRow(lease));
    showRow(row, lease);
  }
  for (const each of payload.queues) {
    const queue = queues.get(each.queue_url);
    if (queue) setText(queue.count, counted(each));
  }
  for (const each of payload.tasks) {
    const task = queues.get(each.queue_url)?.tasks.get(each.task || "");
    if (task) setText(task.count, counted(each));
  }
  for (const queue of queues.values()) {
    for (const task of queue.tasks.values()) sweep(task.rows);
    sweep(queue.tasks);
  }
  sweep(queues);
}

function showChart(minutes) {
  const space = "http://www.w3.org/2000/svg";
  const sums = minutes.map((minute) => minute.change_visibility + minute.delete);
  const most = Math.max(1, ...sums);
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", `0 0 ${minutes.length * 10} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  minutes.forEach((minute, place) => {
    let top = 100;
    for (const [name, count] of [["change", minute.change_visibility], ["delete", minute.delete]]) {
      const height = (96 * count) / most;
      top -= height;
      const bar = document.createElementNS(space, "rect");
      bar.setAttribute("class", name);
      bar.setAttribute("x", String(place * 10 + 1));
      bar.setAttribute("width", "8");
      bar.setAttribute("y", String(top));
      bar.setAttribute("height", String(height));
      svg.append(bar);
    }
  });
  const peak = Math.max(...sums);
  find("chart").replaceChildren(svg);
  find("chart").setAttribute("aria-label", `${sums[sums.length - 1]} calls this minute, at most ${peak} in any of the last ${minutes.length} minutes`);
  setText(find("peak"), `highest: ${peak}`);
}

function newHappening(each) {
  const element = make("li");
  const what = make("span", "what", each.what);
  what.dataset.what = each.what;
  const when = make("span");
  const cause = each.cause && each.what !== each.cause ? ` (${each.cause})` : "";
  const detail = make("span", "detail", `${each.task || "task unknown"} · ${each.queue} · message `);
  detail.append(newId("message id", each.message_id), ` · receive ${each.receive_count}, held for ${seconds(each.held_for)}`);
  element.append(what, when, detail);
  return { element, when, cause };
}

function showHappenings(events) {
  const happenings = events.happenings;
  const list = find("happenings");
  find("no-happenings").hidden = happenings.length > 0;
  list.hidden = happenings.length === 0;
  find("more-happenings").hidden = events.happenings_left_out === 0;
  setText(find("more-happenings"), `${number(events.happenings_left_out)} earlier ones are not listed.`);
  // The newest is first in the list, so it is added last.
  for (const each of [...happenings].reverse()) {
    const key = [each.what, each.message_id, each.receive_count, each.held_for].join();
    let entry = happened.get(key);
    if (!entry) {
      entry = newHappening(each);
      happened.set(key, entry);
      list.prepend(entry.element);
    }
    entry.seen = true;
    setText(entry.when, `${seconds(each.ago)} ago${entry.cause}`);
  }
  sweep(happened);
}

function newStop(each) {
  const element = make("li");
  const group = make("span", "group", each.group);
  const when = make("span");
  const most = each.max_receive_count === null ? "" : ` of ${each.max_receive_count}`;
  const detail = make("span", "detail", `${each.task || "task unknown"} · ${each.queue} · message `);
  detail.append(newId("message id", each.message_id), ` · receive ${each.receive_count}${most}`);
  element.append(group, when, detail);
  return { element, when };
}

function showStops(leases) {
  const list = find("stops");
  find("stopped-groups").hidden = leases.stopped_groups.length === 0;
  find("more-stops").hidden = leases.stopped_groups_left_out === 0;
  setText(find("more-stops"), `${number(leases.stopped_groups_left_out)} that stopped earlier are not listed.`);
  for (const each of [...leases.stopped_groups].reverse()) {
    const key = [each.queue_url, each.group, each.message_id, each.receive_count].join();
    let entry = stops.get(key);
    if (!entry) {
      entry = newStop(each);
      stops.set(key, entry);
      list.prepend(entry.element);
    }
    entry.seen = true;
    const visible = each.visible_in > 0 ? `hidden for ${seconds(each.visible_in)} more` : `visible to every worker for ${seconds(-each.visible_in)}`;
    setText(entry.when, ` ${each.cause || "released"} ${seconds(each.ago)} ago, ${visible}`);
  }
  sweep(stops);
}

function showTrouble(text) {
  find("trouble").hidden = !text;
  setText(find("trouble"), text);
}

// To the minute: the text is an alert, and would be read aloud whenever it changes.
function silence(leases) {
  const deaf = leases ? leases.health.polls.filter((polls) => polls.deaf) : [];
  if (!deaf.length) return "";
  const last = Date.now() - 1000 * Math.max(...deaf.map((polls) => polls.last_answered_age));
  const since = new Date(last).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  return `Since ${since}, SQS has answered no poll of ${deaf.map((polls) => polls.queue).join(", ")}. The worker tries again, and its log has the error. A restart does not help.`;
}

async function poll() {
  try {
    const [leases, events] = await Promise.all([ask("leases"), ask("events")]);
    const isRefused = leases === null || events === null;
    find("token-form").hidden = !isRefused;
    showTrouble(isRefused && token ? "This is not the right token." : silence(leases));
    if (isRefused) {
      setHealth("locked");
      token = null;
      return false;
    }
    showFigures(leases);
    showStops(leases);
    showLeases(leases);
    showChart(events.calls_per_minute);
    showHappenings(events);
    lastAnswer = new Date();
  } catch (error) {
    setHealth("away");
    const since = lastAnswer && `${lastAnswer.toLocaleTimeString()}, ${seconds((new Date() - lastAnswer) / 1000)} ago`;
    showTrouble(`${since ? `The last answer came at ${since}; the page shows the data from then.` : "The worker has not answered yet."} Trying again every second.`);
  }
  return true;
}

async function run() {
  while (await poll()) await new Promise((done) => setTimeout(done, POLL_MS));
}

find("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = find("token").value.trim();
  find("token").value = "";
  find("token-form").hidden = true;
  run();
});

run();
