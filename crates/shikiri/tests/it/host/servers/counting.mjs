// A server of both eras on the official TypeScript SDK. In the older one it keeps its events, so
// that what a client missed is played to it again. It says where it listens.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import {
  acceptedContent, createMcpHandler, inputRequired, inputResponse, McpServer,
} from '@modelcontextprotocol/server';
import * as z from 'zod';

const say = (text) => ({ content: [{ type: 'text', text }] });

// Pauses that wait, and permissions to go on that nobody has used yet.
const waiting = [];
let permissions = 0;

function pause() {
  if (permissions > 0) {
    permissions -= 1;
    return Promise.resolve();
  }
  return new Promise((resolve) => waiting.push(resolve));
}

function goOn() {
  const next = waiting.shift();
  if (next) next();
  else permissions += 1;
}

const dishes = z.object({ dish: z.string(), portions: z.number().int().default(2) });

function build() {
  const server = new McpServer({ name: 'counting', version: '1.0.0' });
  const counted = z.object({ to: z.number(), pauses: z.array(z.number()) });
  server.registerTool('count', { inputSchema: counted }, async ({ to, pauses }, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= to; progress++) {
      const params = { progressToken, progress, total: to, message: `at ${progress}` };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
      if (pauses.includes(progress)) await pause();
    }
    return say(`counted to ${to}`);
  });
  server.registerTool('go_on', { inputSchema: z.object({}) }, async () => {
    goOn();
    return say('gone on');
  });
  server.registerTool('order', { inputSchema: z.object({}) }, async (_, context) => {
    const answers = context.mcpReq.inputResponses;
    if (inputResponse(answers, 'dish').kind === 'missing') {
      const asked = { message: 'What shall it be?', requestedSchema: dishes };
      return inputRequired({ inputRequests: { dish: inputRequired.elicit(asked) } });
    }
    const wanted = acceptedContent(answers, 'dish', dishes);
    return say(wanted ? `${wanted.portions} x ${wanted.dish}` : 'nothing');
  });
  const topic = z.object({ about: z.string() });
  server.registerTool('ponder', { inputSchema: topic }, async ({ about }, context) => {
    const thought = inputResponse(context.mcpReq.inputResponses, 'thought');
    if (thought.kind !== 'sampling') {
      const messages = [{ role: 'user', content: { type: 'text', text: about } }];
      const asked = inputRequired.createMessage({ messages, maxTokens: 50 });
      return inputRequired({ inputRequests: { thought: asked } });
    }
    return say(`${thought.result.model}: ${thought.result.content.text}`);
  });
  return server;
}

class Kept {
  events = [];

  async storeEvent(stream, message) {
    this.events.push({ stream, message });
    return String(this.events.length);
  }

  async getStreamIdForEventId(id) {
    return this.events[Number(id) - 1]?.stream;
  }

  async replayEventsAfter(last, { send }) {
    const { stream } = this.events[Number(last) - 1];
    for (let at = Number(last); at < this.events.length; at++) {
      const event = this.events[at];
      // A message without a method or an id only marks where a stream began.
      const isReal = 'method' in event.message || 'id' in event.message;
      if (event.stream === stream && isReal) await send(String(at + 1), event.message);
    }
    return stream;
  }
}

const modern = toNodeHandler(createMcpHandler(build, { legacy: 'reject' }));
const sessions = new Map();

async function legacy(request, response) {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) return known.handleRequest(request, response);
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    eventStore: new Kept(),
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await build().connect(transport);
  return transport.handleRequest(request, response);
}

const server = createServer((request, response) => {
  const isModern = request.headers['mcp-protocol-version'] === '2026-07-28';
  (isModern ? modern : legacy)(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
server.listen(0, '127.0.0.1', () => console.log(`listening 127.0.0.1:${server.address().port}`));
