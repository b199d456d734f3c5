const COLUMN = 108, ROW = 32, MIDDLE = 14, GAP = 12;

export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector('.sl-drawing');
  const svg = (name, attributes) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', name);
    Object.entries(attributes).forEach(([k, v]) => e.setAttribute(k, v));
    return e;
  };
  // A click on a round's number in this run's list chooses that round.
  const round = (event) => {
    const at = event.target.closest?.('[data-round]');
    if (!at || at.dataset.run !== data.run) return;
    if (event.type === 'keydown' && event.key !== 'Enter' && event.key !== ' ') return;
    event.preventDefault();
    setTriggerValue('round', Number(at.dataset.round));
    host.scrollIntoView({ block: 'nearest' });
  };
  document.addEventListener('click', round);
  document.addEventListener('keydown', round);
  const cleanup = () => {
    document.removeEventListener('click', round);
    document.removeEventListener('keydown', round);
  };
  const drawn = JSON.stringify(data);
  if (host.drawn === drawn) return cleanup;
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.mark : null;
  host.drawn = drawn;
  host.setAttribute('role', 'group');
  host.setAttribute('aria-label', data.label);

  const sheet = document.createElement('div');
  sheet.className = 'sl-sheet';
  sheet.style.width = data.columns * COLUMN + 'px';
  sheet.style.height = data.rows * ROW + 'px';
  const lines = svg('svg', { width: data.columns * COLUMN, height: data.rows * ROW, 'aria-hidden': 'true' });
  sheet.append(lines);
  const byId = new Map(data.marks.map((m) => [m.id, m]));
  data.marks.filter((m) => m.parent !== null).sort((a, b) => a.committed - b.committed).forEach((m) => {
    const from = byId.get(m.parent);
    const x0 = from.column * COLUMN + GAP, x1 = m.column * COLUMN;
    const y0 = from.row * ROW + MIDDLE, y1 = m.row * ROW + MIDDLE, bend = x1 - GAP / 2 - 2;
    const d = y0 === y1 ? `M${x0} ${y0}H${x1}` : `M${x0} ${y0}H${bend}V${y1}H${x1}`;
    lines.append(svg('path', { d, class: m.committed ? 'sl-edge sl-way' : 'sl-edge sl-by-' + m.state }));
  });
  const buttons = data.marks.map((m) => {
    const b = document.createElement('button');
    b.type = 'button';
    b.className = `sl-chip sl-${m.state}${m.committed ? ' sl-way' : ''}`;
    b.style.left = m.column * COLUMN + 'px';
    b.style.top = m.row * ROW + 'px';
    b.textContent = m.text;
    b.title = m.tip;
    b.dataset.mark = m.id;
    b.setAttribute('aria-label', m.tip);
    b.setAttribute('aria-pressed', m.id === data.chosen);
    b.tabIndex = m.id === data.chosen ? 0 : -1;
    b.onclick = () => setTriggerValue('pick', m.id);
    sheet.append(b);
    return b;
  });
  if (!buttons.some((b) => b.tabIndex === 0)) buttons[0].tabIndex = 0;
  sheet.onkeydown = (event) => {
    const place = buttons.indexOf(event.target);
    if (place < 0) return;
    const here = data.marks[place];
    const near = (wanted) => data.marks
      .map((m, i) => ({ m, i }))
      .filter(({ m }) => wanted(m))
      .sort((a, b) => Math.abs(a.m.row - here.row) - Math.abs(b.m.row - here.row)
        || Math.abs(a.m.column - here.column) - Math.abs(b.m.column - here.column))[0];
    const to = {
      ArrowLeft: () => data.marks.map((m, i) => ({ m, i })).find(({ m }) => m.id === here.parent),
      ArrowRight: () => near((m) => m.parent === here.id) || near((m) => m.column === here.column + 1),
      ArrowUp: () => near((m) => m.row < here.row && m.column === here.column) || near((m) => m.row < here.row),
      ArrowDown: () => near((m) => m.row > here.row && m.column === here.column) || near((m) => m.row > here.row),
    }[event.key]?.();
    if (to) {
      event.preventDefault();
      buttons.forEach((b) => { b.tabIndex = -1; });
      buttons[to.i].tabIndex = 0;
      buttons[to.i].focus();
    }
  };
  host.replaceChildren(sheet);
  if (focused !== null) buttons.find((b) => b.dataset.mark === focused)?.focus({ preventScroll: true });
  return cleanup;
}
