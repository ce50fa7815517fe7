// SPDX-License-Identifier: Apache-2.0
//
// Markdown as models write it, as DOM nodes: paragraphs, headings, lists, quotes, tables, code,
// emphasis and links. The text comes from a model and is never trusted: it reaches the page through
// text nodes alone, links lead to http, https and mailto, pictures become links. A subset of
// CommonMark 0.31 and of GFM's tables, with two differences: a line break in a paragraph stays one,
// and HTML is text (but for <br>).

import {copyButton, element} from './dom.js';

const MAX_DEPTH = 12; // quotes and lists inside each other, and emphasis; deeper is plain text

// ---- inline ------------------------------------------------------------------------------------

const SPECIAL = /\\|`+|\*+|_+|~~|!?\[|https?:\/\/|<br ?\/?>|\n/g;
const ESCAPED = /[!-/:-@[-`{-~]/;
const TARGET = /\(\s*<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+"[^"]*")?\s*\)/y;
const BARE_LINK = /https?:\/\/[^\s<>"'`|*]+/y;
const WORD = /[\p{L}\p{N}]/u;

function safeLink(target) {
    try {
        const url = new URL(target);
        return ['http:', 'https:', 'mailto:'].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

function link(target, ...children) {
    return element('a', {href: target, target: '_blank', rel: 'noopener noreferrer'}, ...children);
}

// Where a run of `*` or `_` closes the emphasis that begins before `from`; -1 if nowhere. Of a run
// its last characters close; a run of two closes no single marker.
function emphasisEnd(text, marker, from) {
    const size = marker.length;
    for (let i = text.indexOf(marker, from); i >= 0; i = text.indexOf(marker, i)) {
        let end = i;
        while (text[end] === marker[0]) end++;
        const run = end - i, spaced = /[\s\\]/.test(text[i - 1]);
        const inWord = marker[0] === '_' && WORD.test(text[end] ?? '');
        if (!spaced && !inWord && i > from && (size === 2 || run !== 2)) return end - size;
        i = end;
    }
    return -1;
}

function codeEnd(text, marker, from) {
    for (let i = text.indexOf(marker, from); i >= 0;) {
        let end = i + marker.length;
        while (text[end] === '`') end++;
        if (end - i === marker.length) return i;
        i = text.indexOf(marker, end);
    }
    return -1;
}

class Inline {
    constructor(text, parent, depth) {
        Object.assign(this, {text, parent, depth, plain: ''});
        this.unclosed = new Set(); // markers that close nowhere further on: nobody looks twice
        this.at = 0;
    }

    flush() {
        if (this.plain) this.parent.append(this.plain);
        this.plain = '';
    }

    put(node, next) {
        this.flush();
        this.parent.append(node);
        this.at = next;
    }

    // Calls find(text, marker, from) unless an earlier call found nothing.
    closing(find, marker, from) {
        if (this.unclosed.has(marker)) return -1;
        const end = find(this.text, marker, from);
        if (end < 0) this.unclosed.add(marker);
        return end;
    }

    code(run, start) {
        const end = this.closing(codeEnd, run, start + run.length);
        if (end < 0) return false;
        let code = this.text.slice(start + run.length, end).replaceAll('\n', ' ');
        if (/^ .*[^ ].* $/.test(code)) code = code.slice(1, -1);
        this.put(element('code', {}, code), end + run.length);
        return true;
    }

    emphasis(run, start) {
        const before = this.text[start - 1] ?? ' ', after = this.text[start + run.length] ?? ' ';
        if (/\s/.test(after) || (run[0] === '_' && WORD.test(before))) return false;
        const marker = run.length === 1 ? run : run.slice(0, 2);
        const end = this.closing(emphasisEnd, marker, start + marker.length);
        if (end < 0) return false;
        const node = element(marker.length === 1 ? 'em' : 'strong');
        appendInline(node, this.text.slice(start + marker.length, end), this.depth + 1);
        this.put(node, end + marker.length);
        return true;
    }

    strike(run, start) {
        const end = this.closing((t, m, from) => t.indexOf(m, from), run, start + 2);
        if (end < start + 3) return false;
        const node = element('del');
        appendInline(node, this.text.slice(start + 2, end), this.depth + 1);
        this.put(node, end + 2);
        return true;
    }

    linked(run, start) {
        const label = this.closing((t, m, from) => t.indexOf('](', from), '[', start + run.length);
        if (label < 0) return false;
        const shown = this.text.slice(start + run.length, label);
        TARGET.lastIndex = label + 1;
        const target = TARGET.exec(this.text);
        const url = target && safeLink(target[1]);
        if (!url || shown.includes('\n\n') || (shown.includes('[') && run === '[')) return false;
        const node = link(url);
        if (run === '![') node.append(shown || url);
        else appendInline(node, shown, this.depth + 1, true);
        this.put(node, TARGET.lastIndex);
        return true;
    }

    bareLink(start) {
        BARE_LINK.lastIndex = start;
        let found = BARE_LINK.exec(this.text)?.[0].replace(/[.,;:!?]+$/, '') ?? '';
        if (found.endsWith(')') && !found.includes('(')) found = found.slice(0, -1);
        const url = safeLink(found);
        if (!url) return false;
        this.put(link(url, found), start + found.length);
        return true;
    }

    special(run, start, inLink) {
        switch (run[0]) {
        case '`': return this.code(run, start);
        case '*': case '_': return this.emphasis(run, start);
        case '~': return this.strike(run, start);
        case '!': case '[': return !inLink && this.linked(run, start);
        case 'h': return !inLink && this.bareLink(start);
        case '<': this.put(element('br'), start + run.length); return true;
        case '\n': this.put(element('br'), start + 1); return true;
        default: // a backslash
            if (!ESCAPED.test(this.text[start + 1] ?? '')) return false;
            this.plain += this.text[start + 1];
            this.at = start + 2;
            return true;
        }
    }

    run(inLink) {
        while (this.at < this.text.length) {
            SPECIAL.lastIndex = this.at;
            const found = SPECIAL.exec(this.text);
            const start = found ? found.index : this.text.length;
            this.plain += this.text.slice(this.at, start);
            this.at = start;
            if (found && !this.special(found[0], start, inLink)) {
                this.plain += found[0];
                this.at = start + found[0].length;
            }
        }
        this.flush();
    }
}

function appendInline(parent, text, depth = 0, inLink = false) {
    if (depth >= MAX_DEPTH) parent.append(text);
    else new Inline(text, parent, depth).run(inLink);
}

// ---- blocks ------------------------------------------------------------------------------------

const BLANK = /^\s*$/;
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( {0,3})([-*+]|\d{1,9}[.)])(?:([ \t]+)(.*)|)$/;
const DELIMITER = /^\s*\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;

const isTable = (lines, i) =>
    lines[i].includes('|') && i + 1 < lines.length && DELIMITER.test(lines[i + 1]) &&
    lines[i + 1].includes('-') && cells(lines[i]).length === cells(lines[i + 1]).length;

const startsBlock = (lines, i) =>
    FENCE.test(lines[i]) || HEADING.test(lines[i]) || RULE.test(lines[i]) || QUOTE.test(lines[i]) ||
    /^ {0,3}([-*+]|1[.)]) +\S/.test(lines[i]) || isTable(lines, i);

// Each kind: (lines, i, depth) => [node, the line after it], or null when the line is none.

function code(lines, i) {
    const open = FENCE.exec(lines[i]);
    if (!open) return null;
    const [, indent, fence, info] = open;
    const close = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}\\s*$`);
    let end = i + 1;
    while (end < lines.length && !close.test(lines[end])) end++;
    const margin = new RegExp(`^ {0,${indent.length}}`);
    const text = lines.slice(i + 1, end).map((l) => l.replace(margin, '')).join('\n');
    const language = info.trim().split(/\s/)[0];
    const pre = element('pre', {tabIndex: 0}, element('code', {}, text));
    pre.setAttribute('role', 'region');
    pre.setAttribute('aria-label', language ? `Code, ${language}` : 'Code');
    const head = element('div', {className: 'code-head'}, element('span', {}, language),
                         copyButton(() => text, {'aria-label': 'Copy this code'}));
    return [element('div', {className: 'code'}, head, pre), end + 1];
}

function heading(lines, i) {
    const found = HEADING.exec(lines[i]);
    if (!found) return null;
    const level = Math.min(6, found[1].length + 2); // the page has h1, each message an h2
    const node = element(`h${level}`);
    appendInline(node, found[2] ?? '');
    return [node, i + 1];
}

function rule(lines, i) {
    return RULE.test(lines[i]) ? [element('hr'), i + 1] : null;
}

function quote(lines, i, depth) {
    if (!QUOTE.test(lines[i])) return null;
    let end = i;
    while (end < lines.length && QUOTE.test(lines[end])) end++;
    const node = element('blockquote');
    appendBlocks(node, lines.slice(i, end).map((l) => l.replace(QUOTE, '')), depth + 1);
    return [node, end];
}

function cells(line) {
    const row = line.trim().replace(/^\|/, '').replace(/(^|[^\\])\|$/, '$1');
    return row.split(/(?<!\\)\|/).map((c) => c.trim().replaceAll('\\|', '|'));
}

function table(lines, i) {
    if (!isTable(lines, i)) return null;
    const aligns = cells(lines[i + 1]).map((c) =>
        c.endsWith(':') ? (c.startsWith(':') ? 'center' : 'right') : '');
    const row = (line, tag) => {
        const texts = cells(line);
        return element('tr', {}, ...aligns.map((align, column) => {
            const cell = element(tag, align ? {className: align} : {});
            if (tag === 'th') cell.scope = 'col';
            appendInline(cell, texts[column] ?? '');
            return cell;
        }));
    };
    let end = i + 2;
    while (end < lines.length && lines[end].includes('|') && !BLANK.test(lines[end])) end++;
    const node = element('table', {}, element('thead', {}, row(lines[i], 'th')),
                         element('tbody', {}, ...lines.slice(i + 2, end).map((l) => row(l, 'td'))));
    const frame = element('div', {className: 'table', tabIndex: 0}, node);
    frame.setAttribute('role', 'region');
    frame.setAttribute('aria-label', 'Table');
    return [frame, end];
}

// Columns before the first character, tabs to the next multiple of four; -1 on a blank line.
function indentation(line) {
    let column = 0;
    for (const c of line) {
        if (c === ' ') column++;
        else if (c === '\t') column += 4 - column % 4;
        else return column;
    }
    return -1;
}

// The line without its first `width` columns, where they are blank.
function dedent(line, width) {
    let i = 0, column = 0;
    for (; column < width && ' \t'.includes(line[i] ?? 'x'); i++)
        column += line[i] === '\t' ? 4 - column % 4 : 1;
    return ' '.repeat(Math.max(0, column - width)) + line.slice(i);
}

// The line after an item that begins at line i, whose text is indented by `width`.
function itemEnd(lines, i, width) {
    let end = i + 1;
    for (; end < lines.length; end++) {
        const indent = indentation(lines[end]);
        if (indent < 0 || indent >= width) continue;
        if (BLANK.test(lines[end - 1]) || ITEM.test(lines[end]) || startsBlock(lines, end)) break;
    }
    while (end > i + 1 && BLANK.test(lines[end - 1])) end--;
    return end;
}

// An item's blocks go into the list; in a tight one their paragraphs are bare text.
function appendItem(list, {task, blocks}, loose) {
    const item = element('li', task ? {className: 'task'} : {});
    for (const {node} of blocks)
        item.append(...(loose || node.tagName !== 'P' ? [node] : node.childNodes));
    list.append(item);
}

function parseItem(lines, depth) {
    const task = /^\[([ xX])\] /.exec(lines[0]);
    if (task) lines[0] = (task[1] === ' ' ? '☐ ' : '☑ ') + lines[0].slice(4);
    const blocks = parseBlocks(lines, depth + 1);
    return {task, blocks, loose: blocks.some(({line}) => line > 0 && BLANK.test(lines[line - 1]))};
}

function list(lines, i, depth) {
    const first = ITEM.exec(lines[i]);
    if (!first || RULE.test(lines[i])) return null;
    const kind = first[2].at(-1), items = [];
    let loose = false;
    for (let found = first; found && found[2].at(-1) === kind;) {
        const [, indent, marker, space = ' ', text = ''] = found;
        const width = indent.length + marker.length + (space.length > 4 ? 1 : space.length);
        const end = itemEnd(lines, i, width);
        const inner = lines.slice(i + 1, end).map((l) => dedent(l, width));
        items.push(parseItem([text, ...inner], depth));
        loose ||= items.at(-1).loose;
        i = end;
        while (i < lines.length && BLANK.test(lines[i])) i++;
        found = i < lines.length && !RULE.test(lines[i]) ? ITEM.exec(lines[i]) : null;
        if (!found || found[2].at(-1) !== kind) i = end;
        else loose ||= i > end;
    }
    const ordered = /\d/.test(first[2]);
    const node = element(ordered ? 'ol' : 'ul');
    if (ordered && parseInt(first[2]) !== 1) node.start = parseInt(first[2]);
    for (const item of items) appendItem(node, item, loose);
    return [node, i];
}

function paragraph(lines, i) {
    let end = i + 1;
    while (end < lines.length && !BLANK.test(lines[end]) && !startsBlock(lines, end)) end++;
    const node = element('p');
    const text = lines.slice(i, end).map((l) => l.trim().replace(/\\$/, '')).join('\n');
    appendInline(node, text);
    return [node, end];
}

const KINDS = [code, heading, rule, quote, table, list, paragraph];

// [{node, line}]: the blocks and the lines where they begin.
function parseBlocks(lines, depth) {
    const kinds = depth < MAX_DEPTH ? KINDS : [paragraph];
    const blocks = [];
    for (let i = 0; i < lines.length;) {
        if (BLANK.test(lines[i])) {
            i++;
            continue;
        }
        for (const kind of kinds) {
            const found = kind(lines, i, depth);
            if (!found) continue;
            blocks.push({node: found[0], line: i});
            i = found[1];
            break;
        }
    }
    return blocks;
}

function appendBlocks(parent, lines, depth) {
    parent.append(...parseBlocks(lines, depth).map((b) => b.node));
}

// ---- a text that grows -------------------------------------------------------------------------

// Shows a text in `root`. As it grows all but its last two blocks stay as they are: nothing that
// follows can change them, and a selection in them survives. `settled(node)` is told of each.
export class MarkdownView {
    #root;
    #settled;
    #text = ''; // of the blocks that stay
    #open = []; // nodes that do not

    constructor(root, settled = () => {}) {
        this.#root = root;
        this.#settled = settled;
    }

    update(text) {
        if (!text.startsWith(this.#text)) {
            this.#root.replaceChildren();
            this.#text = '';
            this.#open = [];
        }
        for (const node of this.#open) node.remove();
        const lines = text.slice(this.#text.length).split('\n');
        const blocks = parseBlocks(lines, 0);
        this.#root.append(...blocks.map((b) => b.node));
        const kept = Math.max(0, blocks.length - 2);
        for (const block of blocks.slice(0, kept)) this.#settled(block.node);
        this.#open = blocks.slice(kept).map((b) => b.node);
        if (kept > 0) this.#settle(text, blocks[kept].line);
    }

    // `lines` lines of what follows stay.
    #settle(text, lines) {
        let end = this.#text.length;
        for (; lines > 0; lines--) end = text.indexOf('\n', end) + 1;
        this.#text = text.slice(0, end);
    }

    // The text is whole.
    finish(text) {
        this.update(text);
        this.#open.forEach(this.#settled);
        this.#open = [];
    }
}
