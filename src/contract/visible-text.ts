// Keeps control and invisible characters out of terminals and browsers. Whoever has a merchant's key writes
// the description of a webhook endpoint, and the operator of the service reads it.

/**
 * C0, DEL and C1, which terminals obey; line separators; characters that change the direction of the text
 * around them; and invisible ones. The joiners U+200C and U+200D are kept, because Persian, Hindi and emoji
 * need them. So is U+FE0F after a symbol, which it turns into an emoji, and in a keycap such as 1️⃣.
 */
const invisible =
  /[\p{Cc}\p{Zl}\p{Zp}\p{Bidi_Control}\u2800\ufff9-\ufffb]|(?![\u200c\u200d]|(?<=\p{Extended_Pictographic})\ufe0f|(?<=[\d#*])\ufe0f\u20e3)\p{Default_Ignorable_Code_Point}/u;
const everyInvisible = new RegExp(invisible, 'gu');
/** Most text has none of these. This test takes a fraction of the time. */
const unusual = /[^\n\x20-\x7e]/;

/** What is wrong with a text of one line, as the end of a sentence; undefined if nothing is. */
export function invisibleProblem(text: string): string | undefined {
  const [found] = invisible.exec(text) ?? [];
  return found === undefined
    ? undefined
    : `must be one line without control, bidirectional or invisible characters, but contains U+${hexOf(found.codePointAt(0)).toUpperCase()}`;
}

/** Returns the text with each such character as its JSON escape, line breaks included. */
export function visible(text: string): string {
  return text.replace(everyInvisible, escapeOf);
}

/** The same for a text of several lines, whose line breaks stay. JSON keeps its meaning. */
export function visibleLines(text: string): string {
  return unusual.test(text) ? text.split('\n').map(visible).join('\n') : text;
}

/** As in JSON, a character above U+FFFF becomes two escapes. */
function escapeOf(character: string): string {
  return Array.from({ length: character.length }, (_, i) => `\\u${hexOf(character.charCodeAt(i))}`).join('');
}

function hexOf(code = 0): string {
  return code.toString(16).padStart(4, '0');
}
