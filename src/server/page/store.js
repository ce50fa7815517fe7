// SPDX-License-Identifier: Apache-2.0
//
// What is remembered in this browser: conversations, one key each, settings and colours in
// localStorage, the API key in sessionStorage. What is found there may be anything.

const CHAT = 'pleach.chat.';
const SETTINGS = 'pleach.settings';
const THEME = 'pleach.theme';
const KEY = 'pleach.key';

function read(storage, key) {
    try {
        return JSON.parse(storage().getItem(key));
    } catch {
        return null; // no storage here, or no JSON in it
    }
}

// False when the browser keeps nothing, or is full.
function write(storage, key, value) {
    try {
        storage().setItem(key, JSON.stringify(value));
        return true;
    } catch {
        return false;
    }
}

function remove(storage, key) {
    try {
        storage().removeItem(key);
    } catch { /* nothing was kept */ }
}

const local = () => localStorage, session = () => sessionStorage;

// A conversation: {id, title, updated, messages: [{role, text, ...}]}; see conversation.js.
function isChat(chat) {
    return typeof chat?.id === 'string' && typeof chat.title === 'string' &&
        typeof chat.updated === 'number' && Array.isArray(chat.messages) &&
        chat.messages.every((m) => ['user', 'assistant'].includes(m?.role) &&
                                   typeof m.text === 'string');
}

export function loadChats() {
    let keys = [];
    try {
        keys = Object.keys(localStorage).filter((k) => k.startsWith(CHAT));
    } catch { /* none */ }
    return keys.map((k) => read(local, k)).filter(isChat).sort((a, b) => b.updated - a.updated);
}

export const saveChat = (chat) => write(local, CHAT + chat.id, chat);
export const removeChat = (id) => remove(local, CHAT + id);
export const isChatKey = (key) => key === null || key.startsWith(CHAT);

export function loadSettings() {
    const found = read(local, SETTINGS);
    return found && typeof found === 'object' && !Array.isArray(found) ? found : {};
}
export const saveSettings = (settings) => write(local, SETTINGS, settings);

export function loadTheme() {
    const found = read(local, THEME);
    return ['light', 'dark'].includes(found) ? found : 'system';
}
export const saveTheme = (theme) => write(local, THEME, theme);

export function loadKey() {
    const found = read(session, KEY);
    return typeof found === 'string' ? found : '';
}
export const saveKey = (key) => key ? write(session, KEY, key) : remove(session, KEY);
