// `admin export payments`: writes the export to standard output.

import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type ExportOptions, exportPayments } from '../console/export-payments.ts';
import { findMerchant } from '../merchants/administration.ts';
import type { Database } from './open-database.ts';

/** Writes the export, and its progress to a terminal. Throws AdministrationError for an unknown merchant. */
export async function writeExport(
  { orm: { em } }: Database,
  { merchant, ...options }: Omit<ExportOptions, 'merchantId'> & { merchant: string },
): Promise<void> {
  const isShown = process.stderr.isTTY && !process.stdout.isTTY;
  const texts = exportPayments(em, {
    ...options,
    merchantId: await findMerchant(em, merchant),
    ...(isShown && { onProgress: (done) => void process.stderr.write(`\r${barOf(done)}`) }),
  });
  await pipeline(Readable.from(texts), process.stdout, { end: false }).catch((error) => {
    // The reader has closed the pipe.
    if (error.code !== 'EPIPE') throw error;
  });
  if (isShown) process.stderr.write(`\r${barOf(1)}\n`);
}

const barWidth = 40;

/** Returns a progress bar. `done` is from 0 to 1. */
export function barOf(done: number): string {
  const full = Math.round(barWidth * done);
  return `[${'#'.repeat(full)}${'.'.repeat(barWidth - full)}] ${Math.round(100 * done)} %`;
}
