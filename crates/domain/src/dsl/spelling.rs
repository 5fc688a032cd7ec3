//! How the text of a scalar stands in its document, so that a place within the text is found in the document.

use crate::problem::Place;

/// How the text of a scalar stands in its document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// As it is, from the place of the element on.
    Plain,
    /// As it is, between quotation marks.
    Quoted,
    /// With escapes, over several lines, or as a block: all of it as it is written, from the place of the element on.
    Other(Box<str>),
}

impl Spelling {
    /// Where the character stands before which `text` has `offset` characters; `begin` is the place of the element.
    pub(super) fn place(&self, begin: Place, text: &str, offset: usize) -> Place {
        match self {
            Spelling::Plain => Place { column: begin.column + offset, ..begin },
            Spelling::Quoted => Place { column: begin.column + 1 + offset, ..begin },
            Spelling::Other(written) => aligned(written, begin, text, offset),
        }
    }
}

/// Goes through `written` and `text` side by side; what stands in the former only is marks, indentation and escapes.
fn aligned(written: &str, begin: Place, text: &str, offset: usize) -> Place {
    let mut cursor = Cursor { rest: written, place: begin };
    if written.starts_with(['|', '>']) {
        while cursor.next().is_some_and(|character| character != '\n') {}
    }
    let is_escaped = written.starts_with('"');
    if written.starts_with(['"', '\'']) {
        cursor.next();
    }
    let mut after = cursor.place;
    for (index, character) in text.chars().enumerate() {
        loop {
            let here = cursor.place;
            let Some(found) = cursor.next() else { return after };
            let stands_for_it = if is_escaped && found == '\\' {
                cursor.escape()
            } else {
                found == character || found.is_whitespace() && character.is_whitespace()
            };
            if stands_for_it {
                if index == offset {
                    return here;
                }
                after = cursor.place;
                break;
            }
        }
    }
    after
}

struct Cursor<'t> {
    rest: &'t str,
    place: Place,
}

impl Cursor<'_> {
    fn next(&mut self) -> Option<char> {
        let character = self.rest.chars().next()?;
        self.rest = &self.rest[character.len_utf8()..];
        self.place = match character {
            '\n' => Place { line: self.place.line + 1, column: 1 },
            _ => Place { column: self.place.column + 1, ..self.place },
        };
        Some(character)
    }

    /// Goes on behind the rest of an escape. Whether that stands for a character: an escaped line end does not.
    fn escape(&mut self) -> bool {
        let digits = match self.next() {
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            Some('\n' | '\r') => return false,
            _ => 0,
        };
        for _ in 0..digits {
            self.next();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use crate::dsl::{Node, Value, document};
    use crate::problem::Place;

    /// The place of `needle` in the text of the value of `a`, found by way of the document that it stands in.
    #[test]
    fn places_within_texts() {
        let check = |source: &str, needle: char, line: usize, column: usize| {
            let Node { value: Value::Mapping(entries), .. } = document(source).unwrap() else {
                panic!("{source} is a map")
            };
            let node = &entries[0].1;
            let Value::Scalar(scalar) = &node.value else { panic!("{source} has a text") };
            let offset = scalar.text.chars().position(|c| c == needle).unwrap();
            assert_eq!(node.place_within(offset), Place { line, column }, "{source}");
        };
        check("a: one X", 'X', 1, 8);
        check("a: 'one X'", 'X', 1, 9);
        check("a: \"one X\"", 'X', 1, 9);
        check("{\"a\": \"ü X\"}", 'X', 1, 10);
        check("a: \"\\u00fc \\\" X\"", 'X', 1, 15);
        check("a: \"\\n\\x41X\"", 'X', 1, 11);
        check("a: 'it''s X'", 'X', 1, 11);
        check("a: one\n  two X", 'X', 2, 7);
        check("a: \"one\n  two X\"", 'X', 2, 7);
        check("a: \"one\\\n  two X\"", 'X', 2, 7);
        check("a: |\n  one\n  two X\n", 'X', 3, 7);
        check("a: >-\n  one\n  two X\n", 'X', 3, 7);
        check("a: |2-\n  one\n   X\n", 'X', 3, 4);
    }

    #[test]
    fn the_end_has_a_place_too() {
        let check = |source: &str, line: usize, column: usize| {
            let node = document(source).unwrap();
            let Value::Scalar(scalar) = &node.value else { panic!("{source} is a text") };
            let place = node.place_within(scalar.text.chars().count());
            assert_eq!(place, Place { line, column }, "{source}");
        };
        check("one", 1, 4);
        check("'one'", 1, 5);
        check("\"on\\x65\"", 1, 8);
    }
}
