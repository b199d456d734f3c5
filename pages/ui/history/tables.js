export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector('.sl-table');
  const drawn = JSON.stringify(data);
  host.send = setTriggerValue;
  if (host.drawn === drawn && host.firstChild) return; // nothing moved: scroll, focus and marked text stay
  host.drawn = drawn;
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
  const table = make('table'), head = make('thead'), top = make('tr'), body = make('tbody');
  const tick = (label, at, on) => { const box = make('input'); box.type = 'checkbox'; box.checked = on; box.dataset.at = at; box.setAttribute('aria-label', label); box.title = label; return box; };
  // All ticked ids in view are sent, not just the change, so that clicks in quick succession lose nothing.
  const send = () => host.send('select', [...body.querySelectorAll('input:checked')].map((box) => box.dataset.run));
  const all = tick('Select all runs in view', 'all', data.rows.length > 0 && data.rows.every((r) => r.selected));
  all.indeterminate = !all.checked && data.rows.some((r) => r.selected);
  all.onchange = () => { body.querySelectorAll('input').forEach((box) => { box.checked = all.checked; box.closest('tr').classList.toggle('sl-picked', box.checked); }); send(); };
  const corner = make('th', 'tick'); corner.scope = 'col'; corner.append(all); top.append(corner);
  data.columns.forEach((c) => {
    const th = make('th', (c.number ? 'num ' : '') + (c.extra ? 'extra' : ''));
    th.scope = 'col';
    const sorted = c.sort && c.sort === data.sort;
    if (c.sort) {
      const b = make('button', '', c.label + (sorted ? (data.descending ? ' ↓' : ' ↑') : ''));
      b.type = 'button'; b.dataset.at = 'sort ' + c.sort; b.title = (c.tip ? c.tip + ' ' : '') + 'Click to sort all runs.';
      b.onclick = () => host.send('sort', c.sort);
      th.append(b);
    } else { th.textContent = c.label; th.title = c.tip; }
    if (sorted) th.setAttribute('aria-sort', data.descending ? 'descending' : 'ascending');
    top.append(th);
  });
  const chips = (r) => [...r.tags.map((tag) => make('span', 'sl-tag', tag)), ...(r.more ? [make('span', 'sl-tag', '+' + r.more)] : [])];
  data.rows.forEach((r) => {
    const tr = make('tr', (r.selected ? 'sl-picked ' : '') + (r.archived ? 'sl-archived' : ''));
    tr.dataset.run = r.id;
    tr.onclick = () => { if (!String(getSelection())) host.send('open', r.id); };
    const first = make('td', 'tick'), box = tick('Select ' + (r.name || 'the run of ' + r.cells[0]), 'tick ' + r.id, r.selected);
    box.dataset.run = r.id;
    box.onchange = () => { tr.classList.toggle('sl-picked', box.checked); send(); };
    first.onclick = (event) => { event.stopPropagation(); if (event.target !== box) box.click(); };
    first.append(box); tr.append(first);
    r.cells.forEach((text, i) => {
      const c = data.columns[i], td = make('td', (c.number ? 'num ' : '') + (c.extra ? 'extra ' : '') + (['prompt', 'name', 'note', 'pair', 'reason'].includes(c.id) ? 'long' : ''));
      if (r.tips[i]) td.title = r.tips[i];
      let into = td;
      if (i === 0) {
        into = make('button', 'open');
        into.type = 'button'; into.dataset.at = 'open ' + r.id; into.title = 'Open this run';
        into.onclick = (event) => { event.stopPropagation(); host.send('open', r.id); };
        td.append(into);
      }
      if (c.id === 'status') into.append(make('span', 'sl-badge sl-is-' + r.status, text));
      else if (c.id === 'tags') into.append(...chips(r));
      else {
        if (c.id === 'prompt' && r.name) into.append(make('b', 'sl-named', r.name));
        into.append(c.id === 'prompt' && r.name ? make('span', 'sl-under', text) : text);
        if (c.id === 'prompt') into.append(...chips(r));
      }
      if (!into.textContent && i === 0) into.textContent = '–';
      tr.append(td);
    });
    body.append(tr);
  });
  head.append(top); table.append(head, body); host.replaceChildren(table);
  if (focused) { const again = [...host.querySelectorAll('button, input')].find((e) => e.dataset.at === focused); if (again) again.focus({ preventScroll: true }); }
}
