// SPDX-License-Identifier: Apache-2.0
//
// The settings' form. Each field keeps itself; one that is empty or wrong is not sent, so that the
// server's default holds, which its placeholder says. Defaults of the page are in index.html.

import {byId, element} from './dom.js';
import {loadKey, loadSettings, saveKey, saveSettings} from './store.js';

const form = byId('settings-form');
const NUMBERS = [...form.querySelectorAll('input[type=number]')];

export function parameters() {
    const sent = {};
    for (const input of NUMBERS)
        if (input.value !== '' && input.validity.valid) sent[input.name] = Number(input.value);
    return sent;
}

export const current = () => ({
    system: form.elements.system.value.trim(),
    json: form.elements.json.checked,
    parameters: parameters(),
});

export const shortcutsAreOn = () => form.elements.shortcuts.checked;

function remember() {
    const {system, json, shortcuts} = form.elements;
    const kept = {system: system.value, json: json.checked, shortcuts: shortcuts.checked};
    for (const input of NUMBERS) kept[input.name] = input.value;
    saveSettings(kept);
}

// Says below a field what is wrong with it.
function judge(input) {
    const id = `${input.id}-fault`;
    byId(id)?.remove();
    const wrong = !input.validity.valid;
    input.setAttribute('aria-invalid', wrong);
    if (!wrong) {
        input.removeAttribute('aria-describedby');
        return;
    }
    const whole = input.step === '1' ? 'a whole number' : 'a number';
    const fault = `Expected ${whole} from ${input.min} to ${input.max}; not sent.`;
    input.after(element('p', {id, className: 'fault'}, fault));
    input.setAttribute('aria-describedby', id);
}

function fill(kept) {
    const {system, json, shortcuts} = form.elements;
    system.value = typeof kept.system === 'string' ? kept.system : '';
    json.checked = kept.json === true;
    shortcuts.checked = kept.shortcuts !== false;
    for (const input of NUMBERS) {
        const value = kept[input.name];
        input.value = typeof value === 'string' ? value : input.defaultValue;
        judge(input);
    }
}

export function openSettings() {
    form.elements.key.value = loadKey();
    byId('settings').showModal();
}

export function startSettings() {
    fill(loadSettings());
    form.addEventListener('input', ({target}) => {
        if (target.name === 'key') return void saveKey(target.value.trim());
        if (target.type === 'number') judge(target);
        remember();
    });
    // Enter in a field shall not press the first button, which closes.
    form.addEventListener('keydown', (event) => {
        if (event.key === 'Enter' && event.target.tagName === 'INPUT') event.preventDefault();
    });
    byId('reset-settings').addEventListener('click', () => {
        fill({shortcuts: shortcutsAreOn()});
        remember();
    });
}
