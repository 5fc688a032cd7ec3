//! Conditions in HAProxy's words (runtime, section 10.3).
//!
//! HAProxy's conditions have no parentheses: names of tests side by side all have to hold, ` or ` stands between
//! alternatives. Pure; where the lines stand is not known here.

use super::model::hash;
use segue_domain::artifact::{Condition, Literal, Operand};
use serde::Serialize;

/// How many words of alternatives stand on a line. HAProxy takes 64 words of a line, and each alternative may get one
/// more in front.
const WORDS_MAX: usize = 36;

/// A named test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Acl {
    pub(super) name: String,
    /// What is looked at and how, and the values, word by word.
    pub(super) words: Vec<String>,
}

/// A condition as HAProxy takes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Matcher {
    /// The tests in the order in which they first appear, each once.
    pub(super) acls: Vec<Acl>,
    /// Alternatives, joined as far as they fit on a line: one of the lines has to hold. An empty one always does.
    pub(super) lines: Vec<String>,
}

impl Matcher {
    /// `condition` in HAProxy's words; `None` when a test in its own words cannot be split into words.
    pub(super) fn of(condition: &Condition) -> Option<Self> {
        let mut matcher = Self::default();
        let mut words = 0;
        for term in condition.terms() {
            let mut names = Vec::with_capacity(term.len());
            for literal in term {
                let (acl, negated) = acl(literal)?;
                names.push(format!("{}{}", if negated { "!" } else { "" }, acl.name));
                if !matcher.acls.contains(&acl) {
                    matcher.acls.push(acl);
                }
            }
            words += names.len() + 1;
            let term = names.join(" ");
            match matcher.lines.last_mut() {
                Some(line) if words <= WORDS_MAX => {
                    line.push_str(" or ");
                    line.push_str(&term);
                }
                Some(_) | None => {
                    words = names.len();
                    matcher.lines.push(term);
                }
            }
        }
        Some(matcher)
    }
}

/// The test of `literal`, and whether it must not hold.
fn acl(literal: &Literal) -> Option<(Acl, bool)> {
    let negated = literal.negated;
    let with_value = |what: String, value: &str| {
        let definition = format!("{what} {value}");
        // What begins like an option is none.
        let guard = value.starts_with('-').then(|| "--".to_owned());
        let words = std::iter::once(what).chain(guard).chain([value.to_owned()]);
        (Acl { name: name(&definition), words: words.collect() }, negated)
    };
    let whole = |definition: String| {
        let words = definition.split(' ').map(str::to_owned).collect();
        (Acl { name: name(&definition), words }, false)
    };
    Some(match &literal.operand {
        Operand::Host(value) => with_value("hdr(host)".to_owned(), value),
        Operand::UserAgent(value) => with_value("hdr_sub(user-agent)".to_owned(), value),
        Operand::Header(header) if negated => whole(format!("hdr_cnt({header}) eq 0")),
        Operand::Header(header) => whole(format!("hdr_cnt({header}) gt 0")),
        Operand::Cookie(cookie) if negated => whole(format!("cook_cnt({cookie}) eq 0")),
        Operand::Cookie(cookie) => whole(format!("cook({cookie}) -m found")),
        Operand::HeaderContains(header, value) => with_value(format!("hdr_sub({header})"), value),
        Operand::CookieContains(cookie, value) => with_value(format!("cook_sub({cookie})"), value),
        Operand::Raw(text) => {
            let words = shlex::split(text).filter(|words| !words.is_empty())?;
            (Acl { name: name(text), words }, negated)
        }
    })
}

/// Names say nothing, but equal tests have equal names.
fn name(definition: &str) -> String {
    hash(&format!("{definition}0000"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn matcher(text: &str) -> Matcher {
        Matcher::of(&Condition::parse(text).unwrap()).unwrap()
    }

    #[test]
    fn every_operand_has_its_acl() {
        let check = |text: &str, acl: &str, use_of: &str| {
            let matcher = matcher(text);
            let [only] = &matcher.acls[..] else { panic!("{text} is one test") };
            assert_eq!(only.words.join(" "), acl, "{text}");
            assert_eq!(matcher.lines, [use_of.replace("NAME", &only.name)], "{text}");
        };
        check("host = a", "hdr(host) a", "NAME");
        check("host != a", "hdr(host) a", "!NAME");
        check("user-agent = x", "hdr_sub(user-agent) x", "NAME");
        check("user-agent = ie", "hdr_sub(user-agent) MSIE", "NAME");
        check("user-agent != x", "hdr_sub(user-agent) x", "!NAME");
        check("has header X", "hdr_cnt(X) gt 0", "NAME");
        check("misses header X", "hdr_cnt(X) eq 0", "NAME");
        check("has cookie c", "cook(c) -m found", "NAME");
        check("misses cookie c", "cook_cnt(c) eq 0", "NAME");
        check("header h has v", "hdr_sub(h) v", "NAME");
        check("header h misses v", "hdr_sub(h) v", "!NAME");
        check("cookie c has v", "cook_sub(c) v", "NAME");
        check("cookie c misses v", "cook_sub(c) v", "!NAME");
        check("< path_beg /x >", "path_beg /x", "NAME");
        check("!< path_beg /x >", "path_beg /x", "!NAME");
        check("host = -i", "hdr(host) -- -i", "NAME");
    }

    #[test]
    fn names_are_those_of_the_reference() {
        let name = |text: &str| matcher(text).lines;
        assert_eq!(name("user-agent = Firefox"), ["af31629d4c4c8e71"]);
        assert_eq!(name("user-agent = chrome"), ["81b5022a1c5966ab"]);
        assert_eq!(name("user-agent != Chrome"), ["!81b5022a1c5966ab"]);
    }

    #[test]
    fn alternatives_stand_side_by_side() {
        let both = matcher("(User-Agent = Chrome OR User-Agent = Firefox) AND has cookie beta");
        let (chrome, firefox) = ("81b5022a1c5966ab", "af31629d4c4c8e71");
        let cookie = name("cook(beta) -m found");
        assert_eq!(both.lines, [format!("{chrome} {cookie} or {firefox} {cookie}")]);
        let names: Vec<&str> = both.acls.iter().map(|acl| acl.name.as_str()).collect();
        assert_eq!(names, [chrome, &cookie, firefox]);
        assert_eq!(matcher("host = a or host != a").lines, [""]);
        assert_eq!(matcher("host = a and host != a").lines, [""; 0]);
        let safari = matcher("user-agent = Safari");
        assert_eq!(safari.acls.len(), 2);
        assert_eq!(safari.lines, [format!("{} {}", safari.acls[0].name, safari.acls[1].name)]);
        assert_eq!(Matcher::of(&Condition::raw("a 'b")), None);
        assert_eq!(Matcher::of(&Condition::raw("")), None);
    }

    #[test]
    fn long_conditions_take_several_lines() {
        let hosts: Vec<String> = (0..60).map(|number| format!("host = h{number}")).collect();
        let matcher = matcher(&hosts.join(" or "));
        assert!(matcher.lines.len() > 1);
        for line in &matcher.lines {
            assert!(line.split(' ').count() <= WORDS_MAX, "{line}");
        }
        let names = matcher.lines.join(" or ");
        assert_eq!(names.split(" or ").count(), 60);
    }

    proptest! {
        /// What the lines say is what the condition says, whatever the requests: as HAProxy reads them, by truth table.
        #[test]
        fn the_lines_say_what_the_condition_says(
            words in prop::collection::vec((0..4_usize, any::<bool>(), any::<bool>()), 1..6),
        ) {
            const TESTS: [&str; 4] = ["host = a", "has header b", "has cookie c", "< path /d >"];
            let mut text = String::new();
            for (index, (test, negated, or)) in words.iter().enumerate() {
                let between = match (index, or) { (0, _) => "", (_, true) => " or ", (_, false) => " and " };
                let not = if *negated { "not " } else { "" };
                text = format!("({text}{between}{not}{})", TESTS[*test]);
            }
            let matcher = matcher(&text);
            for row in 0..16_u32 {
                let holds_test = |test: usize| row >> test & 1 == 1;
                let mut expected = false;
                for (index, (test, negated, or)) in words.iter().enumerate() {
                    let literal = holds_test(*test) != *negated;
                    expected = match (index, or) { (0, _) => literal, (_, true) => expected || literal, (_, false) => expected && literal };
                }
                let holding: BTreeSet<String> = (0..4).map(|test| {
                    let (text, opposite) = (TESTS[test], TESTS[test].replace("has", "misses"));
                    let condition = if holds_test(test) { text.to_owned() } else { opposite };
                    let only = Matcher::of(&Condition::parse(&condition).unwrap()).unwrap();
                    let is_true = holds_test(test) || condition != text;
                    (only.acls[0].name.clone(), is_true)
                }).filter(|(_, is_true)| *is_true).map(|(name, _)| name).collect();
                let holds = |word: &str| match word.strip_prefix('!') {
                    Some(name) => !holding.contains(name),
                    None => word.is_empty() || holding.contains(word),
                };
                let actual = matcher.lines.iter().any(|line| line.split(" or ").any(|term| term.split(' ').all(holds)));
                prop_assert_eq!(actual, expected, "{} in row {}: {:?}", text, row, matcher);
            }
        }
    }
}
