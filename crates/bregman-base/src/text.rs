//! Words of others in messages of ours: a name or a line out of a file may be a megabyte long, or tell the terminal to
//! clear the screen.

use std::borrow::Cow;

/// At most `most` characters of `text` as they can be printed on one line: control characters as `\n` or `\u{1b}`, the
/// middle of a longer text as `…`.
///
/// ```
/// use bregman_base::text::excerpt;
/// assert_eq!(excerpt("ann", 20), "ann");
/// assert_eq!(excerpt("a\nb\u{1b}[2J", 20), r"a\nb\u{1b}[2J");
/// assert_eq!(excerpt("abcdefghijklmnopqrstuvwxyz", 9), "abcdef…yz");
/// ```
pub fn excerpt(text: &str, most: usize) -> Cow<'_, str> {
    let fits = text.len() <= most || text.chars().nth(most).is_none();
    if fits && !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let (head, tail) = match fits {
        true => (text, ""),
        false => {
            let (before, after) = (most * 3 / 4, most - 1 - most * 3 / 4);
            let start = text.char_indices().nth(before).map_or(text.len(), |(at, _)| at);
            let end = text.char_indices().rev().take(after).last().map_or(text.len(), |(at, _)| at);
            (&text[..start], &text[end..])
        }
    };
    let cut = if fits { "" } else { "…" };
    Cow::Owned(printable(head) + cut + &printable(tail))
}

fn printable(text: &str) -> String {
    let escaped = |letter: char| match is_unprintable(letter) {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escaped).collect()
}

/// Controls, and the marks that turn the direction of writing and so hide what a name says.
fn is_unprintable(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_its_ends_and_no_character_is_split() {
        let text = "λ".repeat(1000);
        for most in [8, 9, 100] {
            let short = excerpt(&text, most);
            assert_eq!(short.chars().count(), most, "{short}");
            assert!(short.starts_with('λ') && short.ends_with('λ') && short.contains('…'));
        }
        assert_eq!(excerpt(&text, 1000), text);
    }

    #[test]
    fn nothing_that_moves_a_cursor_or_turns_letters_around_is_left() {
        let nasty = "a\tb\r\u{7}\u{1b}]0;title\u{9b}2J\u{202e}fdp";
        assert_eq!(excerpt(nasty, 100), r"a\tb\r\u{7}\u{1b}]0;title\u{9b}2J\u{202e}fdp");
    }
}
