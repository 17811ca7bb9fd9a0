// Injects faults into an unchanged program, by a module to preload (`node --import`) and the environment.

const source = `
  import { ServerResponse } from 'node:http';
  import { StatementSync } from 'node:sqlite';
  const { KILL_AT, THROW_ONCE_AT } = process.env;
  let point = 0;
  let hasBegun = false;
  let mayThrow = true;
  const pass = () => {
    if (hasBegun && ++point === Number(KILL_AT)) process.kill(process.pid, 'SIGKILL');
  };
  const wrap = (owner, name, before = () => {}) => {
    const original = owner[name];
    owner[name] = function (...args) {
      before(...args);
      pass();
      const result = original.apply(this, args);
      pass();
      return result;
    };
  };
  wrap(StatementSync.prototype, 'get');
  wrap(StatementSync.prototype, 'run', () => {
    hasBegun = true;
  });
  for (const name of ['writeHead', 'end']) wrap(ServerResponse.prototype, name);
  wrap(console, 'log', (text) => {
    if (text !== THROW_ONCE_AT || !mayThrow) return;
    mayThrow = false;
    throw new Error('thrown at ' + text);
  });`;

/**
 * Kills the process (SIGKILL) at the `KILL_AT`th point from its first database change on: before and after
 * each SQLite statement, answering call and printed line. Lets the line `THROW_ONCE_AT` throw the first time.
 */
export const faultsFromOutside = `data:text/javascript,${encodeURIComponent(source)}`;
