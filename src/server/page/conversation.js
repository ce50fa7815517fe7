// SPDX-License-Identifier: Apache-2.0
//
// Conversations and the answers in them; nothing here knows of the page.
//
//   chat      {id, title, updated, messages}
//   message   {role: 'user', text} or
//             {role: 'assistant', text, reasoning, state, error, stats}
//   state     'answering', 'done', 'stopped' (by the user), 'length' (the token limit), 'failed'
//   stats     {tokens, prompt, cached, speed (tokens/s), first (seconds to the first token)}

import {streamChat} from './client.js';

export function newChat() {
    const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
    return {id, title: '', updated: Date.now(), messages: []};
}

export function newAnswer() {
    return {role: 'assistant', text: '', reasoning: '', state: 'answering', error: '', stats: {}};
}

export function addQuestion(chat, text) {
    chat.messages.push({role: 'user', text});
    if (!chat.title) chat.title = text.replace(/\s+/g, ' ').trim().slice(0, 80);
}

// An answer that was on its way when the page was closed has ended with it.
export function settle(chat) {
    for (const m of chat.messages) if (m.state === 'answering') m.state = 'stopped';
}

// The request for the answer at `index`: what was said before it, and parameters.
export function requestBody(chat, index, {system, json, parameters}) {
    const said = chat.messages.slice(0, index).map((m) => ({role: m.role, content: m.text}));
    if (system) said.unshift({role: 'system', content: system});
    const body = {messages: said, ...parameters};
    if (json) body.response_format = {type: 'json_object'};
    return body;
}

function takeUsage(stats, {usage, timings}) {
    if (usage) {
        stats.tokens = usage.completion_tokens;
        stats.prompt = usage.prompt_tokens;
        stats.cached = usage.prompt_tokens_details?.cached_tokens;
    }
    stats.cached ??= timings?.cached_tokens;
    stats.speed = timings?.predicted_per_second ?? stats.speed;
}

function takeChunk(message, chunk) {
    takeUsage(message.stats, chunk);
    const choice = chunk.choices?.[0];
    message.reasoning += choice?.delta?.reasoning_content ?? '';
    message.text += choice?.delta?.content ?? '';
    if (choice?.finish_reason === 'length') message.state = 'length';
}

// Streams an answer into `message`, with changed() after each piece of it. Never throws: how it
// ended is in message.state. Returns the error, or null.
export async function answer(message, body, signal, changed) {
    const start = performance.now();
    let first = 0, pieces = 0, failure = null;
    try {
        for await (const chunk of streamChat(body, signal)) {
            const before = message.text.length + message.reasoning.length;
            takeChunk(message, chunk);
            if (message.text.length + message.reasoning.length > before) {
                first ||= performance.now();
                pieces++;
            }
            changed();
        }
        if (message.state === 'answering') message.state = 'done';
    } catch (error) {
        failure = signal.aborted ? null : error;
        message.state = failure ? 'failed' : 'stopped';
        message.error = failure?.message ?? '';
    }
    const {stats} = message;
    if (first) stats.first = (first - start) / 1000;
    stats.tokens ??= pieces;
    if (pieces > 1) stats.speed ??= (pieces - 1) / ((performance.now() - first) / 1000);
    return failure;
}
