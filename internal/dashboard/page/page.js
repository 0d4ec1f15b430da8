// Small things for building the page. Text is always set as text: names and messages come
// from the cluster, and are nobody's to be trusted.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((c) => c !== undefined && c !== null && c !== false));
  return element;
}

export const number = (n) => Number(n || 0).toLocaleString('en');

export function table(heads, rows) {
  const cells = (tag, row) => row.map((c, i) => make(tag, { class: heads[i].startsWith('#') ? 'number' : undefined }, c ?? ''));
  return make('div', { class: 'scroll' }, make('table', {},
    make('thead', {}, make('tr', {}, ...cells('th', heads.map((h) => h.replace('#', ''))))),
    make('tbody', {}, ...rows.map((r) => make('tr', {}, ...cells('td', r))))));
}

export const ago = (at) => lasting(Math.max(0, (Date.now() - new Date(at)) / 1000));

// lasting writes how long something is.
export function lasting(seconds) {
  for (const [unit, length] of [['d', 86400], ['h', 3600], ['min', 60]]) if (seconds >= 2 * length) return Math.floor(seconds / length) + ' ' + unit;
  return Math.floor(seconds) + ' s';
}

export function swatch(colour) {
  const s = make('span', { class: 'swatch' });
  s.style.background = `var(${colour})`;
  return s;
}

// most is how many lines may differ before two texts count as different from there on.
const most = 1000;

// difference shows two texts line by line. Its cost grows with their length and with what differs, not with the product.
export function difference(before, after) {
  const a = before.split('\n'), b = after.split('\n');
  let first = 0, last = 0;
  while (first < a.length && first < b.length && a[first] === b[first]) first++;
  while (last < a.length - first && last < b.length - first && a[a.length - 1 - last] === b[b.length - 1 - last]) last++;
  const out = make('pre', { tabindex: 0, 'aria-label': 'Difference' });
  const line = (kind, mark, text) => out.append(make('span', { class: kind }, mark + ' ' + text));
  const same = (lines) => { for (const text of lines) line('same', ' ', text); };
  same(a.slice(0, first));
  for (const [kind, text] of edits(a.slice(first, a.length - last), b.slice(first, b.length - last))) line(kind, { same: ' ', removed: '-', added: '+' }[kind], text);
  same(a.slice(a.length - last));
  return out;
}

// edits is the shortest way from one list of lines to another, by E. W. Myers' greedy algorithm.
function edits(a, b) {
  const ways = []; // of each number of edits: how far in a one comes, by the diagonal
  search: for (let d = 0; d <= Math.min(a.length + b.length, most); d++) {
    const was = ways[d - 1], way = new Int32Array(2 * d + 1);
    for (let k = -d; k <= d; k += 2) {
      let x = 0;
      if (d > 0) x = k === -d || k !== d && was[k - 1 + d - 1] < was[k + 1 + d - 1] ? was[k + 1 + d - 1] : was[k - 1 + d - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      way[k + d] = x;
      if (x >= a.length && x - k >= b.length) { ways.push(way); break search; }
    }
    ways.push(way);
  }
  const end = ways.at(-1), k = a.length - b.length, d = ways.length - 1;
  if (Math.abs(k) > d || end[k + d] < a.length) return [...a.map((text) => ['removed', text]), ...b.map((text) => ['added', text])];
  const out = [];
  let x = a.length, y = b.length;
  for (let d = ways.length - 1; d > 0; d--) {
    const was = ways[d - 1], k = x - y;
    const down = k === -d || k !== d && was[k - 1 + d - 1] < was[k + 1 + d - 1];
    const from = was[(down ? k + 1 : k - 1) + d - 1], turn = down ? from : from + 1;
    while (x > turn) { x--; y--; out.push(['same', a[x]]); }
    if (down) out.push(['added', b[--y]]); else out.push(['removed', a[--x]]);
  }
  while (x > 0) { x--; y--; out.push(['same', a[x]]); }
  return out.reverse();
}
