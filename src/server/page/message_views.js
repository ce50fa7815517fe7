// SPDX-License-Identifier: Apache-2.0
//
// How messages look. A view shows one message and follows it as it grows, at most once a frame.

import {button, byId, copyButton, element} from './dom.js';
import {MarkdownView} from './markdown.js';

const number = new Intl.NumberFormat('en');
const fixed = (x) => x.toFixed(x < 10 ? 1 : 0);

// "52 tokens · 48 tokens/s · 0.4 s to the first · prompt 812, 790 of it cached"
export function describeStats({tokens, speed, first, prompt, cached}) {
    const parts = [];
    if (tokens > 0) parts.push(`${number.format(tokens)} ${tokens === 1 ? 'token' : 'tokens'}`);
    if (speed > 0) parts.push(`${fixed(speed)} tokens/s`);
    if (first > 0) parts.push(`${first.toFixed(2)} s to the first`);
    if (prompt > 0) {
        const kept = cached > 0 ? `, ${number.format(cached)} of it cached` : '';
        parts.push(`prompt ${number.format(prompt)}${kept}`);
    }
    return parts.join(' · ');
}

const NOTES = {
    stopped: 'Stopped.',
    length: 'Cut off at the token limit.',
    done: '',
    answering: '',
    failed: '',
};

// What a screen reader hears of an answer: whole blocks, not tokens.
function speak(text) {
    const spoken = byId('spoken');
    spoken.append(element('p', {}, text));
    while (spoken.childElementCount > 50) spoken.firstElementChild.remove();
}

class QuestionView {
    constructor(message, actions) {
        this.message = message;
        this.actions = actions;
        this.body = element('div', {className: 'text plain'});
        this.tools = element('div', {className: 'actions'},
            copyButton(() => message.text, {'aria-label': 'Copy this message'}),
            button('Edit', () => this.edit(), {'aria-label': 'Edit this message'}));
        this.node = element('article', {className: 'question', tabIndex: -1},
            element('h2', {className: 'unseen'}, 'You'), this.body, this.tools);
        this.body.textContent = message.text;
    }

    edit() {
        if (this.node.querySelector('form')) return;
        const field = element('textarea', {value: this.message.text, rows: 3,
                                           'aria-label': 'Edit message'});
        const form = element('form', {className: 'edit'}, field, element('div', {className: 'row'},
            element('p', {className: 'hint'}, 'What follows is answered anew.'),
            button('Cancel', () => this.leave()),
            element('button', {type: 'submit', className: 'primary'}, 'Send')));
        const submit = () => {
            const text = field.value.trim();
            if (text) this.actions.resend(this.message, text);
        };
        form.addEventListener('submit', (event) => {
            event.preventDefault();
            submit();
        });
        field.addEventListener('keydown', (event) => {
            if (event.isComposing) return;
            if (event.key === 'Escape') this.leave();
            else if (event.key === 'Enter' && !event.shiftKey) submit();
            else return;
            event.preventDefault();
            event.stopPropagation();
        });
        this.body.hidden = this.tools.hidden = true;
        this.node.append(form);
        field.focus();
    }

    leave() {
        this.node.querySelector('form')?.remove();
        this.body.hidden = this.tools.hidden = false;
        this.tools.lastChild.focus();
    }

    update() {}
}

class AnswerView {
    #frame = 0;

    constructor(message, actions) {
        this.message = message;
        this.body = element('div', {className: 'text'});
        this.live = message.state === 'answering';
        this.markdown = new MarkdownView(this.body, (node) => this.#speak(node));
        this.reasoning = element('div', {className: 'text plain'});
        this.summary = element('summary');
        this.details = element('details', {hidden: true}, this.summary, this.reasoning);
        this.note = element('p', {className: 'note', hidden: true});
        this.stats = element('p', {className: 'stats'});
        this.again = button('Regenerate', () => actions.regenerate(message),
                            {'aria-label': 'Regenerate this answer'});
        this.tools = element('div', {className: 'actions', hidden: true},
            copyButton(() => message.text, {'aria-label': 'Copy this answer'}),
            this.again, this.stats);
        this.retry = button('Try again', () => actions.regenerate(message), {hidden: true});
        this.node = element('article', {className: 'answer', tabIndex: -1},
            element('h2', {className: 'unseen'}, 'Answer'), this.details, this.body,
            this.note, this.retry, this.tools);
        this.#render();
    }

    #speak(node) {
        if (!this.live) return;
        const code = node.querySelector('code');
        speak(node.className === 'code' ? `Code: ${code.textContent}` : node.textContent);
    }

    // The message changed: it is shown with the next frame, or now that it is whole.
    update() {
        const ended = this.message.state !== 'answering';
        if (ended) this.#render();
        else this.#frame ||= requestAnimationFrame(() => this.#render());
    }

    #render() {
        cancelAnimationFrame(this.#frame);
        this.#frame = 0;
        const {message} = this;
        const answering = message.state === 'answering';
        this.node.classList.toggle('answering', answering);
        this.node.setAttribute('aria-busy', answering);
        if (message.reasoning) this.#renderReasoning(answering && !message.text);
        if (answering) this.markdown.update(message.text);
        else this.#renderEnd();
    }

    #renderReasoning(thinking) {
        this.details.hidden = false;
        this.summary.textContent = thinking ? 'Reasoning …' : 'Reasoning';
        this.reasoning.textContent = this.message.reasoning;
    }

    #renderEnd() {
        const {message} = this;
        this.markdown.finish(message.text);
        const note = message.state === 'failed' ? message.error : NOTES[message.state] ?? '';
        this.note.textContent = note;
        this.note.hidden = !note;
        this.note.classList.toggle('failed', message.state === 'failed');
        this.retry.hidden = message.state !== 'failed';
        this.again.hidden = message.state === 'failed';
        this.tools.hidden = message.state === 'failed' && !message.text;
        this.stats.textContent = describeStats(message.stats ?? {});
        if (this.live) speak(note || 'End of the answer.');
        this.live = false;
    }
}

export function viewOf(message, actions) {
    return message.role === 'user' ? new QuestionView(message, actions)
                                   : new AnswerView(message, actions);
}
