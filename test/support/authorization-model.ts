// A model of the promises about signed authorizations (docs/settlement.md): only the chain releases one.

import type { ModelBlock, ModelTransfer } from './settlement-model.ts';

export interface ModelAuthorization {
  /** The index of its intent. */
  readonly intent: number;
  /** The transfer that it makes once somebody has sent it. */
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

  /** True if the intent has an authorization that can still be used. */
  isOccupied(place: number): boolean {
    return this.all.some(({ intent, status }) => intent === place && status === 'submitted');
  }

  /** Reads the chain as it is. `confirmed` is the newest block with all confirmations. */
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
