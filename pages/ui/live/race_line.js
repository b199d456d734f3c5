export default function ({ data, parentElement }) {
  const host = parentElement.querySelector('.sl-race');
  const drawn = JSON.stringify(data);
  if (host.drawn === drawn) return;
  host.drawn = drawn;
  host.setAttribute('role', 'img');
  host.setAttribute('aria-label', data.words);
  const svg = (name, attributes) => {
    const e = document.createElementNS('http://www.w3.org/2000/svg', name);
    Object.entries(attributes).forEach(([k, v]) => e.setAttribute(k, v));
    return e;
  };
  const make = (cls, text, style) => {
    const e = document.createElement('span');
    e.className = cls;
    e.textContent = text;
    Object.assign(e.style, style);
    return e;
  };
  const percent = (share) => 100 * share + '%';
  const field = document.createElement('div');
  field.className = 'sl-field';
  const lines = svg('svg', { viewBox: '0 0 1000 1000', preserveAspectRatio: 'none', 'aria-hidden': 'true' });
  data.ys.forEach((y) => {
    lines.append(svg('path', { d: `M0 ${1000 - 1000 * y.at}H1000`, class: 'sl-grid' }));
    field.append(make('sl-y', y.text, { bottom: percent(y.at) }));
  });
  data.xs.forEach((x) => field.append(make('sl-x', x.text, { left: percent(x.at) })));
  data.lines.forEach((line) => {
    let d = `M${1000 * line.x[0]} ${1000 - 1000 * line.y[0]}`;
    for (let i = 1; i < line.x.length; i += 1) d += `H${1000 * line.x[i]}V${1000 - 1000 * line.y[i]}`;
    lines.append(svg('path', { d, class: 'sl-lane' + (line.dashed ? ' sl-dashed' : ''), stroke: line.colour }));
    const last = line.x.length - 1;
    const end = make('sl-mark', line.letter, { left: percent(line.x[last]), bottom: percent(line.y[last]) });
    end.style.setProperty('--edge', line.colour);
    field.append(end);
  });
  field.prepend(lines);
  host.replaceChildren(field);
}
