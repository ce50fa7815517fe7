// SPDX-License-Identifier: Apache-2.0
//
// The chat page: what the user does becomes conversations and requests, and those become messages
// on the page. One answer is on its way at a time; it goes on while another chat is looked at.

import {getJson, getText} from './client.js';
import {addQuestion, answer, newAnswer, newChat, requestBody, settle} from './conversation.js';
import {button, byId, element} from './dom.js';
import {viewOf} from './message_views.js';
import {current, openSettings, shortcutsAreOn, startSettings} from './settings.js';
import {
    isChatKey, loadChats, loadTheme, removeChat, saveChat, saveKey, saveTheme,
} from './store.js';

const field = byId('field'), messages = byId('messages');
const SAVE_EVERY = 2000;  // ms, while an answer grows
const NOTICE_FOR = 12000; // ms

let chats = loadChats(); // newest first
let chat = newChat();    // the one that is shown; in `chats` once something was said
let views = [];          // of its messages
let running = null;      // {chat, message, abort}
let props = {};          // of the server: /props

// ---- notices -----------------------------------------------------------------------------------

let noticeTimer = 0;

function notice(text, action = '', act = null) {
    byId('notice-text').textContent = text;
    const press = byId('notice-action');
    press.textContent = action;
    press.hidden = !action;
    press.onclick = () => { hideNotice(); act?.(); };
    byId('notice').hidden = false;
    clearTimeout(noticeTimer);
    noticeTimer = setTimeout(leaveNotice, NOTICE_FOR);
}

// It stays while somebody is at it.
function leaveNotice() {
    if (!byId('notice').matches(':hover, :focus-within')) return hideNotice();
    noticeTimer = setTimeout(leaveNotice, NOTICE_FOR);
}

function hideNotice() {
    byId('notice').hidden = true;
}

// ---- the list of conversations -----------------------------------------------------------------

function keep(kept) {
    kept.updated = Date.now();
    chats = [kept, ...chats.filter((c) => c !== kept)];
    if (!saveChat(kept))
        notice('This browser keeps no more: the conversation ends with this page.');
    listChats();
}

function forget(gone) {
    if (running?.chat === gone) stop();
    removeChat(gone.id);
    chats = chats.filter((c) => c !== gone);
    if (chat === gone) show(newChat());
    listChats();
    byId('new-chat').focus();
    notice('Conversation deleted.', 'Undo', () => {
        keep(gone);
        show(gone);
    });
}

function chatRow(c) {
    const title = c.title || 'Untitled';
    const open = button(title, () => {
        show(c);
        closeChats();
        field.focus();
    }, {className: 'title', title});
    if (c === chat) open.setAttribute('aria-current', 'page');
    const gone = button('', () => forget(c),
                        {className: 'icon', 'aria-label': `Delete ${title}`, title: 'Delete'});
    gone.append(byId('cross').content.cloneNode(true));
    return element('li', {}, open, gone);
}

function listChats() {
    byId('chat-list').replaceChildren(...chats.map(chatRow));
}

// Where the window is narrow the list lies over the messages, when asked for.
const chatsAreOpen = () => document.body.classList.contains('chats-open');

function openChats() {
    document.body.classList.add('chats-open');
    byId('open-chats').setAttribute('aria-expanded', 'true');
    byId('main').inert = true;
    byId('new-chat').focus();
}

function closeChats() {
    if (!chatsAreOpen()) return;
    document.body.classList.remove('chats-open');
    byId('open-chats').setAttribute('aria-expanded', 'false');
    byId('main').inert = false;
    byId('open-chats').focus();
}

// ---- messages ----------------------------------------------------------------------------------

const actions = {
    resend(message, text) {
        if (running) return notice('An answer is on its way: stop it first.');
        const index = chat.messages.indexOf(message);
        cut(index);
        say(text);
    },
    regenerate(message) {
        if (running) return notice('An answer is on its way: stop it first.');
        cut(chat.messages.indexOf(message));
        ask();
    },
};

function append(message) {
    const view = viewOf(message, actions);
    views.push(view);
    messages.append(view.node);
    byId('empty').hidden = true;
}

function show(shown) {
    chat = shown;
    for (const view of views) view.node.remove();
    views = [];
    byId('empty').hidden = chat.messages.length > 0;
    chat.messages.forEach(append);
    listChats();
    showContext();
    toEnd();
}

// Drops the messages from `index` on.
function cut(index) {
    chat.messages.length = index;
    for (const view of views.splice(index)) view.node.remove();
}

// ---- asking and answering ----------------------------------------------------------------------

function say(text) {
    addQuestion(chat, text);
    append(chat.messages.at(-1));
    ask();
}

async function ask() {
    const asked = chat, message = newAnswer(), abort = new AbortController();
    const body = requestBody(asked, asked.messages.length, current());
    asked.messages.push(message);
    append(message);
    running = {chat: asked, message, abort};
    showRunning();
    keep(asked);
    toEnd();
    let saved = performance.now();
    const failure = await answer(message, body, abort.signal, () => {
        viewFor(message)?.update();
        follow();
        if (performance.now() - saved < SAVE_EVERY) return;
        saveChat(asked);
        saved = performance.now();
    });
    running = null;
    showRunning();
    viewFor(message)?.update();
    follow();
    if (chats.includes(asked)) keep(asked);
    showContext();
    if (failure?.status !== 401) return;
    askForKey(() => { if (chat === asked) actions.regenerate(message); });
}

const viewFor = (message) => views.find((v) => v.message === message);

function stop() {
    running?.abort.abort();
}

function showRunning() {
    const focused = [byId('send'), byId('stop')].includes(document.activeElement);
    byId('send').hidden = running !== null;
    byId('stop').hidden = running === null;
    if (focused) field.focus();
}

function send() {
    const text = field.value.trim();
    if (!text || running) return;
    field.value = '';
    fitField();
    byId('spoken').replaceChildren();
    say(text);
}

function askForKey(then) {
    const dialog = byId('key');
    byId('key-field').value = '';
    dialog.returnValue = '';
    dialog.addEventListener('close', () => {
        if (dialog.returnValue !== 'use') return field.focus();
        saveKey(byId('key-field').value.trim());
        loadServer();
        then();
    }, {once: true});
    dialog.showModal();
}

// ---- scrolling ---------------------------------------------------------------------------------

let following = true; // the end is in view, and stays there as text comes

const atEnd = () => messages.scrollHeight - messages.scrollTop - messages.clientHeight < 48;

function toEnd() {
    following = true;
    messages.scrollTop = messages.scrollHeight;
    byId('latest').hidden = true;
}

function follow() {
    requestAnimationFrame(() => { if (following) messages.scrollTop = messages.scrollHeight; });
}

// ---- the server --------------------------------------------------------------------------------

const number = new Intl.NumberFormat('en');

function showContext() {
    const stats = chat.messages.findLast((m) => m.stats?.prompt)?.stats;
    const size = props.context_length;
    byId('context').hidden = !size || !stats;
    if (!size || !stats) return;
    const used = stats.prompt + (stats.tokens ?? 0);
    Object.assign(byId('context-meter'), {max: size, value: used});
    byId('context-text').textContent =
        `${number.format(used)} of ${number.format(size)} tokens`;
}

async function loadServer() {
    try {
        props = await getJson('props');
        byId('model').textContent = props.model;
        document.title = `${props.model} · Pleach`;
        showContext();
    } catch (error) {
        byId('model').textContent = '';
        if (error.status === 401) askForKey(() => {});
        else notice(error.message, 'Try again', loadServer);
    }
}

const FACTS = {
    model: 'Model', architecture: 'Architecture', device: 'Device', threads: 'Threads',
    context_length: 'Context, tokens', parallel: 'Answers at once', kv: 'Cache',
};

// As Prometheus' names say: pleach_step_seconds_total, pleach_cache_bytes.
function inUnits(name, value) {
    if (/_seconds(_|$)/.test(name)) return `${number.format(value)} s`;
    if (/_bytes(_|$)/.test(name)) return `${number.format(value / 1e6)} MB`;
    return value;
}

// The samples of Prometheus' text format without labels, each under its HELP line.
function* samples(text) {
    const help = new Map();
    for (const line of text.split('\n')) {
        const [, named, words] = /^# HELP (\S+) (.*)$/.exec(line) ?? [];
        if (named) help.set(named, words);
        const [, name, value] = /^([a-zA-Z_:][\w:]*) (\S+)/.exec(line) ?? [];
        if (help.has(name)) yield [help.get(name), inUnits(name, Number(value))];
    }
}

function fact(term, value) {
    const shown = typeof value === 'number' ? number.format(value) : value;
    return element('div', {}, element('dt', {}, term), element('dd', {}, shown));
}

async function openServer() {
    const facts = byId('server-facts');
    facts.replaceChildren(...Object.keys(FACTS).filter((k) => k in props)
        .map((k) => fact(FACTS[k], props[k])));
    byId('server').showModal();
    try {
        for (const [words, value] of samples(await getText('metrics')))
            facts.append(fact(words.replace(/\.$/, ''), value));
    } catch (error) {
        facts.append(fact('State', error.message));
    }
}

// ---- colours -----------------------------------------------------------------------------------

const THEMES = {system: 'as the system', light: 'light', dark: 'dark'};

function setTheme(theme) {
    document.documentElement.dataset.theme = theme;
    byId('theme').setAttribute('aria-label', `Colours: ${THEMES[theme]}`);
}

function nextTheme() {
    const names = Object.keys(THEMES);
    const theme = names[(names.indexOf(loadTheme()) + 1) % names.length];
    saveTheme(theme);
    setTheme(theme);
}

// ---- keys --------------------------------------------------------------------------------------

function step(by) {
    const here = views.findIndex((v) => v.node.contains(document.activeElement));
    const next = here < 0 ? (by < 0 ? views.length - 1 : 0) : here + by;
    const view = views[Math.max(0, Math.min(views.length - 1, next))];
    view?.node.focus();
    view?.node.scrollIntoView({block: 'nearest'});
}

function copyHere() {
    const here = views.find((v) => v.node.contains(document.activeElement)) ??
        views.findLast((v) => v.message.role === 'assistant');
    here?.tools.firstChild.click();
}

const editLast = () => views.findLast((v) => v.message.role === 'user')?.edit();

function regenerateLast() {
    const last = chat.messages.at(-1);
    if (last?.role === 'assistant') actions.regenerate(last);
}

function startChat() {
    show(newChat());
    closeChats();
    field.focus();
}

const KEYS = {
    '/': () => field.focus(),
    'j': () => step(1),
    'k': () => step(-1),
    'c': copyHere,
    'e': editLast,
    'r': regenerateLast,
    'n': startChat,
    ',': openSettings,
    't': nextTheme,
    '?': () => byId('help').showModal(),
};

const takesText = (node) => ['INPUT', 'TEXTAREA', 'SELECT'].includes(node.tagName);

function onKey(event) {
    if (event.isComposing || document.querySelector('dialog[open]')) return;
    if (event.key === 'Escape') {
        if (chatsAreOpen()) closeChats();
        else if (running) stop();
        else if (event.target === field) messages.focus();
        return;
    }
    if (takesText(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!shortcutsAreOn() || !Object.hasOwn(KEYS, event.key)) return;
    event.preventDefault();
    KEYS[event.key]();
}

function onFieldKey(event) {
    if (event.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) {
        event.preventDefault();
        send();
    } else if (event.key === 'ArrowUp' && !field.value && !running) {
        event.preventDefault();
        editLast();
    }
}

// Where CSS cannot size a field by its content.
function fitField() {
    if (CSS.supports('field-sizing', 'content')) return;
    field.style.height = 'auto';
    field.style.height = `${field.scrollHeight}px`;
}

// ---- start -------------------------------------------------------------------------------------

function listen() {
    document.addEventListener('keydown', onKey);
    field.addEventListener('keydown', onFieldKey);
    field.addEventListener('input', fitField);
    byId('composer').addEventListener('submit', (event) => {
        event.preventDefault();
        send();
    });
    messages.addEventListener('scroll', () => {
        following = atEnd();
        byId('latest').hidden = following;
    }, {passive: true});
    const onclick = {
        'stop': stop, 'latest': toEnd, 'new-chat': startChat, 'theme': nextTheme,
        'open-settings': openSettings, 'open-server': openServer, 'open-help': KEYS['?'],
        'open-chats': () => chatsAreOpen() ? closeChats() : openChats(),
        'key-cancel': () => byId('key').close(),
        'delete-all': deleteAll,
    };
    for (const [id, act] of Object.entries(onclick)) byId(id).addEventListener('click', act);
    for (const idea of byId('ideas').querySelectorAll('button'))
        idea.addEventListener('click', () => {
            field.value = idea.textContent;
            field.focus();
            send();
        });
    window.addEventListener('storage', onStorage);
    window.addEventListener('pagehide', () => { if (running) saveChat(running.chat); });
}

function deleteAll() {
    const gone = chats;
    stop();
    for (const c of gone) removeChat(c.id);
    chats = [];
    show(newChat());
    byId('settings').close();
    notice('All conversations deleted.', 'Undo', () => gone.toReversed().forEach(keep));
}

// Another tab changed the list: what this one shows stays as it is.
function onStorage({key}) {
    if (!isChatKey(key)) return;
    const mine = [chat, running?.chat].filter((c) => c);
    chats = loadChats().map((c) => mine.find((m) => m.id === c.id) ?? c);
    listChats();
}

setTheme(loadTheme());
startSettings();
chats.forEach(settle);
listen();
show(chat);
loadServer();
field.focus();
