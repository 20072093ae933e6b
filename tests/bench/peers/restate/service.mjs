// A service whose handler does nothing: what is left is Restate itself.

import { createServer } from 'node:http2';

// The SDK asks for a newer Node than 20, for this alone.
Promise.withResolvers ??= function withResolvers() {
  let resolve;
  let reject;
  const promise = new Promise((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};

const restate = await import('@restatedev/restate-sdk');

const noop = restate.service({ name: 'noop', handlers: { run: async () => 'done' } });
createServer(restate.createEndpointHandler({ services: [noop] })).listen(Number(process.argv[2]), '127.0.0.1');
