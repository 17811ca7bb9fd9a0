import { type DestinationStream, type Logger, pino } from 'pino';
import type { Config } from '../config/config.ts';
import { visibleLines } from '../contract/visible-text.ts';

/** Returns a JSON logger, one object per line. What a terminal would interpret or hide is escaped. */
export function createLogger(level: Config['logLevel'], destination: DestinationStream): Logger {
  return pino(
    {
      level,
      base: null,
      messageKey: 'message',
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: serializeError },
      hooks: { streamWrite: visibleLines },
    },
    destination,
  );
}

/** Maximum bytes kept for a slow reader: a few seconds of log at full load. */
const maxUnwrittenBytes = 4 * 1024 * 1024;

/**
 * Returns a logger to standard output: JSON, or readable lines on a terminal. JSON is written in blocks, with
 * a delay of up to a tenth of a second, and flushed at exit: one write per line would cost a third of the
 * throughput. Only a killed process loses its last lines. If nobody reads standard output, up to 4 MiB are
 * kept and further lines are dropped, so that a stuck reader neither blocks the service nor fills its memory.
 * `droppedLines` returns their number; it is also logged when writing resumes.
 */
export async function logToStandardOutput(level: Config['logLevel'], isTerminal: boolean) {
  if (isTerminal) {
    const { default: pretty } = await import('pino-pretty');
    const readable = pretty({
      messageKey: 'message',
      translateTime: 'SYS:HH:MM:ss.l',
      singleLine: true,
      sync: true,
    });
    const destination = { write: (line: string) => void readable.write(withEscapesKept(line)) };
    return { logger: createLogger(level, destination), droppedLines: () => 0 };
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
  // For example, the disk is full. The lines are kept and written again later.
  output.on('error', () => {
    isFailing = true;
  });
  // No flushSync: pino would call it for each fatal line, and it waits for a reader that may never read.
  const logger = createLogger(level, {
    write: (line) => void output.write(line),
    flush: (done: (error?: Error) => void) => output.flush(done),
  } as DestinationStream);
  output.on('drain', () => {
    isFailing = false;
    if (dropped === announced) return;
    const lines = dropped - announced;
    announced = dropped;
    logger.warn({ dropped: lines }, 'log lines were dropped: standard output is not read fast enough');
  });
  return { logger, droppedLines: () => dropped };
}

/**
 * Re-escapes the strings in a line of JSON, so that a terminal does not interpret control characters in them.
 * Only line breaks and tabs, as in stack traces, are printed.
 */
function withEscapesKept(line: string): string {
  return line.replace(/\\./g, (text) => (/[bfru]/.test(text) ? `\\${text}` : text));
}

/** Returns what may be logged of an error. Not PostgreSQL's `detail`: it quotes rows, metadata and keys. */
function serializeError(error: unknown): unknown {
  if (!(error instanceof Error)) return { message: String(error) };
  const { name, message, stack, cause } = error;
  const { code, constraint, previous } = error as Error & Record<string, unknown>;
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
