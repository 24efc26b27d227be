// The official TypeScript client of both eras.

import {
  Client,
  LOG_LEVEL_META_KEY,
  StreamableHTTPClientTransport,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Queue, failure, main, resumed, shape, subscription, waiting } from './checks.mjs';

const NAME = { name: 'ts-new', version: '1' };

class NewClient {
  package = '@modelcontextprotocol/client';
  logs = [];
  asked = [];
  errors = [];
  updated = new Queue();

  constructor(era, { answer, bare, quiet }) {
    this.era = era;
    this.isQuiet = quiet;
    const capabilities = bare ? {} : { elicitation: {}, sampling: {} };
    const versionNegotiation = { mode: era === 'modern' ? 'auto' : 'legacy' };
    this.raw = new Client(NAME, { capabilities, versionNegotiation });
    this.raw.onerror = (error) => this.errors.push(error.message);
    this.raw.setNotificationHandler('notifications/message', ({ params }) => {
      this.logs.push(params);
    });
    this.raw.setNotificationHandler('notifications/resources/updated', ({ params }) => {
      this.updated.put(params.uri);
    });
    if (bare) return;
    this.raw.setRequestHandler('elicitation/create', ({ params }) => {
      this.asked.push(params);
      const [action, content] = answer;
      return { action, content };
    });
    this.raw.setRequestHandler('sampling/createMessage', ({ params }) => {
      this.asked.push(params);
      const content = { type: 'text', text: '要するに鍵' };
      return { role: 'assistant', content, model: 'test' };
    });
  }

  async connect(transport) {
    this.transport = transport;
    await this.raw.connect(transport);
    this.protocol = this.raw.getNegotiatedProtocolVersion();
    this.server = this.raw.getServerVersion()?.name;
    this.capabilities = this.raw.getServerCapabilities();
  }

  async close() {
    await this.transport.terminateSession?.();
    await this.raw.close();
  }

  // Without ending the session.
  leave() {
    return this.raw.close();
  }

  async tools() {
    return (await this.raw.listTools()).tools;
  }

  call(name, args, told, options) {
    const onprogress = told && ((progress) => told.push(shape(progress)));
    // In the newer era a client is told nothing that it did not ask for.
    const asks = this.era === 'modern' && !this.isQuiet;
    const _meta = asks ? { [LOG_LEVEL_META_KEY]: 'info' } : undefined;
    return this.raw.callTool({ name, arguments: args, _meta }, { onprogress, ...options });
  }

  request(params, options) {
    return this.raw.callTool(params, options);
  }

  async read(uri) {
    return JSON.parse((await this.raw.readResource({ uri })).contents[0].text);
  }

  async resources() {
    return (await this.raw.listResources()).resources;
  }

  async templates() {
    const { resourceTemplates } = await this.raw.listResourceTemplates();
    return resourceTemplates.map((template) => template.uriTemplate);
  }

  async watch(uri) {
    const changed = () => this.updated.take();
    if (this.era === 'modern') {
      const listening = await this.raw.listen({ resourceSubscriptions: [uri] });
      return { changed, closed: listening.closed, end: () => listening.close() };
    }
    await this.raw.subscribeResource({ uri });
    return { changed, end: () => this.raw.unsubscribeResource({ uri }) };
  }

  async validate(tool, form) {
    // 2.4.0 has no public way to do what it does to every answer.
    const definition = (await this.raw.listTools()).tools.find((known) => known.name === tool);
    const checked = this.raw._compileOutputValidator(definition);
    if (!checked.ok) throw new Error(checked.compileError);
    const { valid, errorMessage } = checked.validator(form);
    if (!valid) throw new Error(errorMessage);
  }

  async prompts() {
    return (await this.raw.listPrompts()).prompts.map((prompt) => prompt.name);
  }

  async prompt(name, args) {
    return (await this.raw.getPrompt({ name, arguments: args })).messages[0].content.text;
  }

  async complete(ref, name, value) {
    return (await this.raw.complete({ ref, argument: { name, value } })).completion.values;
  }
}

class World {
  constructor(place) {
    this.place = place;
    this.era = place.era;
  }

  async connect(options) {
    const client = new NewClient(this.era, options);
    await client.connect(this.place.program ? this.stdio() : this.http(options.to));
    if (options.quiet && this.era === 'legacy') await client.raw.setLoggingLevel('warning');
    return client;
  }

  stdio() {
    const { program, folder } = this.place;
    const env = { CLAUDE_PROJECT_DIR: folder, HOME: folder };
    return new StdioClientTransport({ command: program, args: ['mcp'], env });
  }

  http(to = 'url', options = {}) {
    const key = to === 'hasty_url' ? this.place.hasty_key : this.place.key;
    const requestInit = { headers: { Authorization: `Bearer ${key}` } };
    return new StreamableHTTPClientTransport(new URL(this.place[to]), { requestInit, ...options });
  }

  // A client in the first one's session.
  async takeUp(first, onProgress) {
    const { sessionId, protocolVersion } = first.transport;
    const second = new NewClient(this.era, { bare: true });
    second.raw.setNotificationHandler('notifications/progress', ({ params }) => onProgress(params));
    await second.connect(this.http('url', { sessionId, protocolVersion }));
    return second;
  }

  // In the older era the client comes back by itself; in the newer the call is lost to it, and
  // its run is stopped.
  async resumed(client, args) {
    if (this.era === 'legacy') return resumed(client, args);
    const told = [];
    // 2.4.0 does not notice that a call's stream has ended: only its timeout ends the call.
    const call = client.call('long_running_agent', args, told, { timeout: 4_000 });
    const lost = await failure(call);
    const listed = await client.resources();
    const newest = listed.find((run) => run.title.includes('long_running_agent'));
    const waited = await client.call('run_wait', { run_id: newest.name });
    return { lost, progress: told, status: waited.structuredContent };
  }

  // In the newer era nothing is told again: the client listens anew, and looks.
  async resubscribed(client) {
    if (this.era === 'legacy') return subscription(client, 2);
    const { uri, answer } = await waiting(client);
    const first = await client.watch(uri);
    await client.call('run_answer', answer);
    const lost = await first.closed;
    const again = await client.watch(uri);
    let read = await client.read(uri);
    while (read.status !== 'completed') {
      await again.changed();
      read = await client.read(uri);
    }
    await again.end();
    return { lost, last: read };
  }
}

await main(World);
