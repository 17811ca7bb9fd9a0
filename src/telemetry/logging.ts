import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogLevel } from '../config/config.ts';

/** A logger that writes JSON, one object a line. */
export function createLogger(level: LogLevel, destination: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      messageKey: 'message',
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: serializeError },
    },
    destination,
  );
}

/** Where the log goes. */
export interface LogOutput {
  destination: DestinationStream;
  /** Lines that were dropped so far because what reads the log is slower than it is written. */
  droppedLines(): number;
  /** Calls back once lines are written again, with how many were dropped since it did so last. */
  onRecovery(announce: (droppedLines: number) => void): void;
}

/** Bytes of the log that wait to be taken: some seconds of it at full load. */
const maxUnwrittenBytes = 4 * 1024 * 1024;

/**
 * Standard output: JSON as it is, or readable lines where a person watches. JSON is written in blocks, a tenth of
 * a second late at the most, and whole when the process exits: a write for every line would cost a third of the
 * service's throughput. Only a process that is killed takes its last lines with it. If nobody reads standard output,
 * 4 MiB of lines are kept and further ones dropped: a stuck reader neither stops the service nor fills its memory.
 */
export async function standardOutput(isTerminal: boolean): Promise<LogOutput> {
  if (isTerminal) {
    const { default: pretty } = await import('pino-pretty');
    const destination = pretty({
      messageKey: 'message',
      translateTime: 'SYS:HH:MM:ss.l',
      singleLine: true,
      sync: true,
    });
    return { destination, droppedLines: () => 0, onRecovery: () => {} };
  }
  let isFailing = false;
  // Before pino's own listener, which would try to write the last lines until it succeeds, however long that takes.
  process.once('exit', () => {
    if (isFailing) output.destroy();
  });
  const output = pino.destination({
    dest: 1,
    sync: false,
    minLength: 8 * 1024,
    periodicFlush: 100,
    maxLength: maxUnwrittenBytes,
  });
  let dropped = 0;
  let announced = 0;
  output.on('drop', () => dropped++);
  // A full disk under the log, for instance: the lines are kept, and the next one tries again.
  output.on('error', () => {
    isFailing = true;
  });
  output.on('drain', () => {
    isFailing = false;
  });
  return {
    // Without flushSync, which pino would call for each fatal line: it waits for a reader that may never read.
    destination: {
      write: (line) => void output.write(line),
      flush: (done: (error?: Error) => void) => output.flush(done),
    } as DestinationStream,
    droppedLines: () => dropped,
    onRecovery(announce) {
      output.on('drain', () => {
        if (dropped === announced) return;
        const lines = dropped - announced;
        announced = dropped;
        announce(lines);
      });
    },
  };
}

/**
 * What an error says of itself. Its other properties stay out: PostgreSQL's `detail` quotes whole rows, metadata
 * and idempotency keys included.
 */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint, previous } = error as {
    code?: unknown;
    constraint?: unknown;
    previous?: unknown;
  };
  const inner = cause ?? previous;
  return {
    type: name,
    message,
    code,
    constraint,
    stack,
    ...(inner === undefined || inner === error ? {} : { cause: serializeError(inner) }),
  };
}
