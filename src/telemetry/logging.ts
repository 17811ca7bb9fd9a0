import { type DestinationStream, type Logger, pino } from 'pino';
import type { LogLevel } from '../config/config.ts';
import { visibleLines } from '../contract/visible-text.ts';

/** Returns a logger that writes JSON, one object per line. */
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
  /** Lines dropped so far because the log is read more slowly than it is written. */
  droppedLines(): number;
  /** Calls `announce` when lines are written again, with the number dropped since its last call. */
  onRecovery(announce: (droppedLines: number) => void): void;
}

/** Most bytes of the log kept for a slow reader: some seconds of it at full load. */
const maxUnwrittenBytes = 4 * 1024 * 1024;

/**
 * Returns standard output: JSON, or readable lines on a terminal. JSON is written in blocks, at most a tenth of a
 * second late, and flushed when the process exits: one write per line would cost a third of the service's throughput.
 * Only a killed process loses its last lines. If nobody reads standard output, 4 MiB of lines are kept and further ones
 * are dropped: a stuck reader neither stops the service nor fills its memory.
 */
export async function standardOutput(isTerminal: boolean): Promise<LogOutput> {
  if (isTerminal) {
    const { default: pretty } = await import('pino-pretty');
    const readable = pretty({
      messageKey: 'message',
      translateTime: 'SYS:HH:MM:ss.l',
      singleLine: true,
      sync: true,
    });
    const destination = { write: (line: string) => void readable.write(withEscapesKept(line)) };
    return { destination, droppedLines: () => 0, onRecovery: () => {} };
  }
  let isFailing = false;
  // Registered before pino's own listener, which would retry the last lines until it succeeds.
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
  // The disk may be full, for example. The lines are kept, and the next write tries again.
  output.on('error', () => {
    isFailing = true;
  });
  output.on('drain', () => {
    isFailing = false;
  });
  return {
    // No flushSync: pino would call it for each fatal line, and it waits for a reader that may never read.
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
 * Returns a line of JSON whose texts still hold their escapes once they are parsed, so that a terminal obeys nothing in
 * them. Only line breaks and tabs, which stack traces have, become what they stand for.
 */
function withEscapesKept(line: string): string {
  return visibleLines(line).replace(/\\./g, (text) => (/[bfru]/.test(text) ? `\\${text}` : text));
}

/**
 * Returns the properties of an error that are logged. The others are left out: PostgreSQL's `detail` quotes whole rows,
 * including metadata and idempotency keys.
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
