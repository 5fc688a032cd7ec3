//! From text to document trees: YAML 1.1 scalars, aliases, merge keys, duplicate keys and limits.
//!
//! JSON is read as YAML. The one thing that YAML cannot read, surrogate pairs in escapes, is rewritten beforehand.

use super::{
    scalar::{self, ScalarKind},
    spelling::Spelling,
    tree::{Key, Node, Scalar, Value, pointer_segment},
};
use crate::problem::{Place, Problem, ProblemKind, Problems, Result};
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};
use std::{collections::HashMap, fmt::Write};

/// How much a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How deep lists and maps may be nested, aliases expanded.
    pub depth: usize,
    /// How many elements there may be, aliases expanded.
    pub nodes: usize,
    /// How many bytes aliases may add.
    pub alias_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { depth: 100, nodes: 200_000, alias_bytes: 8 * 1024 * 1024 }
    }
}

/// Reads all documents of `text`; empty ones are skipped.
pub fn parse(text: &str, limits: &Limits) -> Result<Vec<Node>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    refuse_control_characters(text)?;
    let (rewritten, shifts) = join_surrogates(text);
    let text = rewritten.as_deref().unwrap_or(text);
    let mut builder = Builder {
        parser: Parser::new_from_str(text),
        unread: Unread { text, index: 0 },
        shifts,
        limits: *limits,
        nodes: 0,
        alias_bytes: 0,
        anchors: HashMap::new(),
        pointer: Vec::new(),
        duplicates: Vec::new(),
    };
    let documents = builder.documents()?;
    Problems::check(builder.duplicates)?;
    Ok(documents)
}

struct Builder<'text> {
    parser: Parser<'text, StrInput<'text>>,
    unread: Unread<'text>,
    shifts: Vec<Shift>,
    limits: Limits,
    nodes: usize,
    alias_bytes: usize,
    anchors: HashMap<usize, Anchored>,
    /// The way to the element being read.
    pointer: Vec<Step>,
    duplicates: Vec<Problem>,
}

/// A step of the way to an element.
enum Step {
    Index(usize),
    Key(String),
}

/// An element that aliases can stand for, and what repeating it costs.
struct Anchored {
    node: Node,
    size: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl<'text> Builder<'text> {
    fn documents(&mut self) -> Result<Vec<Node>> {
        let mut documents = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(documents),
                Event::StreamStart
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Nothing => {}
                Event::Scalar(text, ScalarStyle::Plain, 0, None) if text.is_empty() => {}
                event => {
                    documents.push(self.node(event, span, 0)?.0);
                    self.anchors.clear();
                }
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'text>, Span)> {
        match self.parser.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    /// The element that begins with `event`, and its size.
    fn node(&mut self, event: Event<'text>, span: Span, depth: usize) -> Result<(Node, Size)> {
        let place = self.place(span);
        self.nodes += 1;
        self.check_limits(place, depth)?;
        let tag = match &event {
            Event::Scalar(_, _, _, tag)
            | Event::SequenceStart(_, tag)
            | Event::MappingStart(_, tag) => tag.as_ref(),
            _ => None,
        };
        if let Some(tag) = tag {
            let detail = format!("tags are not supported: '{tag}'");
            return Err(Self::refuse(place, detail, "leave the tag out"));
        }
        match event {
            Event::Alias(id) => self.alias(id, place, depth),
            Event::Scalar(text, style, anchor, _) => {
                let spelling = self.unread.spelling(&text, style, span);
                let value = scalar_value(&text, style, spelling);
                let size = Size { nodes: 1, bytes: text.len() + NODE_BYTES, depth: 0 };
                Ok(self.keep(anchor, Node { place, value }, size))
            }
            Event::SequenceStart(anchor, _) => {
                let (items, size) = self.sequence(depth)?;
                Ok(self.keep(anchor, Node { place, value: Value::Sequence(items) }, size))
            }
            Event::MappingStart(anchor, _) => {
                let (entries, size) = self.mapping(depth)?;
                Ok(self.keep(anchor, Node { place, value: Value::Mapping(entries) }, size))
            }
            _ => Err(Self::refuse(place, "an element is missing".to_owned(), "close what is open")),
        }
    }

    fn sequence(&mut self, depth: usize) -> Result<(Vec<Node>, Size)> {
        let mut items = Vec::new();
        let mut size = Size { nodes: 1, bytes: NODE_BYTES, depth: 0 };
        loop {
            let (event, span) = self.next()?;
            if event == Event::SequenceEnd {
                return Ok((items, size));
            }
            self.pointer.push(Step::Index(items.len()));
            let (item, item_size) = self.node(event, span, depth + 1)?;
            self.pointer.pop();
            size.add(item_size);
            items.push(item);
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<(Vec<(Key, Node)>, Size)> {
        let mut map = MapBuilder::default();
        let mut size = Size { nodes: 1, bytes: NODE_BYTES, depth: 0 };
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((map.finish(), size));
            }
            let is_merge =
                matches!(&event, Event::Scalar(text, ScalarStyle::Plain, _, None) if text == "<<");
            let (Key { text, place }, key_size) = self.key(event, span, depth)?;
            size.add(key_size);
            self.pointer.push(Step::Key(text));
            let (event, span) = self.next()?;
            let (value, value_size) = self.node(event, span, depth + 1)?;
            size.add(value_size);
            let Some(Step::Key(text)) = self.pointer.pop() else {
                unreachable!("what was pushed is on top")
            };
            let key = Key { text, place };
            if is_merge {
                map.merge(value).map_err(|place| {
                    Self::refuse(
                        place,
                        "'<<' takes a map or a list of maps".to_owned(),
                        "write an alias such as *base",
                    )
                })?;
            } else if let Err((key, first)) = map.insert(key, value) {
                self.duplicates.push(self.duplicate(&key, first));
            }
        }
    }

    fn key(&mut self, event: Event<'text>, span: Span, depth: usize) -> Result<(Key, Size)> {
        // A key is its spelling, so that `~` and `yes` are what they look like.
        let spelling = match &event {
            Event::Scalar(text, ..) => Some(text.to_string()),
            _ => None,
        };
        let (node, size) = self.node(event, span, depth + 1)?;
        match spelling.or_else(|| key_text(&node)) {
            Some(text) => Ok((Key { text, place: node.place }, size)),
            None => {
                Err(Self::refuse(node.place, "a map cannot be a key".to_owned(), "quote the key"))
            }
        }
    }

    fn duplicate(&self, key: &Key, first: Place) -> Problem {
        let mut pointer = String::new();
        for step in &self.pointer {
            pointer.push('/');
            match step {
                Step::Index(index) => pointer.push_str(&index.to_string()),
                Step::Key(text) => pointer.push_str(&pointer_segment(text)),
            }
        }
        pointer.push('/');
        pointer.push_str(&pointer_segment(&key.text));
        let Place { line, column } = first;
        let detail = format!(
            "the key '{}' stands twice: here, and first at line {line}, column {column}",
            key.text
        );
        Problem::new(ProblemKind::DuplicateKey, pointer, detail)
            .at(Some(key.place))
            .hint("keep one of the two")
    }

    fn alias(&mut self, id: usize, place: Place, depth: usize) -> Result<(Node, Size)> {
        let Some(anchored) = self.anchors.get(&id) else {
            let detail = "the alias stands inside the element that it names".to_owned();
            return Err(Self::refuse(place, detail, "write the element out"));
        };
        let (node, size) = (&anchored.node, anchored.size);
        self.nodes += size.nodes;
        self.alias_bytes += size.bytes;
        let expanded_depth = depth + size.depth;
        // Checked before anything is copied.
        self.check_limits(place, expanded_depth)?;
        Ok((node.clone(), size))
    }

    fn keep(&mut self, anchor: usize, node: Node, size: Size) -> (Node, Size) {
        if anchor != 0 {
            self.anchors.insert(anchor, Anchored { node: node.clone(), size });
        }
        (node, size)
    }

    fn check_limits(&self, place: Place, depth: usize) -> Result<()> {
        let Limits { depth: depth_max, nodes: nodes_max, alias_bytes: bytes_max } = self.limits;
        let exceeded = if depth > depth_max {
            format!("nested deeper than {depth_max} levels")
        } else if self.nodes > nodes_max {
            format!("more than {nodes_max} elements, aliases included")
        } else if self.alias_bytes > bytes_max {
            format!("aliases stand for more than {bytes_max} bytes")
        } else {
            return Ok(());
        };
        Err(Self::refuse(place, exceeded, "split the document into smaller ones"))
    }

    fn refuse(place: Place, detail: String, hint: &str) -> Problems {
        Problem::new(ProblemKind::YamlParsing, "", detail).at(Some(place)).hint(hint).into()
    }

    fn syntax(&self, error: &ScanError) -> Problems {
        let marker = error.marker();
        let place = shifted(&self.shifts, marker.line(), marker.col());
        Problem::new(ProblemKind::YamlParsing, "", error.info()).at(Some(place)).into()
    }

    fn place(&self, span: Span) -> Place {
        shifted(&self.shifts, span.start.line(), span.start.col())
    }
}

/// What an element costs beside its text; keeps aliases of many small elements bounded too.
const NODE_BYTES: usize = 16;

impl Size {
    fn add(&mut self, part: Size) {
        self.nodes += part.nodes;
        self.bytes += part.bytes;
        self.depth = self.depth.max(part.depth + 1);
    }
}

/// Maps of more entries than this are looked up by hash.
const HASHED_FROM: usize = 16;

/// A map under construction: own entries win over merged ones, whichever come first.
#[derive(Default)]
struct MapBuilder {
    /// None where an own entry took the place of a merged one.
    entries: Vec<Option<Entry>>,
    /// Of all entries, from [`HASHED_FROM`] on.
    places: HashMap<String, usize>,
}

struct Entry {
    key: Key,
    node: Node,
    is_merged: bool,
}

impl MapBuilder {
    /// Adds an own entry. The error is the key with where it was met first, when it was already there.
    fn insert(&mut self, key: Key, node: Node) -> std::result::Result<(), (Key, Place)> {
        if let Some(index) = self.find(&key.text) {
            match &self.entries[index] {
                Some(entry) if !entry.is_merged => return Err((key, entry.key.place)),
                _ => self.entries[index] = None,
            }
        }
        self.push(Entry { key, node, is_merged: false });
        Ok(())
    }

    fn find(&self, text: &str) -> Option<usize> {
        if self.entries.len() >= HASHED_FROM {
            return self.places.get(text).copied();
        }
        let is_it = |entry: &Option<Entry>| entry.as_ref().is_some_and(|own| own.key.text == text);
        self.entries.iter().position(is_it)
    }

    fn push(&mut self, entry: Entry) {
        self.entries.push(Some(entry));
        let known = match self.entries.len() {
            ..HASHED_FROM => return,
            HASHED_FROM => 0,
            more => more - 1,
        };
        for (index, entry) in self.entries.iter().enumerate().skip(known) {
            if let Some(entry) = entry {
                self.places.insert(entry.key.text.clone(), index);
            }
        }
    }

    /// Merges `value`, a map or a list of maps; earlier ones win. The error is where something else stands.
    fn merge(&mut self, value: Node) -> std::result::Result<(), Place> {
        match value.value {
            Value::Null => Ok(()),
            Value::Mapping(entries) => {
                for (key, node) in entries {
                    if self.find(&key.text).is_none() {
                        self.push(Entry { key, node, is_merged: true });
                    }
                }
                Ok(())
            }
            Value::Sequence(items) => items.into_iter().try_for_each(|item| match item.value {
                Value::Mapping(_) => self.merge(item),
                _ => Err(item.place),
            }),
            Value::Scalar(_) => Err(value.place),
        }
    }

    fn finish(self) -> Vec<(Key, Node)> {
        self.entries.into_iter().flatten().map(|entry| (entry.key, entry.node)).collect()
    }
}

/// The text from a place on that everything looked for is behind.
struct Unread<'text> {
    text: &'text str,
    /// How many characters stand before it.
    index: usize,
}

impl<'text> Unread<'text> {
    /// How `text`, which stands at `span`, is written. Spans are asked for in the order of the document.
    fn spelling(&mut self, text: &str, style: ScalarStyle, span: Span) -> Spelling {
        let length = text.chars().count();
        match style {
            ScalarStyle::Plain if span.len() == length && !text.contains('\n') => Spelling::Plain,
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted
                if span.len() == length + 2 && !text.contains('\n') =>
            {
                Spelling::Quoted
            }
            _ => Spelling::Other(self.slice(span).into()),
        }
    }

    fn slice(&mut self, span: Span) -> &'text str {
        let after = |text: &'text str, characters: usize| {
            let begin = text.char_indices().nth(characters).map_or(text.len(), |(begin, _)| begin);
            text.split_at(begin)
        };
        self.text = after(self.text, span.start.index().saturating_sub(self.index)).1;
        self.index = self.index.max(span.start.index());
        after(self.text, span.len()).0
    }
}

fn scalar_value(text: &str, style: ScalarStyle, spelling: Spelling) -> Value {
    let plain = style == ScalarStyle::Plain;
    if plain && scalar::is_null(text) {
        return Value::Null;
    }
    let kind = if plain { scalar::resolve(text) } else { ScalarKind::Text };
    Value::Scalar(Scalar { text: text.to_owned(), kind, spelling })
}

/// The text of a key: scalars as written, lists as bracket text.
fn key_text(node: &Node) -> Option<String> {
    match &node.value {
        Value::Null => Some("null".to_owned()),
        Value::Scalar(scalar) => Some(scalar.text.clone()),
        Value::Sequence(items) => {
            let parts: Option<Vec<String>> = items.iter().map(key_text).collect();
            Some(format!("[{}]", parts?.join(", ")))
        }
        Value::Mapping(_) => None,
    }
}

/// The YAML parser takes a NUL for the end of the text, so what follows would be lost without a word.
fn refuse_control_characters(text: &str) -> Result<()> {
    let mut place = Place { line: 1, column: 1 };
    if !text.bytes().any(is_control) {
        return Ok(());
    }
    for character in text.chars() {
        if u8::try_from(character).is_ok_and(is_control) {
            let detail =
                format!("the control character U+{:04X} is not allowed", u32::from(character));
            return Err(Builder::refuse(
                place,
                detail,
                "leave it out, or write an escape in double quotes",
            ));
        }
        place = match character {
            '\n' => Place { line: place.line + 1, column: 1 },
            _ => Place { column: place.column + 1, ..place },
        };
    }
    Ok(())
}

fn is_control(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r')
}

/// From `column` of `line` on, up to the next shift, the line read is `by` characters shorter than the line given.
struct Shift {
    line: usize,
    column: usize,
    by: usize,
}

fn shifted(shifts: &[Shift], line: usize, column: usize) -> Place {
    let before = shifts.partition_point(|shift| (shift.line, shift.column) <= (line, column));
    let by = shifts[..before].last().filter(|shift| shift.line == line).map_or(0, |shift| shift.by);
    Place { line: line.max(1), column: column + 1 + by }
}

/// Writes surrogate pairs of JSON, `\ud83d\ude00`, as one YAML escape, `\U0001F600`.
fn join_surrogates(text: &str) -> (Option<String>, Vec<Shift>) {
    let opens_json = text.trim_start().starts_with(['{', '[', '"']);
    let may_have_pairs = text.contains("\\ud") || text.contains("\\uD");
    if !(opens_json && may_have_pairs)
        || serde_json::from_str::<serde::de::IgnoredAny>(text).is_err()
    {
        return (None, Vec::new());
    }
    let mut joined = String::with_capacity(text.len());
    let mut shifts: Vec<Shift> = Vec::new();
    let (mut line, mut column) = (1, 0);
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let pair = if character == '\\' { surrogate_pair(rest) } else { None };
        if let Some(code) = pair {
            let _ = write!(joined, "\\U{code:08X}");
            column += SURROGATES_LENGTH - 2;
            let by =
                shifts.last().filter(|shift| shift.line == line).map_or(0, |shift| shift.by) + 2;
            shifts.push(Shift { line, column, by });
            rest = &rest[SURROGATES_LENGTH..];
            continue;
        }
        // An escape is two characters, so that `\\ud83d` is not taken for one.
        let taken = if character == '\\' { 2 } else { character.len_utf8() };
        joined.push_str(&rest[..taken]);
        (line, column) = if character == '\n' {
            (line + 1, 0)
        } else {
            (line, column + rest[..taken].chars().count())
        };
        rest = &rest[taken..];
    }
    (Some(joined), shifts)
}

const SURROGATES_LENGTH: usize = 12;

/// The character that the surrogate pair at the start of `text` stands for.
fn surrogate_pair(text: &str) -> Option<u32> {
    let unit = |from: usize| {
        let escape = text.get(from..from + 6)?;
        u32::from_str_radix(escape.strip_prefix("\\u")?, 16).ok()
    };
    let (high, low) = (unit(0)?, unit(6)?);
    ((0xD800..0xDC00).contains(&high) && (0xDC00..0xE000).contains(&low))
        .then(|| 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
}
