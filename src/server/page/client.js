// SPDX-License-Identifier: Apache-2.0
//
// The server's API: JSON in, JSON or server-sent events out, failures as ServerError in words.

import {loadKey} from './store.js';

// `status` is HTTP's, 0 when there was no answer at all.
export class ServerError extends Error {
    constructor(message, status = 0) {
        super(message);
        this.status = status;
    }
}

const UNREACHABLE = 'The server does not answer. Is it running?';
const BROKEN = 'The connection broke off before the answer was whole.';

async function failure(response) {
    let message = '';
    try {
        message = (await response.json()).error.message;
    } catch { /* no error of this API's shape */ }
    if (typeof message !== 'string' || !message)
        message = `The server answered with status ${response.status}.`;
    const wait = Number(response.headers.get('Retry-After'));
    if (response.status === 429 && wait > 0)
        message = `The server is busy. It asks to try again in ${wait} s.`;
    return new ServerError(message, response.status);
}

// Paths are relative to the page: a proxy may serve it under a prefix.
async function request(path, options = {}) {
    const headers = new Headers(options.headers);
    const key = loadKey();
    if (key) headers.set('Authorization', `Bearer ${key}`);
    let response;
    try {
        const url = new URL(path, document.baseURI);
        response = await fetch(url, {...options, headers, cache: 'no-store'});
    } catch (error) {
        throw error.name === 'AbortError' ? error : new ServerError(UNREACHABLE);
    }
    if (!response.ok) throw await failure(response);
    return response;
}

export const getJson = async (path) => (await request(path)).json();
export const getText = async (path) => (await request(path)).text();

// The data of each event of a stream of server-sent events.
async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    try {
        for (;;) {
            const {done, value} = await reader.read();
            if (done) return;
            const parts = (rest + value).split(/\r?\n\r?\n/);
            rest = parts.pop();
            for (const part of parts) {
                const lines = part.split(/\r?\n/).filter((l) => l.startsWith('data:'));
                if (lines.length > 0) yield lines.map((l) => l.slice(5).trimStart()).join('\n');
            }
        }
    } finally {
        reader.cancel().catch(() => {});
    }
}

// Chunks of a streamed chat completion, until [DONE].
export async function* streamChat(body, signal) {
    const response = await request('v1/chat/completions', {
        method: 'POST', signal, headers: {'Content-Type': 'application/json'},
        body: JSON.stringify({...body, stream: true, stream_options: {include_usage: true}}),
    });
    try {
        for await (const data of events(response.body)) {
            if (data === '[DONE]') return;
            const chunk = JSON.parse(data);
            if (chunk.error) throw new ServerError(String(chunk.error.message), 200);
            yield chunk;
        }
    } catch (error) {
        if (error instanceof ServerError || error.name === 'AbortError') throw error;
        throw new ServerError(BROKEN);
    }
    throw new ServerError(BROKEN);
}
