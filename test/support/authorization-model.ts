// What is promised of signed authorizations (docs/settlement.md): only the chain releases one.

import type { ModelBlock, ModelTransfer } from './settlement-model.ts';

export interface ModelAuthorization {
  /** The place of its intent. */
  readonly intent: number;
  /** What it does once somebody has sent it. */
  readonly transfer: ModelTransfer;
  /** In whole seconds. */
  readonly validBefore: number;
  status: 'submitted' | 'landed' | 'released';
}

export class AuthorizationModel {
  readonly all: ModelAuthorization[] = [];

  sign(authorization: Omit<ModelAuthorization, 'status'>): void {
    this.all.push({ ...authorization, status: 'submitted' });
  }

  /** The intent has one that can still be used. */
  isOccupied(place: number): boolean {
    return this.all.some(({ intent, status }) => intent === place && status === 'submitted');
  }

  /** The chain as it was read; `confirmed` is the newest block with all confirmations. */
  read(chain: readonly ModelBlock[], confirmed: ModelBlock | undefined): void {
    for (const each of this.all) {
      const isThere = chain.some(({ transfers }) => transfers.includes(each.transfer));
      const isOver = confirmed !== undefined && confirmed.time >= each.validBefore;
      if (isThere) each.status = 'landed';
      else if (isOver) each.status = 'released';
      else if (each.status === 'landed') each.status = 'submitted';
    }
  }
}
