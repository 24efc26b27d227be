// The TypeScript peer: both eras on one port, each wired as its documentation says. It says where
// it listens and ends when its input is closed.

import { randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import { NodeStreamableHTTPServerTransport, toNodeHandler } from '@modelcontextprotocol/node';
import { createMcpHandler, McpServer } from '@modelcontextprotocol/server';
import * as z from 'zod';

const echoInput = z.object({ text: z.string() });
const burstInput = z.object({ count: z.number() });

function build() {
  const server = new McpServer({ name: 'peer', version: '1.0.0' });
  server.registerTool('echo', { inputSchema: echoInput }, async ({ text }) => ({
    content: [{ type: 'text', text }],
  }));
  server.registerTool('burst', { inputSchema: burstInput }, async ({ count }, context) => {
    const progressToken = context.mcpReq._meta?.progressToken;
    for (let progress = 1; progress <= count; progress++) {
      const params = { progressToken, progress, total: count, message: `event ${progress}` };
      await context.mcpReq.notify({ method: 'notifications/progress', params });
    }
    return { content: [{ type: 'text', text: 'done' }] };
  });
  return server;
}

const modern = toNodeHandler(createMcpHandler(build, { legacy: 'reject' }));

const sessions = new Map();

async function legacy(request, response) {
  const known = sessions.get(request.headers['mcp-session-id']);
  if (known) {
    return known.handleRequest(request, response);
  }
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => sessions.set(id, transport),
  });
  await build().connect(transport);
  return transport.handleRequest(request, response);
}

const server = createServer((request, response) => {
  // By the header alone: telling the eras apart should cost this peer nothing.
  const serve = request.headers['mcp-protocol-version'] === '2026-07-28' ? modern : legacy;
  serve(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});

server.listen(0, '127.0.0.1', () => console.log(`listening 127.0.0.1:${server.address().port}`));
process.stdin.on('end', () => process.exit(0)).resume();
