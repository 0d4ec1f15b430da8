import { get, hasKey, lines, post } from './talk.js';
import { colourOf, FleetMap } from './map.js';
import { ago, difference, lasting, make, number, swatch, table } from './page.js';

const $ = (id) => document.getElementById(id);
const looking = { daemonset: sessionStorage.getItem('daemonset') || '', group: sessionStorage.getItem('group') || '' };
let overview = null, set = null, rights = {}, stop = null, stopPanel = null;

const map = new FleetMap($('map'), { onPick: (cell) => openNode(map.map.nodes[cell]), onPoint: say });
window.everynode = { map }; // for those who measure the page

function problem(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text;
}

function say(cell) {
  const m = map.map;
  $('cell').textContent = cell >= 0 && m?.nodes[cell] ? `${m.nodes[cell]}: ${m.states[m.cells[cell]]}` : '';
}

// follow is told what there is, and what changes, until the page looks at something else.
async function follow() {
  stop?.abort();
  const mine = stop = new AbortController();
  sessionStorage.setItem('daemonset', looking.daemonset);
  sessionStorage.setItem('group', looking.group);
  set = null;
  showSet();
  for (let pause = 1; !mine.signal.aborted; pause = Math.min(pause * 2, 15)) {
    try {
      $('connection').textContent = 'connecting…';
      await lines('/api/stream', looking, mine.signal, (line) => { pause = 1; $('connection').textContent = ''; take(JSON.parse(line)); });
      if (mine.signal.aborted) return;
    } catch (e) {
      if (mine.signal.aborted) return;
      problem(e.message);
    }
    $('connection').textContent = 'no connection; trying again';
    await new Promise((done) => setTimeout(done, pause * 1000));
  }
}

function take(message) {
  if (message.gone) { problem(message.gone); looking.daemonset = ''; follow(); return; }
  if (message.overview) { overview = message.overview; problem(overview.trouble || ''); showOverview(); }
  if (message.set) { set = message.set; showSet(); }
  if (message.map) {
    message.map.cells = Uint8Array.from(atob(message.map.cells || ''), (c) => c.charCodeAt(0));
    map.show(message.map);
    showLegend();
  }
  if (message.changes) { map.change(message.changes); showLegend(); say(map.selected); }
}

const tone = { Complete: 'ok', Halted: 'bad', RolledBack: 'bad', Paused: 'warn', WaitingForApproval: 'warn' };

function look(daemonset) {
  looking.daemonset = daemonset;
  rights = {};
  follow();
  showOverview();
}

// showAttention lists what needs somebody, before everything else.
function showAttention() {
  const items = overview.attention;
  $('attention').hidden = false;
  $('attention').className = items.length ? '' : 'fine';
  $('attention-title').textContent = items.length ? 'Needs attention' : 'Nothing needs you: no rollout has failed or waits, and no node is out of order.';
  $('attention-list').replaceChildren(...items.map((i) => make('li', {}, make('button', {
    class: i.tone, disabled: !i.daemonSet && !i.text,
    onclick: () => { if (i.daemonSet) look(i.daemonSet); else if (looking.daemonset) look(''); $(i.daemonSet ? 'rollout' : 'fleet').scrollIntoView({ block: 'nearest' }); },
  }, make('span', { class: 'phase ' + i.tone }, (i.daemonSet ? i.daemonSet + ' ' : '') + i.title), i.text ? ': ' + i.text : '',
  i.since ? make('span', { class: 'quiet' }, ` for ${ago(i.since)}`) : ''))));
}

function showOverview() {
  showAttention();
  $('cluster').textContent = `${overview.cluster} · ${number(overview.nodes)} nodes` + (overview.hidden ? ' · no policies' : '');
  $('cluster').title = overview.hidden || '';
  const button = (value, title, ...rest) => make('li', {}, make('button', { 'aria-pressed': String(looking.daemonset === value), onclick: () => look(value) }, title, ...rest));
  $('set-list').replaceChildren(
    button('', 'All nodes', make('span', { class: 'quiet' }, 'by readiness')),
    ...overview.daemonSets.map((d) => button(`${d.namespace}/${d.name}`, d.name,
      make('span', { class: 'quiet' }, `${d.namespace} · ${number(d.available)} of ${number(d.desired)} available`),
      d.phase && make('span', { class: 'phase ' + (tone[d.phase] || '') }, d.phase))));
  const chosen = [...new Set([looking.group, ...overview.labels].filter(Boolean))];
  $('group').replaceChildren(make('option', { value: '' }, 'nothing'), ...chosen.map((l) => make('option', { value: l, selected: l === looking.group }, l)));
}

let legendAsked = false;
function showLegend() {
  if (legendAsked) return;
  legendAsked = true;
  requestAnimationFrame(() => {
    legendAsked = false;
    $('fleet-title').textContent = looking.daemonset ? looking.daemonset : 'Nodes';
    $('legend').replaceChildren(...map.map.states.map((s, i) => map.counts[i] > 0 && make('li', {},
      make('button', { 'aria-pressed': String(map.only === i), title: 'Show only these', onclick: () => { map.filter(i); showLegend(); } }, swatch(colourOf(s)), `${s} ${number(map.counts[i])}`),
      looking.daemonset && ' ', looking.daemonset && make('button', { title: `Why are nodes ${s}?`, 'aria-label': `Why ${s}?`, onclick: () => openVerdict(s) }, 'why'))).filter(Boolean));
  });
}

async function showSet() {
  $('rollout').hidden = !set;
  if (!set) return;
  const numberOf = (hash) => set.numbers[hash] ?? set.numbers[hash.split('_')[0]]; // of its template, where it has variants
  const name = (hash) => hash ? (numberOf(hash) ? `${numberOf(hash)} (${hash})` : hash) : 'none';
  const r = set.rollout, s = set.status, of = `${set.namespace}/${set.name}`;
  const head = r && set.policy
    ? [make('p', {}, make('span', { class: 'phase ' + (tone[r.phase] || '') }, r.phase || 'Unknown'), r.message ? ': ' + r.message : ''),
      make('p', { class: 'quiet' }, `policy ${set.policy} · stable ${name(r.stableRevision)} · target ${name(r.targetRevision)}` + (r.stepStarted ? ` · step began ${ago(r.stepStarted)} ago` : ''))]
    : [make('p', {}, `Revision ${name(set.revision)}: ${number(s.updatedNumberScheduled)} of ${number(s.desiredNumberScheduled)} nodes have it, ${number(s.numberAvailable)} available.`),
      make('p', { class: 'quiet' }, overview.hidden ? overview.hidden : `No RolloutPolicy selects it; it changes as in Kubernetes (${set.strategy}).`)];
  const c = set.content;
  if (c) head.push(make('p', { class: 'quiet' }, `content ${c.objects.join(', ') || 'none'} · ${c.changing ? 'a change of it is under way' : 'no change of it is under way'}`),
    ...c.lines.map((text) => make('p', { class: 'quiet' }, text)));
  head.push(...(set.lines || []).map((text) => make('p', { class: 'quiet' }, text)));
  head.push(...(set.unseen || []).map((text) => make('p', { class: 'phase warn' }, text)));
  const bar = (done, all) => { const i = make('i'); i.style.width = (all ? 100 * done / all : 0) + '%'; return make('span', { class: 'bars' }, i); };
  const fetches = r?.steps?.some((t) => t.fetching || t.fetched); // images, before their turn
  const steps = r?.steps?.length ? table(['step', '', '#nodes', '#done', '#failed', '#unavailable', ...(fetches ? ['#fetching', '#fetched'] : [])],
    r.steps.map((t) => [(t.name === r.step ? '▸ ' : '') + t.name, bar(t.done || 0, t.nodes || 0), number(t.nodes), number(t.done), number(t.failed), number(t.unavailable),
      ...(fetches ? [number(t.fetching), number(t.fetched)] : [])])) : null;
  const failed = r?.failedRevisions?.length ? [make('h3', {}, 'What failed'), make('ul', {}, ...r.failedRevisions.slice().reverse().map((f) =>
    make('li', {}, `${name(f.revision)}: ${f.why}` + (f.nodes?.length ? ` (${f.nodes.join(', ')})` : ''))))] : [];
  $('rollout').replaceChildren(make('h2', {}, of), ...head, steps || '', ...failed, actions(of, r), ...variants(set.variants),
    make('h3', {}, 'Conditions'), table(['type', 'status', 'since', 'message'], (s.conditions || []).map((c) => [c.type, c.status, ago(c.lastTransitionTime), c.message || c.reason])));
  if (rights.of !== of) {
    rights = { of };
    try { Object.assign(rights, await get('/api/rights', { daemonset: of })); } catch { rights.steer = rights.undo = true; }
    showSet();
  }
}

// variants lists what varies a DaemonSet's pods, on how many of its nodes, and in words what is wrong.
function variants(v) {
  if (!v) return [];
  const words = (one) => make('div', {}, ...one.says.map((x) => make('div', {}, make('span', { class: 'phase ' + x.tone }, x.tone === 'warn' ? 'in conflict' : 'cannot be had'), ': ' + x.text)),
    one.unread ? make('span', { class: 'quiet' }, 'the controller has not looked at it yet') : one.says.length ? '' : 'as it should be');
  return [make('h3', {}, 'Variants'), table(['variant', '#priority', '#nodes', 'state'], [
    ...v.of.map((one) => [one.name, String(one.priority), number(one.nodes), words(one)]),
    v.tied ? ['(conflict)', '', number(v.tied), make('span', { class: 'quiet' }, 'several of the highest priority choose these nodes: their pods stay, and new ones are made by the first of them')] : null,
    ['(template)', '', number(v.template), make('span', { class: 'quiet' }, 'no variant chooses these nodes')],
  ].filter(Boolean))];
}

// goingBack says which DaemonSet is shown, and which revision of it is wanted: if somebody changes it meanwhile, nothing is done.
const goingBack = (revision) => ({ revision, uid: set.uid, generation: set.generation });

function actions(of, r) {
  const out = make('div', { class: 'actions' });
  const add = (text, verb, question, strong, extra = {}) => out.append(make('button', {
    class: strong ? 'strong' : undefined, 'data-verb': verb, disabled: verb === 'undo' ? rights.undo === false : rights.steer === false,
    title: (verb === 'undo' ? rights.undo : rights.steer) === false ? 'You do not have the right to do that' : undefined,
    onclick: () => ask(text, question, () => post('/api/rollout', JSON.stringify({ daemonSet: of, verb, ...extra }))),
  }, text));
  if (r && set.policy) {
    const waiting = r.phase === 'WaitingForApproval';
    if (waiting) add('Approve', 'approve', `Let the next step of ${of} begin? After ${r.step}, revision ${r.targetRevision}.`, true, { step: r.step, revision: r.targetRevision, change: r.change });
    if (r.spec.paused) add('Resume', 'resume', `Let the change of ${of} go on?`, true);
    else if (!r.finished) add('Pause', 'pause', `Stop the change of ${of} where it is? What is under way ends.`);
    if ((!r.finished || r.phase === 'Halted') && r.stableRevision) add('Abort', 'abort', `Take ${of} from revision ${r.targetRevision} back to revision ${r.stableRevision} on all nodes?`, false, { revision: r.targetRevision });
    if (r.phase === 'Halted' || r.phase === 'RolledBack') add('Retry', 'retry', `Try revision ${r.targetRevision} of ${of} again, from the first step?`, false, { revision: r.targetRevision });
  }
  const before = Object.keys(set.numbers).sort((a, b) => set.numbers[b] - set.numbers[a])[1];
  if (before) add('Undo', 'undo', `Take the template of ${of} back to the revision before, ${set.numbers[before]} (${before})?`, false, goingBack(before));
  out.append(make('button', { onclick: () => openRevisions(of) }, 'Revisions'), make('button', { onclick: () => openTimeline(of) }, 'Timeline'), make('button', { onclick: () => openEvents(of.split('/')[0], of.split('/')[1], 'DaemonSet') }, 'Events'));
  return out;
}

function panel(title, ...body) {
  stopPanel?.abort();
  stopPanel = new AbortController();
  $('panel-title').textContent = title;
  $('panel-body').replaceChildren(...body);
  if (!$('panel').open) $('panel').showModal();
  return stopPanel.signal;
}

async function fill(signal, work) {
  try { await work(); } catch (e) { if (!signal.aborted) $('panel-body').append(make('p', { role: 'alert' }, e.message)); }
}

// ask has something done once somebody has said yes.
function ask(title, question, work) {
  const status = make('p', { role: 'status' });
  const yes = make('button', { class: 'strong', id: 'confirm', onclick: async () => {
    yes.disabled = true;
    try { status.textContent = (await work()).done; yes.remove(); } catch (e) { status.textContent = e.message; yes.disabled = false; }
  } }, title);
  panel(title, make('p', {}, question), make('div', { class: 'actions' }, yes, make('button', { onclick: () => $('panel').close() }, 'Close')), status);
}

const reasons = (p) => make('div', {}, ...(p.reasons || []).map((x) => make('div', {}, x)), ...(p.missing || []).map((x) => make('div', { class: 'quiet' }, x)),
  p.variant ? make('div', { class: 'quiet' }, `made by variant ${p.variant}`) : '',
  p.log?.length ? make('pre', {}, p.log.join('\n')) : '', ...(p.events || []).map((x) => make('div', { class: 'quiet' }, x)));

function openNode(name) {
  const body = make('div', {}, 'Looking…');
  const signal = panel(name, body);
  fill(signal, async () => {
    const n = await get('/api/node', { name });
    if (signal.aborted) return;
    body.replaceChildren(n.fault ? make('p', { class: 'phase bad' }, n.fault) : '', n.cordoned ? make('p', {}, 'Cordoned: nothing new is scheduled to it.') : '',
      ...(n.maintenance || []).map((x) => make('p', {}, x[0].toUpperCase() + x.slice(1))),
      n.starting ? make('p', {}, `Starts ${n.starting}.`) : '', ...(n.held || []).map((h) => make('p', {}, `May not start yet: ${h.pods.join(', ')}. ${h.why}`)), ...(n.missing || []).map((x) => make('p', { class: 'quiet' }, x)),
      make('h3', {}, 'Its daemons'), table(['DaemonSet', 'verdict', 'since', 'why', 'revision', 'wanted'], n.daemonSets.map((p) => [
        `${p.namespace}/${p.daemonSet}`, make('span', {}, swatch(colourOf(p.verdict)), p.verdict), p.since ? ago(p.since) : '', reasons(p), p.revision, p.wanted])),
      make('h3', {}, 'Its pods'), table(['pod', 'phase', 'ready', '#restarts', 'log'], n.pods.map((p) => [`${p.namespace}/${p.name}`, p.phase, p.ready ? 'yes' : 'no', number(p.restarts),
        make('span', {}, ...p.containers.map((c) => make('button', { onclick: () => openLog(p.namespace, p.name, c) }, c)))])),
      make('h3', {}, 'Conditions'), table(['type', 'status', 'since', 'message'], (n.conditions || []).map((c) => [c.type, c.status, ago(c.lastTransitionTime), c.message])),
      make('h3', {}, 'Room'), table(['resource', 'allocatable'], Object.entries(n.allocatable || {})),
      make('h3', {}, 'Labels'), table(['label', 'value'], Object.entries(n.labels || {}).sort()),
      n.taints?.length ? make('div', {}, make('h3', {}, 'Taints'), table(['taint', 'effect'], n.taints.map((t) => [t.key + (t.value ? '=' + t.value : ''), t.effect]))) : '',
      make('div', { class: 'actions' }, make('button', { onclick: () => openEvents('', name, 'Node') }, 'Events of the node')));
  });
}

function openVerdict(verdict) {
  const body = make('div', {}, 'Looking…');
  const signal = panel(`${looking.daemonset}: ${verdict}`, body);
  fill(signal, async () => {
    const report = await get('/api/why', { daemonset: looking.daemonset, verdict });
    const group = report.groups.find((g) => g.verdict === verdict) || { count: 0, nodes: [] };
    const shown = (group.nodes || []).slice(0, 500);
    const causes = new Map();
    for (const p of group.nodes || []) causes.set(p.reasons?.[0] || '', (causes.get(p.reasons?.[0] || '') || 0) + 1);
    body.replaceChildren(make('p', {}, `${number(group.count)} nodes` + (shown.length < group.count ? `; the first ${shown.length} are listed` : '')),
      make('h3', {}, 'By reason'), table(['reason', '#nodes'], [...causes].sort((a, b) => b[1] - a[1]).slice(0, 30).map(([reason, n]) => [reason || '(none told)', number(n)])),
      make('h3', {}, 'Nodes'), table(['node', 'since', 'why'], shown.map((p) => [make('button', { onclick: () => openNode(p.node) }, p.node), p.since ? ago(p.since) : '', reasons(p)])));
  });
}

function openRevisions(of) {
  const body = make('div', {}, 'Looking…');
  const signal = panel(`${of}: revisions`, body);
  fill(signal, async () => {
    const seen = goingBack('');
    const all = await get('/api/revisions', { daemonset: of });
    const compare = make('div');
    const show = (i) => compare.replaceChildren(make('h3', {}, i + 1 < all.length ? `From revision ${all[i + 1].number} to ${all[i].number}` : `Revision ${all[i].number}`),
      i + 1 < all.length ? difference(all[i + 1].template, all[i].template) : make('pre', { tabindex: 0 }, all[i].template));
    body.replaceChildren(table(['#number', 'hash', 'age', 'cause', '', ''], all.map((v, i) => [String(v.number), v.hash, ago(v.created), v.cause,
      make('button', { onclick: () => show(i) }, i + 1 < all.length ? 'what changed' : 'show'),
      i > 0 ? make('button', { disabled: rights.undo === false, onclick: () => ask('Go back', `Take the template of ${of} back to revision ${v.number} (${v.hash})?`,
        () => post('/api/rollout', JSON.stringify({ daemonSet: of, verb: 'undo', ...seen, revision: v.hash }))) }, 'go back to it') : ''])), compare);
    if (all.length) show(0);
  });
}

// openTimeline shows when the rollout did what, and how long each took; it looks again while it is open.
function openTimeline(of) {
  const body = make('div', {}, 'Looking…');
  const signal = panel(`${of}: timeline`, body);
  fill(signal, async () => {
    while (!signal.aborted) {
      const all = await get('/api/timeline', { daemonset: of });
      if (signal.aborted) return;
      const longest = Math.max(1, ...all.moments.map((m) => m.seconds));
      const bar = (m) => { const i = make('i', { class: m.tone || undefined }); i.style.width = 100 * m.seconds / longest + '%'; return make('span', { class: 'bars' }, i); };
      body.replaceChildren(make('p', { class: 'quiet' }, 'Put together from events, which a cluster keeps for about an hour, and from what its objects say of older things.'),
        ...(all.missing || []).map((x) => make('p', { class: 'phase warn' }, x)),
        table(['when', 'what', '', 'for', 'in its own words'], all.moments.slice().reverse().map((m, i) => [
          make('time', { datetime: m.at, title: m.at }, new Date(m.at).toLocaleTimeString('en-GB') + (Date.now() - new Date(m.at) > 86400e3 ? ' ' + m.at.slice(0, 10) : '')),
          make('span', { class: 'phase ' + (m.tone || '') }, m.what), bar(m), lasting(m.seconds) + (i ? '' : ' so far'), m.detail])));
      await new Promise((done) => setTimeout(done, 5000));
    }
  });
}

function openEvents(namespace, name, kind) {
  const rows = make('tbody');
  const signal = panel(name ? `Events of ${name}` : 'Events', make('div', { class: 'scroll' }, make('table', {}, make('thead', {}, make('tr', {}, ...['when', 'object', 'reason', 'message', 'times'].map((h) => make('th', {}, h)))), rows)));
  fill(signal, () => lines('/api/events', { namespace: namespace || '', name: name || '', kind: kind || '' }, signal, (line) => {
    const e = JSON.parse(line);
    rows.prepend(make('tr', {}, ...[ago(e.at) + ' ago', e.object, e.reason, e.message, number(e.count)].map((c, i) => make('td', { class: i === 2 && e.type === 'Warning' ? 'phase warn' : undefined }, c))));
    while (rows.children.length > 500) rows.lastChild.remove();
  }));
}

function openLog(namespace, pod, container) {
  const text = make('pre', { tabindex: 0, 'aria-label': 'Log' });
  const signal = panel(`${pod} · ${container}`, text);
  const kept = [];
  let asked = false; // a log can be faster than the screen
  const show = () => {
    asked = false;
    const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 30;
    text.textContent = kept.join('\n');
    if (atEnd) text.scrollTop = text.scrollHeight;
  };
  fill(signal, () => lines('/api/logs', { namespace, pod, container }, signal, (line) => {
    kept.push(line);
    if (kept.length > 2000) kept.splice(0, 500);
    if (!asked) { asked = true; requestAnimationFrame(show); }
  }, () => { kept.push('(the log has ended)'); show(); }));
}

function openPlan() {
  const manifest = make('textarea', { id: 'manifest', 'aria-label': 'Manifest', placeholder: 'Paste a DaemonSet as YAML or JSON', spellcheck: 'false' });
  const out = make('div', { role: 'status' });
  const signal = panel('Plan a change', make('p', { class: 'quiet' }, 'What applying it would do. Nothing is changed.'), manifest,
    make('div', { class: 'actions' }, make('button', { class: 'strong', id: 'plan', onclick: () => {
      out.replaceChildren('Looking…');
      post('/api/plan', manifest.value).then((p) => out.replaceChildren(make('pre', { tabindex: 0 }, p.text)), (e) => { if (!signal.aborted) out.replaceChildren(make('p', { role: 'alert' }, e.message)); });
    } }, 'Plan')), out);
  manifest.focus();
}

$('panel-close').addEventListener('click', () => $('panel').close());
$('panel').addEventListener('close', () => { if (!$('panel').open) stopPanel?.abort(); });
$('open-plan').addEventListener('click', openPlan);
$('open-events').addEventListener('click', () => openEvents('', ''));
$('group').addEventListener('change', (e) => { looking.group = e.target.value; follow(); });
$('find').addEventListener('keydown', (e) => {
  if (e.key !== 'Enter' || !map.map) return;
  e.preventDefault(); // or it would press the first button of what opens
  const wanted = e.target.value.trim();
  let cell = map.map.nodes.indexOf(wanted);
  if (cell < 0) cell = map.map.nodes.findIndex((n) => n.includes(wanted));
  if (cell < 0) { $('cell').textContent = `There is no node like ${wanted}.`; return; }
  map.select(cell);
  openNode(map.map.nodes[cell]);
});
document.addEventListener('keydown', (e) => {
  if (e.key === '/' && !['INPUT', 'TEXTAREA', 'SELECT'].includes(document.activeElement.tagName) && !$('panel').open) { e.preventDefault(); $('find').focus(); }
});

if (hasKey()) follow();
else problem('This page needs the key of its run: open the address that everynode dashboard printed.');
