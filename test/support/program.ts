// A program that a test runs as a separate process.

import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { once } from 'node:events';

/** Runs a program, and keeps its output. */
export function startProgram([name = '', ...args]: readonly string[], options: SpawnOptions) {
  const child: ChildProcess = spawn(name, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  const printed = { output: '', errors: '' };
  for (const [stream, to] of [[child.stdout, 'output'] as const, [child.stderr, 'errors'] as const]) {
    stream?.setEncoding('utf8').on('data', (chunk) => {
      printed[to] += chunk;
      child.emit('printed');
    });
  }
  let end: number | NodeJS.Signals | undefined;
  const ended = once(child, 'close').then(([code, signal]) => {
    end = code ?? signal;
    return [code, signal] as [code: number | null, signal: NodeJS.Signals | null];
  });
  return {
    child,
    printed,
    /** Resolves with its status, or the signal that ended it, once all of its output has arrived. */
    ended,
    /** Resolves with the match once its output has one. Rejects if the program ends before. */
    async until(what: RegExp): Promise<RegExpExecArray> {
      for (;;) {
        const match = what.exec(printed.output) ?? what.exec(printed.errors);
        if (match !== null) return match;
        if (end !== undefined) throw new Error(`exited with ${end}: ${printed.output}${printed.errors}`);
        await Promise.race([once(child, 'printed'), ended]);
      }
    },
    /** Sends it a signal unless it has ended. */
    end(signal?: NodeJS.Signals) {
      child.kill(signal);
      return ended;
    },
  };
}
