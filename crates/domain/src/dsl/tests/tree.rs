//! From text to tree.

use super::{node, problems, report};
use crate::dsl::{Limits, documents, parse};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

fn check(text: &str, expected: &Json) {
    assert_eq!(node(text).to_json(), *expected, "{text}");
}

/// Shows: D43
#[test]
fn scalars_by_the_rules_of_yaml_1_1() {
    check("[true, yes, On, no, OFF]", &json!([true, true, true, false, false]));
    check("[~, null, Null, NULL]", &json!([null, null, null, null]));
    check("a:", &json!({"a": null}));
    check("[12, -3, 1_000, 0x1F, 0.5, .5, 1e5]", &json!([12, -3, 1000, 31, 0.5, 0.5, 100_000.0]));
    check("[010, 1:30, 10:30:00, 0o17]", &json!(["010", "1:30", "10:30:00", "0o17"]));
    check("[2017-01-01, 2017-01-01T10:00:00Z]", &json!(["2017-01-01", "2017-01-01T10:00:00Z"]));
    check("['yes', \"12\", '~']", &json!(["yes", "12", "~"]));
    check("[.inf, 18446744073709551615]", &json!([".inf", 18_446_744_073_709_551_615_u64]));
    check("a: |\n  x\n  y\n", &json!({"a": "x\ny\n"}));
    check("a: >-\n  x\n  y\n", &json!({"a": "x y"}));
}

/// Shows: D32
#[test]
fn keys_are_text_as_written() {
    check("8080: a", &json!({"8080": "a"}));
    check("1.0: a", &json!({"1.0": "a"}));
    check("yes: a", &json!({"yes": "a"}));
    check("~: a", &json!({"~": "a"}));
    check("0x1F: a", &json!({"0x1F": "a"}));
    check("\"a b\": a", &json!({"a b": "a"}));
    check("[10.0.0.1:80]: a", &json!({"[10.0.0.1:80]": "a"}));
    check("[a, b]: c", &json!({"[a, b]": "c"}));
    check("[host/a/b]: c", &json!({"[host/a/b]": "c"}));
}

#[test]
fn anchors_aliases_and_merge_keys() {
    check("a: &x {k: 1}\nb: *x", &json!({"a": {"k": 1}, "b": {"k": 1}}));
    check(
        "a: &x {k: 1, l: 2}\nb: {<<: *x, k: 3}",
        &json!({"a": {"k": 1, "l": 2}, "b": {"l": 2, "k": 3}}),
    );
    check("a: &x {k: 1}\nb: {k: 3, <<: *x}", &json!({"a": {"k": 1}, "b": {"k": 3}}));
    check(
        "a: &x {k: 1}\nb: &y {k: 2, m: 4}\nc: {<<: [*x, *y]}",
        &json!({
            "a": {"k": 1}, "b": {"k": 2, "m": 4}, "c": {"k": 1, "m": 4}
        }),
    );
    check("{\"<<\": 1}", &json!({"<<": 1}));
    check("- &x yes\n- *x", &json!([true, true]));
}

#[test]
fn json_is_read_as_yaml() {
    check("{\"a\":1,\"b\":[true,null,\"x\"]}", &json!({"a": 1, "b": [true, null, "x"]}));
    check("{\n\t\"a\": {\n\t\t\"b\": 1\n\t}\n}", &json!({"a": {"b": 1}}));
    check(r#"{"a": "\/\n\t\"\\\u00e9"}"#, &json!({"a": "/\n\t\"\\é"}));
    check(
        r#"{"a": "\ud83d\ude00", "b": "\\ud83d\\ude00"}"#,
        &json!({"a": "😀", "b": "\\ud83d\\ude00"}),
    );
    check("[1.5e3, -0.0, 1E-2]", &json!([1500.0, -0.0, 0.01]));
    check("\"only text\"", &json!("only text"));
    check("{\"a\": \"\", \"b\": {}, \"c\": []}", &json!({"a": "", "b": {}, "c": []}));
    check("{\r\n  \"a\": 1\r\n}", &json!({"a": 1}));
    let long = "x".repeat(5000);
    check(&format!("{{\"{long}\": 1}}"), &json!({long: 1}));
}

#[test]
fn surrogate_pairs_do_not_move_what_follows() {
    let tree = node("{\"a\": \"\\ud83d\\ude00\\ud83d\\ude00\", \"b\": 1,\n \"c\": 2}");
    let place = |pointer| tree.locate(pointer).map(|place| (place.line, place.column));
    assert_eq!(place("/b"), Some((1, 35)));
    assert_eq!(place("/c"), Some((2, 2)));
}

#[test]
fn places_count_from_one() {
    let tree = node("\u{feff}a: 1\nb:\n  c: [x, y]\n  'd/e~f': {g: 1}\n");
    let check = |pointer: &str, line, column| {
        let place = tree.locate(pointer).unwrap_or_else(|| panic!("{pointer}"));
        assert_eq!((place.line, place.column), (line, column), "{pointer}");
    };
    check("", 1, 1);
    check("/a", 1, 1);
    check("/b/c", 3, 3);
    check("/b/c/1", 3, 10);
    check("/b/d~1e~0f/g", 4, 13);
    for pointer in ["/x", "/b/c/2", "/a/b", "a"] {
        assert_eq!(tree.locate(pointer), None, "{pointer}");
    }
    let crlf = node("a: 1\r\nüü: {b: 2}\r\n");
    assert_eq!(crlf.locate("/üü/b").map(|place| (place.line, place.column)), Some((2, 6)));
}

#[test]
fn several_documents() {
    let check = |text: &str, expected: &[Json]| {
        let documents = documents(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        let documents: Vec<Json> = documents.iter().map(super::Node::to_json).collect();
        assert_eq!(documents, expected, "{text}");
    };
    check("", &[]);
    check("# nothing\n", &[]);
    check("a: 1", &[json!({"a": 1})]);
    check("---\na: 1\n---\nb: 2\n---\n", &[json!({"a": 1}), json!({"b": 2})]);
    check("- a: 1\n- b: 2\n", &[json!({"a": 1}), json!({"b": 2})]);
    check("[{\"a\": 1}]", &[json!({"a": 1})]);
    check("[a, b]", &[json!(["a", "b"])]);
    check("a: 1\n...\n---\nb: 2", &[json!({"a": 1}), json!({"b": 2})]);
}

/// Shows: D31
#[test]
fn what_cannot_be_read() {
    let check =
        |text: &str, expected: &str| assert_eq!(problems(&documents(text)), [expected], "{text}");
    check("a: !foo 1", "yaml-parsing  1:4");
    check("a: 1\na: 2", "duplicate-key /a 2:1");
    check("{\"a\": 1, \"a\": 2}", "duplicate-key /a 1:10");
    check("x: [{b: 1, c: 2, b: 3}]", "duplicate-key /x/0/b 1:18");
    check("a: &x [*x]", "yaml-parsing  1:8");
    check("{a: 1}: 2", "yaml-parsing  1:1");
    check("a: {<<: 5}", "yaml-parsing  1:9");
    check("a: 1\nb: x\0y", "yaml-parsing  2:5");
    for text in [
        "a: [",
        "a: {b",
        "a: 'x",
        "\"x",
        "a: *nowhere",
        "a: b: c",
        "%FOO",
        "}",
        "- a\nb: c",
        "a:\n\t- b",
    ] {
        let found = problems(&documents(text));
        assert!(found.len() == 1 && found[0].starts_with("yaml-parsing"), "{text}: {found:?}");
    }
}

#[test]
fn limits_hold_whatever_comes() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..20 {
        let list = format!("*a{}, ", level - 1).repeat(9);
        writeln!(bomb, "a{level}: &a{level} [{list}]").unwrap();
    }
    let long = format!("a: &a {}\nb: [{}]", "x".repeat(1_000_000), "*a, ".repeat(10_000));
    let mut chain = "a0: &a0 [x]\n".to_owned();
    for level in 1..500 {
        writeln!(chain, "a{level}: &a{level} [*a{}]", level - 1).unwrap();
    }
    for text in [
        bomb,
        long,
        chain,
        "[".repeat(1_000_000),
        "[\n".repeat(500_000),
        "{".repeat(1_000_000),
        "{a: ".repeat(250_000),
        "- ".repeat(500_000),
        "? ".repeat(500_000),
        "[[],".repeat(300_000),
        format!("[{}]", "1,".repeat(300_000)),
        "!".repeat(100_000),
        "&a ".repeat(100_000),
    ] {
        let result = documents(&text);
        assert!(result.is_err(), "{}", &text[..20]);
    }
    for text in [
        "9".repeat(100_000),
        format!("1e{}", "9".repeat(1000)),
        "\"".repeat(1001),
        "-".repeat(10_000),
    ] {
        let _ = documents(&text)
            .map(|documents| documents.iter().map(super::Node::to_json).collect::<Vec<_>>());
    }
    let small = Limits { depth: 2, nodes: 4, alias_bytes: 40 };
    assert!(parse("[[1], 2]", &small).is_ok());
    assert!(parse("[[[1]]]", &small).is_err());
    assert!(parse("[1, 2, 3, 4]", &small).is_err());
    assert!(parse("[&a xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx, *a]", &small).is_err());
}

#[test]
fn words_of_the_problems() {
    insta::assert_snapshot!(report(&documents("name: a\nports: {web: 1, web: 2}\nname: b\n")));
    insta::assert_snapshot!(report(&documents("a:\n  - b\n c: d\n")));
}
