// Read before a server that can only be told a port: it gets a free one, on this machine alone,
// and it is said which.

import { Server } from 'node:net';

const { listen } = Server.prototype;

Server.prototype.listen = function (_, ...rest) {
  this.once('listening', () => console.log(`listening 127.0.0.1:${this.address().port}`));
  return listen.call(this, 0, '127.0.0.1', rest.find((one) => typeof one === 'function'));
};
