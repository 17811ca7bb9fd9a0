// Text that a terminal or a browser shows as it is written. A description of a webhook endpoint is written by whoever
// holds a merchant's key, and read by the operator of the service.

/**
 * C0, DEL and C1, which a terminal obeys, line separators, what changes the direction of the text around it, and what has
 * no width. The two joiners U+200C and U+200D are kept: Persian, Hindi and emoji are written with them.
 */
const invisible = /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\u00ad\u200b\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]/u;
const everyInvisible = new RegExp(invisible, 'gu');

/** What is wrong with a text of one line, as the end of a sentence; undefined if nothing is. */
export function invisibleProblem(text: string): string | undefined {
  const [found] = invisible.exec(text) ?? [];
  return found === undefined
    ? undefined
    : `must be one line without control characters, marks of direction or invisible characters, and has U+${hexOf(found).toUpperCase()}`;
}

/** Returns the text with each such character as its JSON escape, line breaks included. */
export function visible(text: string): string {
  return text.replace(everyInvisible, escapeOf);
}

/** The same for a text of several lines, whose line breaks stay. Formatted JSON means the same as before. */
export function visibleLines(text: string): string {
  return text.split('\n').map(visible).join('\n');
}

function escapeOf(character: string): string {
  return `\\u${hexOf(character)}`;
}

/** None of them is outside the first 65,536 characters. */
function hexOf(character: string): string {
  return character.charCodeAt(0).toString(16).padStart(4, '0');
}
