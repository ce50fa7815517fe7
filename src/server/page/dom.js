// SPDX-License-Identifier: Apache-2.0
//
// Elements. Text always goes in as text: nothing in these files writes HTML.

export const byId = (id) => document.getElementById(id);

// element('a', {href: '/', className: 'x'}, 'text', node, ...); "aria-..." and "data-..." work too.
export function element(tag, properties = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(properties)) {
        if (name.includes('-')) node.setAttribute(name, value);
        else node[name] = value;
    }
    node.append(...children);
    return node;
}

export function button(label, onclick, properties = {}) {
    return element('button', {type: 'button', onclick, ...properties}, label);
}

// Outside secure contexts (http to another machine) there is no clipboard API.
async function writeClipboard(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = element('textarea', {value: text, className: 'unseen'});
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    const copied = document.execCommand('copy');
    area.remove();
    if (!copied) throw new Error('the browser refused');
}

// A button that copies what `text()` gives and says so for a moment.
export function copyButton(text, properties = {}) {
    const label = 'Copy';
    const copy = async () => {
        try {
            await writeClipboard(text());
            node.textContent = 'Copied';
        } catch {
            node.textContent = 'Not copied';
        }
        node.focus();
        setTimeout(() => { node.textContent = label; }, 1500);
    };
    const node = button(label, copy, {...properties, 'aria-live': 'polite'});
    return node;
}
