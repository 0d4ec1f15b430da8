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

export function ago(at) {
  const seconds = Math.max(0, (Date.now() - new Date(at)) / 1000);
  for (const [unit, length] of [['d', 86400], ['h', 3600], ['min', 60]]) if (seconds >= 2 * length) return Math.floor(seconds / length) + ' ' + unit;
  return Math.floor(seconds) + ' s';
}

export function swatch(colour) {
  const s = make('span', { class: 'swatch' });
  s.style.background = `var(${colour})`;
  return s;
}

// difference compares two texts line by line.
export function difference(before, after) {
  const a = before.split('\n'), b = after.split('\n');
  const length = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const out = make('pre', { tabindex: 0, 'aria-label': 'Difference' });
  const line = (kind, mark, text) => out.append(make('span', { class: kind }, mark + ' ' + text));
  for (let i = 0, j = 0; i < a.length || j < b.length;) {
    if (i < a.length && j < b.length && a[i] === b[j]) { line('same', ' ', a[i]); i++; j++; }
    else if (i < a.length && (j === b.length || length[i + 1][j] >= length[i][j + 1])) line('removed', '-', a[i++]);
    else line('added', '+', b[j++]);
  }
  return out;
}
