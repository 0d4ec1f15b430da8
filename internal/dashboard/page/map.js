// The map: one cell for each node, drawn on a canvas. Only what changed is drawn again, at
// most once for each picture of the screen. The cells of a small fleet, whose versions are
// told, are tiles with words.

const fadeFor = 900; // milliseconds that a changed cell stands out
const between = 18; // pixels between groups that stand side by side
const tile = { wide: 170, high: 50, gap: 6, stripe: 5 }; // pixels

export class FleetMap {
  constructor(canvas, { onPick, onPoint }) {
    this.canvas = canvas;
    this.context = canvas.getContext('2d', { alpha: false });
    this.onPick = onPick;
    this.onPoint = onPoint;
    this.map = null;
    this.places = new Float32Array(0); // x and y of each cell
    this.fading = new Map(); // cell -> when it changed
    this.dirty = new Set();
    this.selected = -1;
    this.only = -1; // the one state that is shown, or -1
    this.pictures = 0;
    new ResizeObserver(() => this.layout()).observe(canvas.parentElement);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.layout());
    canvas.addEventListener('pointermove', (e) => this.onPoint(this.at(e)));
    canvas.addEventListener('pointerleave', () => this.onPoint(this.selected));
    canvas.addEventListener('click', (e) => { const cell = this.at(e); if (cell >= 0) { this.select(cell); this.onPick(cell); } });
    canvas.addEventListener('keydown', (e) => this.key(e));
  }

  // show takes a whole map.
  show(map) {
    const moved = !this.map || this.map.nodes.length !== map.nodes.length;
    this.map = map;
    this.fading.clear();
    if (moved) this.selected = Math.min(this.selected, map.nodes.length - 1);
    this.counts = new Array(map.states.length).fill(0);
    for (const state of map.cells) this.counts[state]++;
    this.layout();
  }

  // change takes cells with their new states.
  change(changes) {
    const now = performance.now();
    for (const [cell, state] of changes) {
      this.counts[this.map.cells[cell]]--;
      this.counts[state]++;
      this.map.cells[cell] = state;
      this.fading.set(cell, now);
    }
    this.redraw();
  }

  select(cell) {
    if (cell < 0 || !this.map || cell >= this.map.nodes.length) return;
    this.dirty.add(this.selected).add(cell);
    this.selected = cell;
    const frame = this.canvas.parentElement;
    const y = this.places[2 * cell + 1];
    if (y < frame.scrollTop || y + this.pitch > frame.scrollTop + frame.clientHeight) frame.scrollTop = y - frame.clientHeight / 2;
    this.onPoint(cell);
    this.redraw();
  }

  filter(state) {
    this.only = this.only === state ? -1 : state;
    this.layout();
  }

  // layout places the cells, as large as there is room for, and draws all.
  layout() {
    if (!this.map) return;
    const frame = this.canvas.parentElement;
    const width = Math.max(frame.clientWidth, 100);
    const { nodes, groups } = this.map;
    this.heading = groups.length > 1 || groups[0]?.name ? 20 : 0;
    const room = Math.max(innerHeight * 0.6, 260);
    const { pitch, side } = this.map.versions ? { pitch: tile.high, side: width + between } : this.measure(width, room);
    this.pitch = pitch;
    // Groups stand side by side where that leaves more room for the cells.
    this.blocks = Math.floor((width + between) / side);
    const inner = Math.floor(width / this.blocks) - (this.blocks > 1 ? between : 0);
    this.columns = Math.max(1, Math.floor(inner / (this.map.versions ? tile.wide : pitch)));
    this.wide = this.map.versions ? Math.min(Math.floor(inner / this.columns), 2 * tile.wide) : pitch;
    this.gap = this.map.versions ? tile.gap : pitch > 6 ? 2 : 1;
    this.places = new Float32Array(2 * nodes.length);
    this.corners = [];
    let y = 0, tallest = 0;
    groups.forEach((g, n) => {
      const x = (n % this.blocks) * Math.floor(width / this.blocks);
      if (n % this.blocks === 0 && n > 0) { y += tallest; tallest = 0; }
      this.corners.push([x, y]);
      for (let i = 0; i < g.count; i++) {
        this.places[2 * (g.first + i)] = x + (i % this.columns) * this.wide;
        this.places[2 * (g.first + i) + 1] = y + this.heading + Math.floor(i / this.columns) * pitch;
      }
      tallest = Math.max(tallest, this.blockHeight(g, pitch, this.columns));
    });
    y += tallest;
    const ratio = devicePixelRatio || 1;
    this.canvas.style.height = Math.max(y, 20) + 'px';
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(Math.max(y, 20) * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.readColours();
    this.everything = true;
    this.redraw();
  }

  // measure finds how many groups stand side by side, and the largest cells that fit then.
  measure(width, room) {
    const { groups } = this.map;
    let best = null;
    for (let blocks = 1; blocks <= Math.min(groups.length || 1, 8); blocks++) {
      const side = Math.floor(width / blocks), inner = side - (blocks > 1 ? between : 0);
      if (blocks > 1 && inner < 90) break;
      let pitch = 26;
      const height = (p) => {
        const columns = Math.max(1, Math.floor(inner / p));
        let sum = 0;
        for (let i = 0; i < groups.length; i += blocks) sum += Math.max(...groups.slice(i, i + blocks).map((g) => this.blockHeight(g, p, columns)));
        return sum;
      };
      while (pitch > 4 && height(pitch) > room) pitch--;
      if (!best || pitch > best.pitch || pitch === best.pitch && best.over && height(pitch) < best.height) best = { pitch, side, height: height(pitch), over: height(pitch) > room };
    }
    return best;
  }

  blockHeight(group, pitch, columns) {
    return this.heading + Math.ceil(group.count / columns) * pitch + (this.heading ? 8 : 0);
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    this.back = value('--plane');
    this.text = value('--quiet');
    this.accent = value('--text');
    this.line = value('--line');
    this.faint = value('--none');
    this.colours = this.map.states.map((s) => value(colourOf(s)));
  }

  redraw() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame((now) => { this.asked = false; this.draw(now); });
  }

  draw(now) {
    if (!this.map) return;
    this.pictures++;
    const c = this.context;
    if (this.everything) {
      this.everything = false;
      c.fillStyle = this.back;
      c.fillRect(0, 0, this.canvas.width, this.canvas.height);
      if (this.heading) {
        c.fillStyle = this.text;
        c.font = '13px system-ui, sans-serif';
        this.map.groups.forEach((g, i) => c.fillText(`${g.name || '(none)'}  ${g.count}`, this.corners[i][0], this.corners[i][1] + 14));
      }
      this.paintAll();
    } else {
      for (const cell of this.dirty) this.cell(cell, 0);
    }
    this.dirty.clear();
    for (const [cell, at] of this.fading) {
      const left = 1 - (now - at) / fadeFor;
      this.cell(cell, Math.max(left, 0));
      if (left <= 0) this.fading.delete(cell);
    }
    if (this.selected >= 0) {
      c.strokeStyle = this.accent;
      c.lineWidth = 2;
      c.strokeRect(this.places[2 * this.selected] + 1, this.places[2 * this.selected + 1] + 1, this.wide - this.gap - 2, this.pitch - this.gap - 2);
    }
    if (this.fading.size) this.redraw();
  }

  cell(i, light) {
    if (i < 0 || i >= this.map.cells.length) return;
    this.paint(i);
    if (light > 0) {
      const c = this.context;
      c.globalAlpha = light * (this.map.versions ? 0.2 : 0.7);
      c.fillStyle = this.accent;
      c.fillRect(this.places[2 * i], this.places[2 * i + 1], this.wide - this.gap, this.pitch - this.gap);
      c.globalAlpha = 1;
    }
  }

  // paintAll draws all cells by colour, so that the context is told few colours for many cells.
  paintAll() {
    const { cells, versions } = this.map;
    if (versions) { cells.forEach((state, i) => this.paintTile(i)); return; }
    const side = this.pitch - this.gap;
    this.colours.forEach((colour, state) => {
      this.context.fillStyle = this.shows(state) ? colour : this.faint;
      for (let i = 0; i < cells.length; i++) if (cells[i] === state) this.context.fillRect(this.places[2 * i], this.places[2 * i + 1], side, side);
    });
  }

  shows(state) { return this.only < 0 || this.only === state; }

  // paint draws a cell as it is now.
  paint(i) {
    if (this.map.versions) { this.paintTile(i); return; }
    const state = this.map.cells[i], side = this.pitch - this.gap;
    this.context.fillStyle = this.shows(state) ? this.colours[state] : this.faint;
    this.context.fillRect(this.places[2 * i], this.places[2 * i + 1], side, side);
  }

  // paintTile draws a cell with the node's name, its state and its version.
  paintTile(i) {
    const c = this.context;
    const state = this.map.cells[i];
    const shown = this.shows(state);
    const x = this.places[2 * i], y = this.places[2 * i + 1], wide = this.wide - this.gap, high = this.pitch - this.gap;
    c.fillStyle = this.back;
    c.fillRect(x, y, wide, high);
    c.fillStyle = shown ? this.colours[state] : this.faint;
    c.globalAlpha = 0.15;
    c.fillRect(x, y, wide, high);
    c.globalAlpha = 1;
    c.fillRect(x, y, tile.stripe, high);
    c.strokeStyle = this.line;
    c.lineWidth = 1;
    c.strokeRect(x + 0.5, y + 0.5, wide - 1, high - 1);
    const word = (text, colour, font, line) => {
      c.fillStyle = shown ? colour : this.text;
      c.font = font + ' system-ui, sans-serif';
      c.fillText(this.fitting(text, wide - tile.stripe - 12), x + tile.stripe + 7, y + line);
    };
    word(this.map.nodes[i], this.accent, '600 13px', 18);
    word([this.map.states[state], this.map.versions[i]].filter(Boolean).join(' · '), this.text, '12px', 35);
  }

  // fitting shortens a text to what is wide enough, in the font that is set.
  fitting(text, wide) {
    if (this.context.measureText(text).width <= wide) return text;
    while (text && this.context.measureText(text + '…').width > wide) text = text.slice(0, -1);
    return text + '…';
  }

  // at returns the cell under the pointer, or -1.
  at(event) {
    if (!this.map) return -1;
    const box = this.canvas.getBoundingClientRect();
    const x = event.clientX - box.left, y = event.clientY - box.top;
    const group = this.corners.findLastIndex(([left, top]) => top <= y && left <= x);
    if (group < 0) return -1;
    const { first, count } = this.map.groups[group];
    const [left, top] = this.corners[group];
    const row = Math.floor((y - top - this.heading) / this.pitch), column = Math.floor((x - left) / this.wide);
    const i = row * this.columns + column;
    return row >= 0 && column < this.columns && i < count ? first + i : -1;
  }

  key(event) {
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns };
    if (event.key in steps) {
      event.preventDefault();
      const last = this.map.nodes.length - 1;
      this.select(Math.max(0, Math.min(last, this.selected < 0 ? 0 : this.selected + steps[event.key])));
    } else if ((event.key === 'Enter' || event.key === ' ') && this.selected >= 0) {
      event.preventDefault();
      this.onPick(this.selected);
    }
  }
}

// colourOf names the colour of a state.
export function colourOf(state) {
  return {
    FailedRevision: '--bad', NoRoom: '--warn', NodeFault: '--out', Changing: '--change', Waiting: '--wait', Current: '--ok', NotSelected: '--none',
    NotReady: '--bad', InMaintenance: '--warn', Cordoned: '--warn', Starting: '--change', Ready: '--ok',
  }[state] || '--none';
}
