// The answer of `GET /v1/checkout`, as far as the page uses it. Amounts are in the token's smallest unit.

export type Status = 'requires_payment' | 'processing' | 'succeeded' | 'expired' | 'canceled';

export interface Payment {
  transaction_hash: string;
  block_time: string;
  from_address: string;
  amount_units: number;
  confirmations: number;
  status: 'pending' | 'confirmed' | 'reorged';
  labels?: readonly string[];
  counts?: boolean;
}

export interface Checkout {
  id: string;
  status: Status;
  mode: 'testnet' | 'mainnet';
  merchant_name: string;
  lane: 'sdk' | 'manual';
  chain: 'base' | 'polygon';
  chain_id: number;
  confirmations_required: number;
  amount_units: number;
  decimals: number;
  token_symbol: string;
  token_address: `0x${string}`;
  expected_wallet: `0x${string}`;
  expires_at: string;
  amount_received_units: number;
  payments?: readonly Payment[];
  labels?: readonly string[];
  allowed_origins: readonly string[];
}

/** What is still missing, in the token's smallest unit. */
export function missingUnits({ amount_units, amount_received_units }: Checkout): number {
  return Math.max(0, amount_units - amount_received_units);
}

/** The confirmations of the payment that has the fewest, of those that count. */
export function fewestConfirmations({ payments = [], confirmations_required }: Checkout): number {
  const confirmations = payments.filter(({ counts }) => counts).map((payment) => payment.confirmations);
  return Math.min(confirmations_required, ...confirmations);
}
