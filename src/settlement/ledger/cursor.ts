// Stores how far a chain has been read, and the headers of its blocks.

import type { QueryResultRow } from 'pg';
import type { Hash } from 'viem';
import { preparedStatement, type RunPrepared } from '../../database/prepared.ts';
import type { Header } from '../node-answers.ts';
import type { LedgerContext } from './context.ts';
import { LeaseLost } from './lease.ts';
import { bytes, hashOf } from './values.ts';

export type Tip = Pick<Header, 'number' | 'hash' | 'time'>;

/** How far a chain has been read and verified. */
export type Progress = {
  genesisHash: Hash;
  cursor: Tip;
  verifiedNumber: number;
  /** The newest block that was read, and final for the reader then. */
  finalNumber: number;
};

export function createCursor({ run, lease: { holding }, settings }: LedgerContext) {
  const { chainId, mode, chain } = settings;
  return {
    /** Undefined if the chain is not watched. */
    async progress(): Promise<Progress | undefined> {
      const [row] = (await run(findProgress, [chainId])).rows;
      if (row === undefined) return undefined;
      const { genesis_hash: genesis, second_number: verified, finalized_number: final } = row;
      const cursor = tipOf(row);
      const finalNumber = Math.min(Number(final), cursor.number);
      return { genesisHash: hashOf(genesis), cursor, verifiedNumber: Number(verified), finalNumber };
    },
    /** Starts watching the chain after this block. Does nothing if it is watched already. */
    async begin(genesisHash: Hash, from: Header): Promise<void> {
      await run(insertChain, [
        chainId,
        mode,
        chain,
        bytes(genesisHash),
        from.number,
        bytes(from.hash),
        from.time.toISOString(),
      ]);
    },
    /** Blocks up to this one whose hash is known, newest first: those with a stored header or a payment. */
    async knownBlocks(upTo: number, limit: number): Promise<Tip[]> {
      const { rows } = await run(findKnownBlocks, [chainId, upTo, limit]);
      return rows.map(tipOf);
    },
    /** Doubtful blocks of the last day, newest first. */
    async doubtful(limit: number): Promise<{ number: number; hash: Hash }[]> {
      const { rows } = await run(findDoubtful, [chainId, limit]);
      return rows.map((row) => ({ number: Number(row.number), hash: hashOf(row.hash) }));
    },
    /** Marks the block as no longer doubtful. Throws LeaseLost. */
    async trust(lease: bigint, number: number): Promise<void> {
      await holding(lease, (inside) => inside(clearDoubt, [chainId, number]));
    },
    /** Marks all up to this block as verified; false if `cursor` has been reverted. Throws LeaseLost. */
    async noteVerified(lease: bigint, number: number, cursor: Tip): Promise<boolean> {
      const { rowCount } = await holding(lease, (inside) =>
        inside(noteVerifiedBlock, [chainId, number, cursor.number, bytes(cursor.hash)]),
      );
      return rowCount === 1;
    },
    /** Deletes headers below this number, except one a day. Throws LeaseLost. */
    async forgetHeaders(lease: bigint, below: number): Promise<void> {
      await holding(lease, (inside) => inside(deleteHeaders, [chainId, below]));
    },
  };
}

const tipOf = ({ number, hash, time }: QueryResultRow): Tip => ({
  number: Number(number),
  hash: hashOf(hash),
  time: new Date(time),
});

/**
 * Moves the cursor from `after` to the block, and stores its header and those known of the blocks `between`.
 * Throws LeaseLost if the cursor is elsewhere.
 */
export async function moveCursor(
  inside: RunPrepared,
  chainId: number,
  block: Tip & { isDoubtful?: boolean; between?: readonly Tip[] },
  after: Hash,
): Promise<void> {
  const { between = [] } = block;
  const { rowCount } = await inside(advance, [
    chainId,
    block.number,
    bytes(block.hash),
    block.time.toISOString(),
    bytes(after),
    block.isDoubtful ?? false,
    between.map(({ number }) => number),
    between.map(({ hash }) => bytes(hash)),
    between.map(({ time }) => time.toISOString()),
  ]);
  if (rowCount !== 1 + between.length) throw new LeaseLost();
}

/** Moves the cursor back to an ancestor, or to the block 0 of a restarted chain. */
export async function moveCursorBack(inside: RunPrepared, chainId: number, to: Tip): Promise<void> {
  await inside(moveBack, [chainId, to.number, bytes(to.hash), to.time.toISOString()]);
}

const findProgress = preparedStatement(
  'find_watched_chain',
  `select genesis_hash, cursor_number as number, cursor_hash as hash, cursor_time as time, second_number,
          finalized_number
     from watched_chains where chain_id = $1`,
);
const insertChain = preparedStatement(
  'insert_watched_chain',
  `with chain as (
     insert into watched_chains (chain_id, mode, chain, genesis_hash, cursor_number, cursor_hash, cursor_time, second_number,
                                 head_number, finalized_number, seen_at, lease_number, created_at)
     values ($1, $2, $3, $4, $5, $6, $7, $5, $5, $5, now(), 0, now())
     on conflict do nothing
     returning chain_id
   )
   insert into block_headers (chain_id, number, hash, time, is_checkpoint)
   select chain_id, $5, $6, $7, true from chain`,
);
const advance = preparedStatement(
  'advance_chain',
  `with moved as (
     update watched_chains set cursor_number = $2, cursor_hash = $3, cursor_time = $4
      where chain_id = $1 and cursor_hash = $5
     returning chain_id
   )
   insert into block_headers (chain_id, number, hash, time, is_doubtful)
   select chain_id, $2, $3, $4, $6 from moved
   union all
   select chain_id, b.number, b.hash, b.time, false
     from moved, unnest($7::bigint[], $8::bytea[], $9::timestamptz[]) as b (number, hash, time)
   returning chain_id`,
);

/** A transfer stands in only for a missing header: its own block may have replaced the stored one. */
const findKnownBlocks = preparedStatement(
  'find_known_blocks',
  `(select number, hash, time from block_headers where chain_id = $1 and number <= $2 order by number desc limit $3)
   union
   (select t.block_number, t.block_hash, t.block_time from transfers t
     where t.chain_id = $1 and t.block_number <= $2 and t.state <> 'reorged'
       and not exists (select from block_headers h where h.chain_id = t.chain_id and h.number = t.block_number)
     order by t.block_number desc limit $3)
   order by number desc limit $3`,
);
/** The ancestor may have no header: a transfer stands in for it, or the watch began at a later block. */
const moveBack = preparedStatement(
  'move_chain_back',
  `with removed as (
     delete from block_headers where chain_id = $1 and number > $2
   ), kept as (
     insert into block_headers (chain_id, number, hash, time, is_checkpoint) values ($1, $2, $3, $4, true)
     on conflict (chain_id, number) do update set hash = excluded.hash, time = excluded.time
   )
   update watched_chains
      set genesis_hash = case when $2 = 0 then $3 else genesis_hash end, cursor_number = $2, cursor_hash = $3,
          cursor_time = $4, second_number = least(second_number, $2)
    where chain_id = $1`,
);
const findDoubtful = preparedStatement(
  'find_doubtful_blocks',
  `select number, hash from block_headers
    where chain_id = $1 and is_doubtful and time > now() - interval '1 day' order by number desc limit $2`,
);
const clearDoubt = preparedStatement(
  'clear_doubt',
  'update block_headers set is_doubtful = false where chain_id = $1 and number = $2',
);
const noteVerifiedBlock = preparedStatement(
  'note_verified_block',
  `update watched_chains set second_number = greatest(second_number, $2)
    where chain_id = $1 and cursor_number >= $3
      and not exists (select from block_headers where chain_id = $1 and number = $3 and hash <> $4)`,
);
const deleteHeaders = preparedStatement(
  'delete_block_headers',
  `with old as (
     select number, row_number() over (partition by date_trunc('day', time, 'UTC') order by number) as place
       from block_headers
      where chain_id = $1 and number < $2 and not is_checkpoint
        and not (is_doubtful and time > now() - interval '1 day')
   ), first_of_day as (
     update block_headers h set is_checkpoint = true from old
      where h.chain_id = $1 and h.number = old.number and old.place = 1
        and not exists (select from block_headers o where o.chain_id = $1 and o.is_checkpoint
                           and date_trunc('day', o.time, 'UTC') = date_trunc('day', h.time, 'UTC'))
     returning h.number
   )
   delete from block_headers h using old
    where h.chain_id = $1 and h.number = old.number and h.number not in (select number from first_of_day)`,
);
