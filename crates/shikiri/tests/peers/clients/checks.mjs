// What every official TypeScript client is made to do. How it is asked differs by version, so that
// is the version's own file; what it saw is printed, one line of JSON for each check, and judged by
// the test that started this.

import { readFileSync } from 'node:fs';

// Nothing here takes long; whoever waits longer waits for what will not come.
const PATIENCE_MS = 20_000;
const YES = { confirm: true };
const YES_WITH_NOTES = { confirm: true, notes: '窓側' };

// The only argument says, in JSON, which era to speak and where the servers are. The world has
// `connect(options)`, which is a client, connected.
export async function main(World) {
  const place = JSON.parse(process.argv[2]);
  const world = new World(place);
  await (place.program ? overStdio(world) : overHttp(world));
  // Whatever a failed check left open shall not keep this alive.
  process.exit(0);
}

async function tell(name, check) {
  const told = { check: name };
  try {
    told.saw = await within(PATIENCE_MS, check());
  } catch (error) {
    told.failed = error?.stack ?? String(error);
  }
  console.log(JSON.stringify(told));
}

function within(ms, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`nothing came within ${ms} ms`)), ms);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

async function overHttp(world) {
  const usual = { answer: ['accept', YES] };
  const on = (check, options) => () => connected(world, { ...usual, ...options }, check);
  for (const [name, check] of [
    ['open', on(opened)],
    ['tools', on(tools)],
    ['progress', on(progress)],
    ['quiet', on(quiet, { quiet: true })],
    ['accept', on(travel, { answer: ['accept', YES_WITH_NOTES] })],
    ['decline', on(travel, { answer: ['decline'] })],
    ['no_elicitation', on(travel, { bare: true })],
    ['sampling', on(research)],
    ['no_sampling', on(research, { bare: true })],
    ['resource', on(resource)],
    ['subscription', on((client) => subscription(client, 1))],
    ['structured', on(structured)],
    ['handed_over', on(handedOver, { to: 'hasty_url' })],
    ['prompts', on(prompts)],
    ['completion', on(completion)],
  ]) {
    await tell(name, check);
  }
  // These wait most of the time, so they wait together.
  const once = (client) => world.resumed(client, { steps: 16, step_ms: 100 });
  const twice = (client) => world.resumed(client, { steps: 24, step_ms: 100 });
  const changes = (client) => world.resubscribed(client);
  const slow = [
    tell('resume', on(once, { to: 'cut_once_url' })),
    tell('subscription_resume', on(changes, { to: 'cut_changes_url' })),
  ];
  if (world.era === 'legacy') {
    slow.push(tell('resume_twice', on(twice, { to: 'cut_twice_url' })));
    slow.push(tell('resume_by_token', () => resumedByToken(world)));
  }
  await Promise.all(slow);
}

async function overStdio(world) {
  const everything = async (client) => {
    const saw = { open: await opened(client), tools: await tools(client) };
    const checks = { progress, accept: travel, sampling: research };
    for (const [name, check] of Object.entries(checks)) {
      [client.asked, client.errors] = [[], []];
      saw[name] = await check(client);
    }
    return saw;
  };
  const options = { answer: ['accept', YES_WITH_NOTES] };
  await tell('stdio', () => connected(world, options, everything));
}

// The check on a client of its own.
async function connected(world, options, check) {
  const client = await world.connect(options);
  try {
    return await check(client);
  } finally {
    await client.close();
  }
}

async function opened(client) {
  const { protocol, server, capabilities } = client;
  const description = readFileSync(`node_modules/${client.package}/package.json`, 'utf8');
  return {
    client: JSON.parse(description).version,
    protocol,
    server,
    capabilities: Object.keys(capabilities).sort(),
  };
}

async function tools(client) {
  return (await client.tools()).map((tool) => tool.name).sort();
}

async function progress(client) {
  const told = [];
  const result = await client.call('long_running_agent', { steps: 8, step_ms: 20 }, told);
  return { ...ended(client, told, result), logs: client.logs };
}

async function quiet(client) {
  const result = await client.call('long_running_agent', { steps: 2, step_ms: 5 });
  return { logs: client.logs, result: result.structuredContent };
}

async function travel(client) {
  const told = [];
  const result = await client.call('travel_agent', { destination: '京都', step_ms: 5 }, told);
  return { ...ended(client, told, result), asked: client.asked };
}

async function research(client) {
  const result = await client.call('research_agent', { topic: '錠前', step_ms: 5 });
  return { asked: client.asked, result: result.structuredContent };
}

// A run in the background: its id and address.
async function started(client, steps, step_ms) {
  const input = { steps, step_ms };
  const result = await client.call('run_agent', { agent: 'long_running_agent', input });
  return { run: result.structuredContent.run_id, uri: runLink(result) };
}

async function resource(client) {
  const { run, uri } = await started(client, 3, 20);
  const ended = await client.call('run_wait', { run_id: run, max_seconds: 10 });
  const { events } = await client.read(`${uri}/events`);
  return {
    run,
    uri,
    waited: ended.structuredContent,
    read: await client.read(uri),
    events: events.map((event) => event.event),
    listed: (await client.resources()).some((listed) => listed.uri === uri),
    templates: (await client.templates()).sort(),
    missing: await failure(client.read('shikiri://runs/run_none')),
  };
}

// A run that will not change before it gets an answer: its address, and what answers it.
export async function waiting(client) {
  const started = { agent: 'travel_agent', input: { step_ms: 5 } };
  const result = await client.call('run_agent', started);
  const run_id = result.structuredContent.run_id;
  const asking = await client.call('run_wait', { run_id });
  const { question_id } = asking.structuredContent.questions[0];
  return { uri: runLink(result), answer: { run_id, question_id, answer: YES } };
}

// Reads again whenever it is told to, until the run has ended and it was told so often.
export async function subscription(client, leastChanges) {
  const { uri, answer } = await waiting(client);
  const read = [await client.read(uri)];
  const watch = await client.watch(uri);
  await client.call('run_answer', answer);
  while (read.at(-1).status !== 'completed' || read.length <= leastChanges) {
    expect(uri, await watch.changed());
    read.push(await client.read(uri));
  }
  await watch.end();
  return { first: read[0].status, changes: read.length - 1, last: read.at(-1) };
}

// The client's own validator, on the forms that an agent's answer has and on one it has not.
async function structured(client) {
  await client.tools();
  const { run } = await started(client, 1, 60_000);
  const status = await client.call('run_status', { run_id: run });
  await client.call('run_cancel', { run_id: run });
  const forms = {
    result: { steps: 3 },
    handed_over: status.structuredContent,
    neither: { steps: 'three' },
  };
  const told = {};
  for (const [name, form] of Object.entries(forms)) {
    told[name] = await failure(client.validate('long_running_agent', form));
  }
  return told;
}

// A server that answers with the run almost at once.
async function handedOver(client) {
  await client.tools();
  const result = await client.call('long_running_agent', { steps: 1, step_ms: 60_000 });
  const { run_id, status } = result.structuredContent;
  await client.call('run_cancel', { run_id });
  return { status, is_linked: runOf(result) === run_id, is_error: result.isError };
}

async function prompts(client) {
  return {
    names: (await client.prompts()).sort(),
    text: await client.prompt('travel_agent', { destination: '京都', step_ms: '5' }),
    unknown: await failure(client.prompt('travel_agent', { colour: 'red' })),
  };
}

async function completion(client) {
  const { run } = await started(client, 1, 1);
  const prompt = { type: 'ref/prompt', name: 'travel_agent' };
  const template = { type: 'ref/resource', uri: 'shikiri://runs/{id}' };
  return {
    run,
    prompt: await client.complete(prompt, 'destination', 'Pa'),
    resource: await client.complete(template, 'id', run.slice(0, -3)),
  };
}

// The client comes back by itself.
export async function resumed(client, args) {
  const told = [];
  return ended(client, told, await client.call('long_running_agent', args, told));
}

function ended({ errors }, progress, result) {
  return { progress, errors, run: runOf(result), result: result.structuredContent };
}

// One client leaves in the middle of a call; another takes it up where the first was.
async function resumedByToken(world) {
  const call = { name: 'long_running_agent', arguments: { steps: 4, step_ms: 600 } };
  const told = [];
  let token;
  const first = await world.connect({ bare: true });
  await new Promise((resolve) => {
    const onprogress = (progress) => told.push(shape(progress)) === 2 && resolve();
    const onresumptiontoken = (newer) => (token = newer);
    // It gets no answer any more.
    first.request(call, { onprogress, onresumptiontoken }).catch(() => {});
  });
  await first.leave();
  // Its progress has the first call's token, for which it has no callback.
  const second = await world.takeUp(first, (progress) => told.push(shape(progress)));
  const result = await second.request(call, { resumptionToken: token });
  await second.close();
  return ended(second, told, result);
}

export function shape({ progress, total, message }) {
  return [progress, total, message];
}

// What went wrong, or nothing.
export async function failure(work) {
  try {
    await work;
    return null;
  } catch (error) {
    return String(error?.message ?? error);
  }
}

// What is told one after the other, to be taken one after the other.
export class Queue {
  #items = [];
  #takers = [];

  put(item) {
    const taker = this.#takers.shift();
    if (taker) taker(item);
    else this.#items.push(item);
  }

  take() {
    if (this.#items.length > 0) return Promise.resolve(this.#items.shift());
    return new Promise((resolve) => this.#takers.push(resolve));
  }
}

export function expect(wanted, found) {
  if (wanted !== found) throw new Error(`expected ${wanted}, found ${found}`);
}

function runLink(result) {
  const links = result.content.filter((part) => part.type === 'resource_link');
  expect(1, links.length);
  return links[0].uri;
}

export function runOf(result) {
  return runLink(result).split('/').at(-1);
}
