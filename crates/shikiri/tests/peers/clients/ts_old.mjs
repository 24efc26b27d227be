// The official TypeScript client of the legacy era.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CallToolResultSchema,
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  LoggingMessageNotificationSchema,
  ProgressNotificationSchema,
  ResourceUpdatedNotificationSchema,
} from '@modelcontextprotocol/sdk/types.js';
import { Queue, main, resumed, shape, subscription } from './checks.mjs';

const NAME = { name: 'ts-old', version: '1' };

class OldClient {
  package = '@modelcontextprotocol/sdk';
  logs = [];
  asked = [];
  errors = [];
  updated = new Queue();

  constructor({ answer, bare }) {
    const capabilities = bare ? {} : { elicitation: {}, sampling: {} };
    this.raw = new Client(NAME, { capabilities });
    this.raw.onerror = (error) => this.errors.push(error.message);
    this.raw.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => {
      this.logs.push(params);
    });
    this.raw.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => {
      this.updated.put(params.uri);
    });
    if (bare) return;
    this.raw.setRequestHandler(ElicitRequestSchema, ({ params }) => {
      this.asked.push(params);
      const [action, content] = answer;
      return { action, content };
    });
    this.raw.setRequestHandler(CreateMessageRequestSchema, ({ params }) => {
      this.asked.push(params);
      const content = { type: 'text', text: '要するに鍵' };
      return { role: 'assistant', content, model: 'test' };
    });
  }

  async connect(transport) {
    this.transport = transport;
    // 1.32.2 tells it to transports that want to know, and to nobody else.
    transport.setProtocolVersion ??= (version) => (transport.protocolVersion = version);
    await this.raw.connect(transport);
    this.protocol = transport.protocolVersion;
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

  call(name, args, told) {
    const onprogress = told && ((progress) => told.push(shape(progress)));
    return this.raw.callTool({ name, arguments: args }, CallToolResultSchema, { onprogress });
  }

  request(params, options) {
    return this.raw.request({ method: 'tools/call', params }, CallToolResultSchema, options);
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
    await this.raw.subscribeResource({ uri });
    return {
      changed: () => this.updated.take(),
      end: () => this.raw.unsubscribeResource({ uri }),
    };
  }

  async validate(tool, form) {
    // 1.32.2 has no public way to do what it does to every answer.
    const { valid, errorMessage } = this.raw.getToolOutputValidator(tool)(form);
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
    if (place.era !== 'legacy') throw new Error('this client knows no other era');
    this.place = place;
    this.era = place.era;
  }

  async connect(options) {
    const client = new OldClient(options);
    await client.connect(this.place.program ? this.stdio() : this.http(options.to));
    if (options.quiet) await client.raw.setLoggingLevel('warning');
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
    const transport = this.http('url', { sessionId: first.transport.sessionId });
    transport.setProtocolVersion(first.protocol);
    const second = new OldClient({ bare: true });
    second.raw.setNotificationHandler(ProgressNotificationSchema, ({ params }) => {
      onProgress(params);
    });
    await second.connect(transport);
    return second;
  }

  resumed(client, args) {
    return resumed(client, args);
  }

  resubscribed(client) {
    return subscription(client, 2);
  }
}

await main(World);
