export default function ({ data, parentElement }) {
  const host = parentElement.querySelector('.sl-copy');
  if (host.firstChild) return;
  const button = document.createElement('button'), said = document.createElement('span');
  button.type = 'button'; button.title = data.tip; button.textContent = 'Copy link';
  said.setAttribute('role', 'status');
  button.onclick = async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      said.replaceChildren('copied');
      setTimeout(() => said.replaceChildren(), 2500);
    } catch {
      const field = document.createElement('input');
      field.readOnly = true; field.value = location.href; field.setAttribute('aria-label', 'Link');
      said.replaceChildren(field); field.select();
    }
  };
  host.append(button, said);
}
