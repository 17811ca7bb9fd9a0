// Shell completion of the command line, in real shells.

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { useFolder } from '../support/folder.ts';
import { succeeds } from '../support/succeeds.ts';
import { bareEnvironment } from '../support/test-environment.ts';

const run = promisify(execFile);
const home = await useFolder();

/** Runs a script in a shell with the command `admin`, defined as in docs/operations.md. */
async function shell(program: string, ...args: string[]): Promise<string[]> {
  const env = { ...bareEnvironment(), HOME: home, NODE: process.execPath, TERM: 'dumb' };
  return (await run(program, args, { env })).stdout.trim().split('\n');
}

const bashCompletion = '/usr/share/bash-completion/bash_completion';
const subcommands = ['create', 'help', 'list', 'revoke', 'rotate'];

const hasBash = succeeds('test', '-f', bashCompletion);
if (!hasBash) console.log('skipped: bash (apt-get install bash-completion)');
test.runIf(hasBash)('bash', async () => {
  const complete = (line: string) => `
    source ${bashCompletion}
    admin() { "$NODE" src/admin.ts "$@"; }
    source <(admin complete bash)
    COMP_LINE='${line}' COMP_POINT=${line.length} COMP_WORDS=(${line}${line.endsWith(' ') ? " ''" : ''})
    COMP_CWORD=$(( \${#COMP_WORDS[@]} - 1 ))
    $(complete -p admin | sed 's/.*-F \\([^ ]*\\).*/\\1/')
    printf '%s\\n' "\${COMPREPLY[@]}"`;
  expect((await shell('bash', '-c', complete('admin key '))).sort()).toEqual(subcommands);
  expect(await shell('bash', '-c', complete('admin key create --mo'))).toEqual(['--mode']);
});

const hasFish = succeeds('fish', '--version');
if (!hasFish) console.log('skipped: fish (apt-get install fish)');
test.runIf(hasFish)('fish', async () => {
  const complete = (line: string) => `
    function admin; $NODE src/admin.ts $argv; end
    admin complete fish | source
    complete --do-complete '${line}'`;
  const words = async (line: string) =>
    (await shell('fish', '-c', complete(line))).map((found) => found.split('\t')[0]);
  expect(await words('admin key ')).toEqual(subcommands);
  expect(await words('admin key create --mode ')).toEqual(['mainnet', 'testnet']);
});

const hasZsh = succeeds('zsh', '--version');
if (!hasZsh) console.log('skipped: zsh (apt-get install zsh)');
test.runIf(hasZsh)('zsh', async () => {
  // A terminal of zsh, in which Tab is pressed.
  const complete = `
    zmodload zsh/zpty
    zpty -b terminal "zsh -f -i"
    say() { zpty -w terminal "$1"; }
    say 'PS1=; autoload -Uz compinit; compinit -u; zstyle ":completion:*" list-prompt ""; LISTMAX=0'
    say 'admin() { "$NODE" src/admin.ts "$@" }'
    say 'source <(admin complete zsh)'
    say 'echo prepared-$((1 + 1))'
    # With this sequence the prompt is there; what is typed before it is drawn twice.
    while zpty -r terminal line '*prepared-2*2004h*'; do break; done
    zpty -n -w terminal $'admin key ro\\t'
    while zpty -r terminal line '*rotate*'; do break; done
    print -r -- "$line"`;
  expect((await shell('zsh', '-fc', complete)).join('\n')).toMatch(/admin key rotate/);
});

test('the program lists the shells that it supports', async () => {
  const failed = await run(process.execPath, ['src/admin.ts', 'complete', 'tcsh']).catch((error) => error);
  expect([failed.code, failed.stderr]).toEqual([2, expect.stringMatching(/choices are zsh, bash, fish/)]);
});
