export default function ({ data, parentElement, setTriggerValue }) {
  const host = parentElement.querySelector('.sl-table');
  const focused = host.contains(document.activeElement) ? document.activeElement.dataset.at : null;
  const make = (tag, cls, text) => { const e = document.createElement(tag); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
  const table = make('table'), head = make('thead'), top = make('tr'), body = make('tbody');
  data.columns.forEach((c) => {
    const th = make('th', (c.number ? 'num ' : '') + (c.extra ? 'extra' : ''));
    th.scope = 'col';
    const sorted = c.sort && c.sort === data.sort;
    if (c.sort) {
      const b = make('button', '', c.label + (sorted ? (data.descending ? ' ↓' : ' ↑') : ''));
      b.type = 'button'; b.dataset.at = 'sort ' + c.sort; b.title = (c.tip ? c.tip + ' ' : '') + 'Click to sort all runs.';
      b.onclick = () => setTriggerValue('sort', c.sort);
      th.append(b);
    } else { th.textContent = c.label; th.title = c.tip; }
    if (sorted) th.setAttribute('aria-sort', data.descending ? 'descending' : 'ascending');
    top.append(th);
  });
  data.rows.forEach((r) => {
    const tr = make('tr');
    tr.dataset.run = r.id;
    tr.onclick = () => { if (!String(getSelection())) setTriggerValue('open', r.id); };
    r.cells.forEach((text, i) => {
      const c = data.columns[i], td = make('td', (c.number ? 'num ' : '') + (c.extra ? 'extra ' : '') + (c.label === 'Prompt' ? 'prompt' : ''));
      if (i === 0) {
        const b = make('button', 'open', text);
        b.type = 'button'; b.dataset.at = 'open ' + r.id; b.title = 'Open this run';
        b.onclick = (event) => { event.stopPropagation(); setTriggerValue('open', r.id); };
        td.append(b);
      } else if (c.label === 'Status') { td.append(make('span', 'sl-badge sl-is-' + r.status, text)); }
      else td.textContent = text;
      tr.append(td);
    });
    body.append(tr);
  });
  head.append(top); table.append(head, body); host.replaceChildren(table);
  if (focused) { const again = [...host.querySelectorAll('button')].find((b) => b.dataset.at === focused); if (again) again.focus(); }
}
