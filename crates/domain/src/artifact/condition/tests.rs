//! The language, its canonical form and its normal form.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn read(text: &str) -> Expression {
    Condition::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).expression
}

#[test]
fn every_form_of_every_operand() {
    let check = |text: &str, canonical: &str| {
        assert_eq!(read(text).to_string(), canonical, "{text}");
        assert_eq!(read(canonical), read(text), "{text}");
    };
    for text in
        ["host = a", "host==a", "HOST=a", "host is a", "host has a", "Host Contains a", "hosthas a"]
    {
        check(text, "host = a");
    }
    for text in ["host != a", "host ! a", "host!a", "host not a", "host misses a", "hostmisses a"] {
        check(text, "not host = a");
    }
    for text in
        ["user-agent = x", "user.agent = x", "useragent = x", "User-Agent == x", "USER-AGENT is x"]
    {
        check(text, "user-agent = x");
    }
    for text in ["has header X", "contains header X", "HAS HEADER X"] {
        check(text, "has header X");
    }
    check("misses header X", "not has header X");
    check("has cookie c", "has cookie c");
    check("misses cookie c", "not has cookie c");
    check("cookie c has v", "cookie c has v");
    check("cookie c contains v", "cookie c has v");
    check("Cookie c misses v", "not cookie c has v");
    check("header h has v", "header h has v");
    check("header h misses v", "not header h has v");
    check("header has has has", "header has has has");
    check("<hdr(a) -m str b>", "< hdr(a) -m str b >");
    check("< method GET >", "< method GET >");
    check("host = a|b&c!d", "host = a|b&c!d");
    check("host = =a", "host = =a");
    check("host =!a", "host = !a");
}

#[test]
fn operators_bind_as_usual() {
    let check = |text: &str, canonical: &str| {
        assert_eq!(read(text).to_string(), canonical, "{text}");
    };
    for or in ["or", "OR", "||", "|"] {
        for and in ["and", "And", "&&", "&"] {
            let text = format!("host = a {or} host = b {and} host = c");
            check(&text, "host = a or host = b and host = c");
        }
    }
    check("(host = a or host = b) and host = c", "(host = a or host = b) and host = c");
    check("(host = a)and host = b", "host = a and host = b");
    check("(host = a) and (host = b)", "host = a and host = b");
    check("host = a and\n host = b\n", "host = a and host = b");
    check("host = a and (host = b and host = c)", "host = a and (host = b and host = c)");
    check("!host = a", "not host = a");
    check("! host = a", "not host = a");
    check("not host = a", "not host = a");
    check("!(host = a or host = b)", "not (host = a or host = b)");
    check("not (not host = a)", "not (not host = a)");
    check("!(host != a)", "not (not host = a)");
    check("((((host = a))))", "host = a");
    check("  host = a  ", "host = a");
}

#[test]
fn what_does_not_parse_says_where_and_what_was_expected() {
    let check = |text: &str, offset: usize, hint: &str| {
        let error = Condition::parse(text).map(|read| read.expression.to_string()).unwrap_err();
        assert_eq!(error.offset, offset, "{text}: {error:?}");
        assert!(error.hint.contains(hint), "{text}: {error:?}");
    };
    check("", 0, "a test such as");
    check("   ", 3, "a test such as");
    check("hos = a", 0, "a test such as");
    check("user_agent = x", 4, "'user-agent'");
    check("user agent = x", 4, "'user-agent'");
    check("ua = x", 0, "a test such as");
    check("host", 4, "'='");
    check("host a", 5, "'='");
    check("host =", 6, "a value");
    check("host = (", 7, "a value");
    check("host is not a", 12, "'and', or 'or', or the end");
    check("host NOT a", 5, "'not'");
    check("NOT host = a", 0, "a test such as");
    check("not(host = a)", 3, "a blank");
    check("not not host = a", 4, "a test such as");
    check("!!host = a", 1, "a test such as");
    check("cookie c = v", 9, "'has'");
    check("has body x", 4, "'header'");
    check("has header", 10, "a blank");
    check("hasheader x", 3, "a blank");
    check("host = a or(host = b)", 11, "a blank");
    check("host = a and", 12, "a blank");
    check("host = a and ", 13, "a test such as");
    check("(host = a", 9, "')'");
    check("host = a)", 8, "the end");
    check("host = a host = b", 9, "'or'");
    check("<>", 1, "an acl");
    check("<  >", 1, "an acl");
    check("<method GET", 11, "'>'");
    check("<a\nb>", 2, "'>'");
    check("host = ü and host", 17, "'='");
    check("hdr_sub(user-agent) Chrome", 0, "a test such as");
    check(&"(".repeat(DEPTH_MAX + 1), DEPTH_MAX, "fewer");
    check(&format!("host = {}", "a".repeat(LENGTH_MAX)), 0, "split");
    let deep = format!("{}host = a{}", "(".repeat(DEPTH_MAX), ")".repeat(DEPTH_MAX));
    assert_eq!(read(&deep).to_string(), "host = a");
}

#[test]
fn messages() {
    let words = |text: &str| {
        let error = Condition::parse(text).unwrap_err();
        format!("{error}; {}", error.hint)
    };
    assert_eq!(words("host = a or"), "the condition ends too early; expected a blank");
    assert_eq!(words("host = a orb"), "'b' does not fit here; expected a blank");
    assert_eq!(
        words("host a"),
        "'a' does not fit here; expected '=', or '!=', or 'not', or 'has', or 'is', or 'misses'"
    );
}

#[test]
fn normal_forms() {
    let check = |text: &str, expected: &str| assert_eq!(terms(&read(text)), expected, "{text}");
    check("host = a", "host = a");
    check("not host = a", "!host = a");
    check(
        "(User-Agent = Chrome OR User-Agent = Firefox) AND has cookie beta",
        "user-agent = Chrome, has cookie beta | user-agent = Firefox, has cookie beta",
    );
    check("user-agent = safari", "user-agent = Safari, user-agent = Version");
    check("user-agent != SAFARI", "!user-agent = Safari | !user-agent = Version");
    check("user-agent = ie", "user-agent = MSIE");
    check("user-agent = eDGE", "user-agent = Edge");
    check("user-agent = curl", "user-agent = curl");
    check("host = a or not host = a", "always");
    check("host = a and not host = a", "never");
    check("host = a or host = a and host = b", "host = a");
    check("host = a and host = b or host = a and not host = b", "host = a");
    check("host = a or not host = a and host = b", "host = a | host = b");
    check("not (host = a and host = b)", "!host = a | !host = b");
    check("not (host = a or host = b)", "!host = a, !host = b");
    // A cycle of six primes, of which three are enough.
    check(
        "host = a and host != b or host = b and host != c or host = c and host != a",
        "host = a, !host = b | !host = a, host = c | host = b, !host = c",
    );
}

/// The normal form in words.
fn terms(expression: &Expression) -> String {
    let terms = expression.normal_form().unwrap();
    if terms.is_empty() {
        return "never".to_owned();
    }
    if terms == [vec![]] {
        return "always".to_owned();
    }
    let literal = |literal: &Literal| {
        format!("{}{}", if literal.negated { "!" } else { "" }, literal.operand)
    };
    let term = |term: &Vec<Literal>| term.iter().map(literal).collect::<Vec<_>>().join(", ");
    terms.iter().map(term).collect::<Vec<_>>().join(" | ")
}

#[test]
fn what_is_too_large_is_refused() {
    let check = |text: &str, expected: TooLarge| {
        let error = Condition::parse(text).unwrap_err();
        assert_eq!(error.detail, expected.to_string());
    };
    let hosts = |count: usize, between: &str| {
        (0..count).map(|n| format!("host = {n}")).collect::<Vec<_>>().join(between)
    };
    assert_eq!(Condition::parse(&hosts(64, " or ")).unwrap().terms().len(), 64);
    assert_eq!(Condition::parse(&hosts(48, " and ")).unwrap().terms().len(), 1);
    check(&hosts(65, " or "), TooLarge::Operands);
    check(&hosts(49, " and "), TooLarge::Literals);
    let pair = |n: usize| format!("(host = a{n} or host = b{n})");
    let pairs = |count| (0..count).map(pair).collect::<Vec<_>>().join(" and ");
    assert_eq!(Condition::parse(&pairs(8)).unwrap().terms().len(), 256);
    check(&pairs(9), TooLarge::Terms);
    check(&pairs(32), TooLarge::Terms);
}

#[test]
fn the_log_keeps_the_text() {
    let check = |condition: Condition| {
        let json = serde_json::to_string(&condition).unwrap();
        assert_eq!(json, serde_json::to_string(condition.text()).unwrap());
        assert_eq!(serde_json::from_str::<Condition>(&json).unwrap(), condition);
    };
    check(Condition::parse("User-Agent = Firefox").unwrap());
    check(Condition::raw("hdr_sub(user-agent) Firefox"));
    check(Condition::raw(""));
}

fn expression() -> impl Strategy<Value = Expression> {
    let value = "[a-zA-Z0-9<>=!|&'\"._-]{1,6}|has|or|not|=";
    let name = "[a-zA-Z-]{1,5}|has|misses|header";
    let raw = "[a-z(][a-z() _-]{0,8}[a-z)]";
    let operand = prop_oneof![
        value.prop_map(Operand::Host),
        value.prop_map(Operand::UserAgent),
        name.prop_map(Operand::Header),
        name.prop_map(Operand::Cookie),
        (name, value).prop_map(|(name, value)| Operand::HeaderContains(name, value)),
        (name, value).prop_map(|(name, value)| Operand::CookieContains(name, value)),
        raw.prop_map(Operand::Raw),
    ];
    compound(operand.prop_map(Expression::Operand), 12)
}

/// Expressions over few tests, so that they meet often.
fn narrow_expression(width: usize, size: u32) -> impl Strategy<Value = Expression> {
    let operand =
        (0..width).prop_map(|number| Expression::Operand(Operand::Host(number.to_string())));
    compound(operand, size)
}

fn compound(
    leaf: impl Strategy<Value = Expression> + 'static,
    size: u32,
) -> impl Strategy<Value = Expression> {
    leaf.prop_recursive(4, size, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|inner| Expression::Not(Box::new(inner))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::And),
            prop::collection::vec(inner, 2..4).prop_map(Expression::Or),
        ]
    })
}

/// Whether `expression` holds when just the tests in `holding` do.
fn holds(expression: &Expression, holding: &BTreeSet<Operand>) -> bool {
    match expression {
        Expression::Operand(operand) => holding.contains(operand),
        Expression::Not(inner) => !holds(inner, holding),
        Expression::And(parts) => parts.iter().all(|part| holds(part, holding)),
        Expression::Or(parts) => parts.iter().any(|part| holds(part, holding)),
    }
}

fn check_equal(expression: &Expression, width: usize) -> Result<(), TestCaseError> {
    let Ok(terms) = expression.normal_form() else { return Ok(()) };
    for row in 0..1_u32 << width {
        let holding: BTreeSet<Operand> = (0..width)
            .filter(|bit| row >> bit & 1 == 1)
            .map(|bit| Operand::Host(bit.to_string()))
            .collect();
        let literal = |literal: &Literal| holding.contains(&literal.operand) != literal.negated;
        let of_terms = terms.iter().any(|term| term.iter().all(literal));
        prop_assert_eq!(of_terms, holds(expression, &holding), "row {} of {}", row, expression);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_printed_is_read_as_the_same(expression in expression()) {
        let text = expression.to_string();
        prop_assert_eq!(Condition::parse(&text).map(|read| read.expression), Ok(expression));
    }

    /// The reduction is logically equal to the original (runtime, 10.3).
    #[test]
    fn the_normal_form_of_few_tests_is_equal(expression in narrow_expression(5, 24)) {
        check_equal(&expression, 5)?;
    }

    #[test]
    fn the_normal_form_of_many_tests_is_equal(expression in narrow_expression(11, 24)) {
        check_equal(&expression, 11)?;
    }

    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        drop(Condition::parse(&text));
    }

    #[test]
    fn no_text_of_its_words_makes_it_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "host", "user-agent", "has", "header", "cookie", "misses", "not", "!", "(", ")", "and", "or", "|",
                "=", "is", "x", " ", " ", " ", "<", ">", "ü", "\n",
            ]),
            0..30,
        ),
    ) {
        let text = words.concat();
        if let Err(error) = Condition::parse(&text) {
            prop_assert!(error.offset <= text.chars().count());
        }
    }
}
